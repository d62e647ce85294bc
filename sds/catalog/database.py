"""Opening the database: SQLite on a local disk by default, set up so that readers never wait.

Every write transaction begins by taking SQLite's write lock. Without that, a transaction that has
read is refused at its first write when another one has written in between, however long it is
willing to wait.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from sqlalchemy import create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.orm import Session

from sds.errors import (
    BusyError,
    CatalogError,
    ConfigurationError,
    InsufficientSpaceError,
    UnsupportedError,
)
from sds.mounts import filesystem_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import URL, Connection, Engine
    from sqlalchemy.engine.interfaces import DBAPIConnection, ExceptionContext
    from sqlalchemy.pool import ConnectionPoolEntry

BUSY_TIMEOUT_S = 30.0
_LEAST_FREE_BYTES = 64 << 10  # less is no room for SQLite's own files beside the database
START_ANEW = (
    "move it away and delete SDS_HOME/replicas: SDS makes a new catalog, replicas and calibrations "
    "have to be made anew; originals are untouched"
)
WRITES = "sds_writes"  # execution option of a connection whose transactions write


def sqlite_url(path: Path) -> str:
    """Return the URL of an SQLite file."""
    return f"sqlite:///{path}"


def open_engine(url: str, mountinfo: Path = Path("/proc/self/mountinfo")) -> Engine:
    """Return an engine for the catalog's database; connects to nothing yet.

    Raises
    ------
    ConfigurationError
        If the URL cannot be read, or names a database that SDS does not support.
    CatalogError
        If it is SQLite on a network file system.
    """
    parsed = _parsed(url)
    if parsed.database:
        path = Path(parsed.database)
        _refuse_network(path, mountinfo)
        _create_private(path)
    engine = create_engine(parsed, connect_args={"timeout": BUSY_TIMEOUT_S})
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin)
    event.listen(engine, "handle_error", _name_error)
    return engine


def open_engine_to_read(url: str) -> Engine | None:
    """Return an engine for reading an SQLite file, also where nothing may be written.

    Returns
    -------
    None where there is no such file, or an empty one.

    Raises
    ------
    ConfigurationError
        If the URL cannot be read.
    CatalogError
        If the file may not be.
    """
    path = Path(_parsed(url).database or "")
    try:
        if path.is_dir() or not path.exists() or not path.stat().st_size:
            return None
        with path.open("rb"):
            pass
    except OSError as error:
        message = f"cannot read catalog {path}: {error.strerror}; ask its owner, or set SDS_HOME"
        raise CatalogError(message) from error
    if all(os.access(place, os.W_OK, effective_ids=True) for place in (path, path.parent)):
        return open_engine(url)
    # SQLite makes files of its own beside the one that it reads, unless it knows that no one
    # writes. Who does keeps them there.
    wal = path.with_name(f"{path.name}-wal")
    is_written = wal.exists() and wal.stat().st_size > 0
    options = "mode=ro" if is_written else "mode=ro&immutable=1"
    engine = create_engine(
        f"sqlite:///file:{quote(str(path.absolute()))}?{options}&uri=true",
        connect_args={"timeout": BUSY_TIMEOUT_S},
    )
    event.listen(engine, "handle_error", _name_error)
    return engine


def _parsed(url: str) -> URL:
    """Return a URL in parts.

    Raises
    ------
    ConfigurationError
        If it cannot be read, or names a database that SDS does not support.
    """
    try:
        parsed = make_url(url)
        supported = parsed.get_backend_name() == "sqlite"
    except (ArgumentError, NoSuchModuleError) as error:
        message = f"database_url {url!r} cannot be read: {error}; write sqlite:////absolute/path.db"
        raise ConfigurationError(message) from error
    if not supported:
        message = (
            f"database_url {parsed.render_as_string()} names {parsed.get_backend_name()}, which "
            "this version of SDS does not support; write sqlite:////absolute/path.db"
        )
        raise ConfigurationError(message)
    return parsed


def _refuse_network(path: Path, mountinfo: Path) -> None:
    filesystem = filesystem_of(path, mountinfo)
    if filesystem.is_network:
        message = (
            f"catalog {path} would lie on {filesystem.kind} ({filesystem.mount_point}), where "
            "SQLite cannot share it safely; set database_url in config.toml (or SDS_DATABASE_URL) "
            "to a local disk of the server's host, for example sqlite:////var/tmp/me/sds.db"
        )
        raise CatalogError(message)


def _create_private(path: Path) -> None:
    """Create the file that SQLite would create for everybody to read."""
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(path, flags, 0o600)
        is_regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        os.close(descriptor)
    except OSError as error:
        message = f"cannot open catalog {path}: {error.strerror}; set SDS_HOME or database_url"
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise InsufficientSpaceError(message) from error
        raise CatalogError(message) from error
    if not is_regular:
        message = f"catalog {path} is no regular file; remove it, or set database_url"
        raise CatalogError(message)


def _set_up_sqlite(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    """Let readers work beside the writer, keep what was committed, hold foreign keys."""
    # The driver's own BEGIN comes too late and is never IMMEDIATE: _begin sends it.
    connection.isolation_level = None
    cursor = connection.cursor()
    with as_damage():
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


@contextmanager
def as_damage() -> Iterator[None]:
    """Raise CatalogError where SQLite names a damaged part by bytes that are no text."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise damaged("database", f"its schema is damaged ({error})") from error


