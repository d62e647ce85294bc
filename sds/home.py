"""The home of SDS: the files and directories in SDS_HOME."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sds.errors import (
    ConfigurationError,
    InsufficientSpaceError,
    PermissionDeniedError,
    SdsValueError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

# HDF5's own connector by its name, which holds against what is preloaded: for reads of SDS itself.
NATIVE = {"HDF5_VOL_CONNECTOR": "native"}


def become_own_process() -> None:
    """Set the environment of a process that is SDS itself: a command, or the server.

    What it reads is the original, and no trace of a user's program. NumPy's OpenBLAS would start a
    thread for each processor as it is imported, of which nothing here has a use: a tenth of what a
    command takes on two processors.
    """
    _users_environment.update(os.environ)
    os.environ |= NATIVE
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


_users_environment: dict[str, str] = {}


def users_environment() -> dict[str, str]:
    """Return the environment for a user's program: that of this process as it was started."""
    return _users_environment or dict(os.environ)


def is_switched_off(environ: Mapping[str, str]) -> bool:
    """Return whether an environment switches SDS off: what the connector asks, no more."""
    return environ.get("SDS_DISABLE") == "1"


def is_redirection_off(environ: Mapping[str, str]) -> bool:
    """Return whether an environment says that no replica may serve."""
    return is_switched_off(environ) or environ.get("SDS_REDIRECT") == "0"


DAMAGE_SUFFIX = ".damaged"
"""Suffix of a damage report in the spool, behind the number of the replica found damaged."""


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
        """JSON written by a running server: its socket, its URL and its process id."""
        return self.root / "server.json"

    @property
    def server_socket(self) -> Path:
        """Unix socket at which the server listens, unless another one is configured."""
        return self.root / "server.sock"

    @property
    def lock(self) -> Path:
        """Locked by the one process that writes the catalog."""
        return self.root / "lock"

    @property
    def chunked(self) -> Path:
        """File whose presence has programs prepare at their start for replicas in chunks."""
        return self.root / "chunked"

    @property
    def running(self) -> Path:
        """Mark of a server that runs, or has ended without warning."""
        return self.root / "running"

    @property
    def verify_reads(self) -> Path:
        """File whose presence has programs check every block read from contiguous replicas."""
        return self.root / "verify_reads"

    @property
    def disabled(self) -> Path:
        """File whose presence turns the connector off for every program."""
        return self.root / "disabled"

    def create(self) -> None:
        """Create the tree, private to this account, and check that it is.

        Raises
        ------
        PermissionDeniedError
            If a directory may not be created, or as :meth:`check`.
        ConfigurationError
            If one cannot be: a file is in its place, for example.
        InsufficientSpaceError
            If there is no room for one.
        """
        try:
            for directory in (self.root, self.spool, self.tables, self.sorted, self.replicas):
                make_private(directory)
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
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise InsufficientSpaceError(message) from error
            raise ConfigurationError(message) from error
        self.check()

    def check(self) -> None:
        """Refuse a home in which another account could have written what SDS obeys.

        The home, its directories, and each file that is obeyed belong to this account or to root,
        and no one else may write them. What is missing is in order.

        Raises
        ------
        PermissionDeniedError
            Names what others may write, its owner and mode, and the remedy.
        """
        places = (
            self.root, self.spool, self.tables, self.sorted, self.replicas,
            self.config, self.token, self.database, self.lock,
            self.server_address, self.server_socket, self.disabled,
        )  # fmt: skip
        for place in places:
            try:
                kinds = [place.stat()] if place == self.root else [place.lstat(), place.stat()]
            except (FileNotFoundError, NotADirectoryError):
                continue
            except PermissionError as error:
                message = (
                    f"may not look into SDS_HOME {self.root}; ask its owner, or set SDS_HOME to a "
                    "directory of yours"
                )
                raise PermissionDeniedError(message) from error
            for found in kinds:
                self._check_owner(place, found)

    def _check_owner(self, place: Path, found: os.stat_result) -> None:
        if found.st_uid not in {os.geteuid(), 0}:
            message = (
                f"{place} belongs to {_account(found.st_uid)}, not to {_account(os.geteuid())}: "
                "SDS obeys no file of another account; set SDS_HOME to a directory of yours"
            )
            raise PermissionDeniedError(message)
        if stat.S_ISLNK(found.st_mode):
            return  # its mode means nothing; who owns it may replace it
        if writers := _writers(place, found):
            message = (
                f"{place} may be written by {writers} (mode {stat.S_IMODE(found.st_mode):o}): "
                f"SDS would obey what others put there; run chmod go-w {place}, or set SDS_HOME to "
                "a private directory"
            )
            raise PermissionDeniedError(message)

    def holds_replica(self, path: str | os.PathLike[str]) -> bool:
        """Return whether a path names a file below the directory of replicas.

        Links and ``..`` on the way are followed: a path that only begins like one does not.
        """
        directory, name = os.path.split(os.path.abspath(path))  # noqa: PTH100  (without links)
        if ".." in Path(path).parts:
            return False
        root = Path(os.path.realpath(self.replicas))
        return bool(name) and Path(os.path.realpath(directory)).is_relative_to(root)

    def refuse_own(self, output: Path) -> None:
        """Refuse to write a user's file among SDS's own.

        Raises
        ------
        SdsValueError
            If `output` lies in the home, or is a link to what does, but not among the replicas.
        """
        root = Path(os.path.realpath(self.root))
        itself = Path(os.path.realpath(output.parent)) / output.name
        for place in (itself, Path(os.path.realpath(output))):
            if place.is_relative_to(root) and not self.holds_replica(place):
                message = (
                    f"{output} is, or leads to, a file in {root}, where SDS keeps its own files: "
                    "name another place"
                )
                raise SdsValueError(message)

    def read_config(self) -> dict[str, Any]:
        """Return what config.toml sets; nothing where there is none.

        Raises
        ------
        ConfigurationError
            If it is no TOML.
        PermissionDeniedError
            If it may not be read.
        """
        import tomllib  # noqa: PLC0415  (only who asks for settings needs it)

        path = self.config
        try:
            if path.exists() and not path.is_file():
                message = f"{path} is no regular file; write settings into one"
                raise ConfigurationError(message)
            return tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except PermissionError as error:
            message = f"may not read {path}; chmod u+r it"
            raise PermissionDeniedError(message) from error
        except NotADirectoryError as error:
            message = f"SDS_HOME {path.parent} is no directory; set SDS_HOME to one"
            raise ConfigurationError(message) from error
        except ValueError as error:  # no TOML, no UTF-8, or an integer of thousands of digits
            message = f"{path} is no TOML: {error}; correct that line"
            raise ConfigurationError(message) from error
        except RecursionError as error:
            message = f"{path} is nested too deeply; write settings one below the other"
            raise ConfigurationError(message) from error


