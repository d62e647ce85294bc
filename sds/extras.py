"""Optional packages: which extra of the distribution brings the one that is missing."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires

from sds.errors import MissingExtraError

DISTRIBUTION = "sds-hdf5"
# Distributions whose modules have another name.
_MODULES = {"scikit_learn": "sklearn"}
_REQUIREMENT = re.compile(r"([\w-]+).*extra == ['\"](\w+)['\"]")


def extras() -> dict[str, list[str]]:
    """Return the extras that bring each optional module, in the order of the distribution."""
    try:
        lines = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        lines = []
    found: dict[str, list[str]] = {}
    for line in lines:
        if match := _REQUIREMENT.match(line):
            name = match[1].replace("-", "_")
            found.setdefault(_MODULES.get(name, name), []).append(match[2])
    return found


def pip_install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def missing_extra(error: Exception) -> MissingExtraError | None:
    """Return an error that names the extra to install, if that is why an import failed."""
    if not isinstance(error, ModuleNotFoundError):
        return None
    module = (error.name or "").partition(".")[0]
    # The first extra that a package is listed in is the one that exists for it.
    named = extras().get(module, [])
    if not named:
        return None
    return MissingExtraError(
        f"{module} is not installed, which this needs; install it with: {pip_install(named[0])}"
    )