def _name_error(context: ExceptionContext) -> None:
    """Raise an error of SDS in place of SQLite's own.

    Raises
    ------
    InsufficientSpaceError
        If the disk is full; SQLite calls that an I/O error where it maps a file.
    BusyError
        If another process holds on to the database.
    CatalogError
        If the database is damaged, cannot be opened, or has other tables than it should.
    UnsupportedError
        If a name is not UTF-8.
    """
    raised = context.original_exception
    if isinstance(raised, UnicodeEncodeError):
        message = (
            f"{raised.object!a} is not UTF-8, and the catalog holds names as text: give the "
            "file or dataset another name, or a link of another name"
        )
        raise UnsupportedError(message) from raised
    if not isinstance(raised, sqlite3.DatabaseError):
        return
    where = "" if context.engine is None else context.engine.url.database or ""
    code = getattr(raised, "sqlite_errorcode", None)
    kind = None if code is None else code & 0xFF
    if kind == sqlite3.SQLITE_FULL or (kind == sqlite3.SQLITE_IOERR and _is_full(where)):
        message = (
            f"no room to write catalog {where}: {raised}; free some space there, or set SDS_HOME "
            "or database_url to another disk"
        )
        raise InsufficientSpaceError(message) from raised
    if kind in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        message = f"another process holds catalog {where}: {raised}; try again when it is done"
        raise BusyError(message) from raised
    if kind in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY}:
        message = (
            f"cannot open catalog {where}: {raised}; check that its directory exists and is "
            "writable"
        )
        raise CatalogError(message) from raised
    if kind == sqlite3.SQLITE_CONSTRAINT:
        return  # of a row that a caller may find there already
    raise damaged(where, raised) from raised


def damaged(where: object, problem: object) -> CatalogError:
    """Return the error of a catalog that holds what SDS cannot have written."""
    return CatalogError(f"catalog {where} cannot be read: {problem}; {START_ANEW}")


def _is_full(path: str) -> bool:
    try:
        found = os.statvfs(Path(path).parent)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _LEAST_FREE_BYTES


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


class Database:
    """A database and its two kinds of transactions."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._writer = engine.execution_options(**{WRITES: True})

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Open a transaction that sees one state of the database and changes nothing."""
        with as_damage(), Session(self.engine) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Open a transaction that is kept whole, or, after an error, not at all."""
        with (
            as_damage(),
            Session(self._writer, expire_on_commit=False) as session,
            session.begin(),
        ):
            yield session

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()