def make_private(directory: Path) -> None:
    """Create a directory, and those missing on the way, for this account alone.

    Whatever the umask, which would let others write the ones on the way.
    """
    missing = []
    place = directory
    while not place.exists() and place != place.parent:
        missing.append(place)
        place = place.parent
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)  # an error where a file is in its place


def who_could_replace(directory: Path) -> str:
    """Return who but this account and root could put another directory in the place of one.

    Or other files into it. Empty where no one could.
    """
    place = Path(os.path.realpath(directory))
    for each in (place, *place.parents):
        found = each.stat()
        if found.st_uid not in {os.geteuid(), 0}:
            return f"{_account(found.st_uid)}, whose directory {each} is"
        is_sticky = bool(found.st_mode & stat.S_ISVTX) and each != place
        if not is_sticky and (writers := _writers(each, found)):
            return f"{writers}, by writing into {each}"
    return ""


def _writers(place: Path, found: os.stat_result) -> str:
    """Return who may write a file or directory but its owner; empty where no one may."""
    if found.st_mode & stat.S_IWOTH:
        return "every account"
    if found.st_mode & stat.S_IWGRP and not _is_private_group(place, found):
        return f"the group {_group(found.st_gid)}"
    return ""


def _is_private_group(place: Path, found: os.stat_result) -> bool:
    """Return whether a group has no member but the owner, and its mode bits name no one else.

    The group of the owner's own name that many systems make for each account. With an access
    control list the bits of the group are those of everybody whom the list names.
    """
    try:
        owner, group = pwd.getpwuid(found.st_uid), grp.getgrgid(found.st_gid)
    except KeyError:
        return False
    if owner.pw_gid != group.gr_gid or owner.pw_name != group.gr_name:
        return False
    if set(group.gr_mem) - {owner.pw_name}:
        return False
    try:
        os.getxattr(place, "system.posix_acl_access")
    except OSError:
        return True  # it has none, or its file system knows none
    return False


def _account(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"account {user}"


def _group(group: int) -> str:
    try:
        return grp.getgrgid(group).gr_name
    except KeyError:
        return str(group)


def user_data_directory() -> Path:
    """Return SDS's directory among the user's data, after the XDG base directories."""
    named = os.environ.get("XDG_DATA_HOME", "").strip()
    return Path(named or "~/.local/share").expanduser() / "sds"


def default_home() -> Home:
    """Return the home that SDS_HOME names, else the user's data directory."""
    named = os.environ.get("SDS_HOME")
    root = Path(named) if named else user_data_directory()
    return Home(root.expanduser().absolute())


def verifies_reads(home: Home, environment: Mapping[str, str]) -> bool:
    """Return whether each block of a contiguous replica is checked before it is read."""
    value = environment.get("SDS_VERIFY_READS")
    return value == "1" or (value != "0" and home.verify_reads.exists())


def damage_report(home: Home, replica_id: int) -> Path:
    """Return where a program that finds a replica damaged leaves word of it."""
    return home.spool / f"{replica_id}{DAMAGE_SUFFIX}"
