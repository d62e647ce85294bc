"""Where SDS keeps its files: SDS_HOME and what lies in it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from sds.errors import ConfigurationError, PermissionDeniedError

if TYPE_CHECKING:
    from collections.abc import Mapping


def is_switched_off(environ: Mapping[str, str]) -> bool:
    """Return whether an environment switches SDS off: what the connector asks, no more."""
    return environ.get("SDS_DISABLE") == "1"


def is_redirection_off(environ: Mapping[str, str]) -> bool:
    """Return whether an environment says that no replica may serve."""
    return is_switched_off(environ) or environ.get("SDS_REDIRECT") == "0"


DAMAGE_SUFFIX = ".damaged"
"""Of reports in the spool: the number of a replica that a program found damaged."""


@dataclass(frozen=True, slots=True)
class Home:
    """The directory of one SDS installation.

    Parameters
    ----------
    root
        Absolute path. Nothing is created until :meth:`create` is called.
    """

    root: Path

    @property
    def database(self) -> Path:
        """SQLite catalog, unless a database URL is configured."""
        return self.root / "sds.db"

    @property
    def spool(self) -> Path:
        """Directory into which the connector writes traces."""
        return self.root / "spool"

    @property
    def tables(self) -> Path:
        """Directory of redirect tables, one per source file."""
        return self.root / "tables"

    @property
    def sorted(self) -> Path:
        """Directory of lists of sorted replicas, one per source file that has any."""
        return self.root / "sorted"

    @property
    def replicas(self) -> Path:
        """Directory of replicas."""
        return self.root / "replicas"

    @property
    def token(self) -> Path:
        """Bearer tokens of the server, mode 0600."""
        return self.root / "token"

    @property
    def config(self) -> Path:
        """Settings, TOML."""
        return self.root / "config.toml"

    @property
    def server_address(self) -> Path:
        """JSON written by a running server: its URL and process id."""
        return self.root / "server.json"

    @property
    def lock(self) -> Path:
        """Locked by the one process that writes the catalog."""
        return self.root / "lock"

    @property
    def chunked(self) -> Path:
        """Its presence tells programs that start to be ready for replicas in chunks."""
        return self.root / "chunked"

    @property
    def running(self) -> Path:
        """Mark of a server that runs, or has ended without warning."""
        return self.root / "running"

    @property
    def verify_reads(self) -> Path:
        """Its presence has programs check every block of contiguous replicas that they read."""
        return self.root / "verify_reads"

    @property
    def disabled(self) -> Path:
        """Its presence turns the connector off for every program."""
        return self.root / "disabled"

    def create(self) -> None:
        """Create the tree, private to this account.

        Raises
        ------
        PermissionDeniedError
            If a directory may not be created.
        ConfigurationError
            If one cannot be: a file is in its place, for example.
        """
        try:
            for directory in (self.root, self.spool, self.tables, self.sorted, self.replicas):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except PermissionError as error:
            message = (
                f"cannot create {error.filename}: permission denied; "
                "set SDS_HOME to a directory that you can write"
            )
            raise PermissionDeniedError(message) from error
        except OSError as error:
            message = (
                f"SDS_HOME {self.root} cannot be used: {error.strerror} ({error.filename}); "
                "set SDS_HOME to a directory that you can write"
            )
            raise ConfigurationError(message) from error


def default_home() -> Home:
    """Return the home that SDS_HOME names, else the user's data directory."""
    named = os.environ.get("SDS_HOME")
    root = Path(named) if named else Path(platformdirs.user_data_dir("sds"))
    return Home(root.expanduser().absolute())


def verifies_reads(home: Home, environment: Mapping[str, str]) -> bool:
    """Return whether each block of a contiguous replica is checked before it is read."""
    asked = environment.get("SDS_VERIFY_READS")
    return asked == "1" or (asked != "0" and home.verify_reads.exists())


def damage_report(home: Home, replica_id: int) -> Path:
    """Return where a program that finds a replica damaged leaves word of it."""
    return home.spool / f"{replica_id}{DAMAGE_SUFFIX}"
