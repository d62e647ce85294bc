"""Settings of the server and of the commands: defaults, config.toml, SDS_* variables, arguments.

SDS_HOME names the home, in which config.toml lies, and so is no setting itself. SDS_DISABLE,
SDS_TRACE, SDS_REDIRECT, SDS_ENGINE, SDS_MMAP, SDS_MMAP_BYTES and SDS_DEBUG belong to the
connector.
"""

import json
import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sds.catalog.records import Mode
from sds.errors import ConfigurationError
from sds.home import Home

_TIME = r"([01]\d|2[0-3]):[0-5]\d"
_HOURS = f"^{_TIME}-{_TIME}$"


class Settings(BaseModel):
    """Settings of a site or a user; docs/reference/settings.md says when to change which."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    database_url: str | None = None
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] | None = None
    socket: Path | None = None
    allowed_hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "::1")
    ingest_interval_s: Annotated[float, Field(gt=0)] = 3.0
    spool_keep_days: Annotated[float, Field(ge=0)] = 7.0
    mode: Mode = "observe"
    evaluate_interval_s: Annotated[float, Field(gt=0)] = 60.0
    build_hours: Annotated[str, Field(pattern=_HOURS)] | None = None
    quiet_source_s: Annotated[float, Field(ge=0)] = 60.0
    recent_days: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 30.0
    refit_interval_s: Annotated[float, Field(gt=0)] = 3600.0
    verify_interval_days: Annotated[float, Field(ge=0)] = 7.0
    verify_reads: bool = False
    spool_idle_s: Annotated[float, Field(gt=0)] = 3600.0
    lock_wait_s: Annotated[float, Field(ge=0)] = 5.0
    job_attempts: Annotated[int, Field(ge=1)] = 3
    max_queued_jobs: Annotated[int, Field(ge=1)] = 1000
    request_limit_s: Annotated[float, Field(gt=0)] = 100.0
    stripe_size_bytes: Annotated[int, Field(gt=0)] = 1 << 20
    stripe_count: Annotated[int, Field(gt=0)] = 1
    raid_unit_bytes: Annotated[int, Field(gt=0)] = 4096
    raid_data_disks: Annotated[int, Field(gt=0)] = 1
    raid_min_request_bytes: Annotated[int, Field(gt=0)] = 4096
    ost_count: Annotated[int, Field(gt=0, le=65536)] = 1
    stripe_advice: bool = True
    advice_min_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.1
    advice_min_s_per_gib: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.02
    replica_budget_bytes: Annotated[int, Field(ge=0)] | None = None
    trusted_directories: tuple[Annotated[str, Field(pattern="^/")], ...] = ()  # sds.hdf5.identity


def load_settings(home: Home, **given: Any) -> Settings:  # noqa: ANN401  (checked by Settings)
    """Return the settings of a home: what is given, else SDS_*, else config.toml, else defaults.

    Raises
    ------
    ConfigurationError
        If one is unknown or wrong; says which, where it came from and what it may be.
    PermissionDeniedError
        If config.toml may not be read, or others may write it, as :meth:`sds.home.Home.check`.
    """
    home.check()
    written = home.read_config()
    unknown = sorted(set(written) - set(Settings.model_fields))
    if unknown:
        known = ", ".join(Settings.model_fields)
        message = f"{home.config} sets {unknown[0]!r}, which is no setting; there are: {known}"
        raise ConfigurationError(message)
    try:
        return Settings(**{**written, **_environment(), **given})
    except ValidationError as error:
        raise ConfigurationError(_explain(error, home, written, given)) from error


def _environment() -> dict[str, Any]:
    """Return the settings that variables of the environment name; tuples are JSON in them.

    Raises
    ------
    ConfigurationError
        If one is no JSON where it has to be.
    """
    variables = {name.upper(): value for name, value in os.environ.items()}
    found: dict[str, Any] = {}
    for name, field in Settings.model_fields.items():
        variable = f"SDS_{name.upper()}"
        if variable not in variables:
            continue
        found[name] = variables[variable]
        if isinstance(field.default, tuple):
            try:
                found[name] = json.loads(variables[variable])
            except ValueError as error:
                message = (
                    f"{variable} = {variables[variable]!r} cannot be read ({error}); tuples are "
                    "written as JSON, for example '[\"localhost\"]'"
                )
                raise ConfigurationError(message) from error
    return found


def _explain(
    error: ValidationError, home: Home, written: dict[str, Any], given: dict[str, Any]
) -> str:
    first = error.errors()[0]
    name = str(first["loc"][0]) if first["loc"] else "settings"
    if name in given:
        origin = "given"
    elif name in written:
        origin = f"in {home.config} (or SDS_{name.upper()})"
    else:
        origin = f"in SDS_{name.upper()}"
    return (
        f"setting {name} = {first['input']!r} {origin}: {first['msg']}; docs/reference/settings.md"
    )
