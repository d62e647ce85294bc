"""``sds-server``: start, announce the addresses, serve, and shut down on a signal."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import socket
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from sds import _native
from sds.errors import ConfigurationError, SdsError
from sds.extras import missing_extra
from sds.home import Home, become_own_process, default_home
from sds.server.local_socket import listen_at, remove_socket
from sds.server.logs import log_to_stderr
from sds.text import counted, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastapi import FastAPI

    from sds.server.operations.reports import RecoveryReport
    from sds.server.settings import Settings

log = logging.getLogger("sds.server")

_LOOPBACK = {"127.0.0.1", "::1", "localhost"}
# Seconds after which a signal ends the server in any case; an orderly end takes fewer.
_LAST_END_S = 15


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status: 0, or 1 after a message on stderr."""
    given = _parser().parse_args(arguments)
    log_to_stderr()
    become_own_process()
    home = Home(given.home.expanduser().absolute()) if given.home else default_home()
    try:
        if given.command == "upgrade":
            _upgrade(home)
        else:
            options = {"host": given.host, "port": given.port, "socket": given.socket}
            _serve(home, {name: value for name, value in options.items() if value is not None})
    except (SdsError, OSError, ModuleNotFoundError) as error:
        said = missing_extra(error) or error
        if isinstance(said, ModuleNotFoundError):
            raise
        print(printable(f"sds-server: {said}"), file=sys.stderr)  # noqa: T201  (the command's own output)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sds-server",
        description="Counts traces, advises, builds replicas and answers REST, until SIGTERM.",
        epilog="Settings come from config.toml in SDS_HOME and from SDS_* variables too.",
    )
    parser.add_argument(
        "command",
        nargs="?",
        choices=("serve", "upgrade"),
        default="serve",
        help="serve (default), or upgrade the catalog of an older SDS",
    )
    parser.add_argument("--home", type=Path, help="directory of SDS (default: SDS_HOME)")
    parser.add_argument("--socket", type=Path, help="Unix socket to listen at (default: in home)")
    parser.add_argument("--port", type=int, help="listen at a TCP port as well (0: a free one)")
    parser.add_argument("--host", help="loopback address of the port (default: 127.0.0.1)")
    return parser


def _upgrade(home: Home) -> None:
    """Bring the catalog to the revision that this SDS needs."""
    from sds.catalog.database import open_engine, sqlite_url  # noqa: PLC0415
    from sds.catalog.migrate import upgrade  # noqa: PLC0415
    from sds.server.lock import HomeLock  # noqa: PLC0415
    from sds.server.settings import load_settings  # noqa: PLC0415

    settings = load_settings(home)
    home.create()
    engine = open_engine(settings.database_url or sqlite_url(home.database))
    try:
        with HomeLock(home, wait_s=0).held():
            upgrade(engine)
    finally:
        engine.dispose()
    log.info("catalog of %s is up to date", home.root)


def _serve(home: Home, options: dict[str, object]) -> None:
    """Serve one home until a signal ends it."""
    from sds.server.api.application import create_app  # noqa: PLC0415  (fastapi, sqlalchemy)
    from sds.server.operations.jobs import Background, child_runner  # noqa: PLC0415
    from sds.server.operations.process_pool import ProcessPool  # noqa: PLC0415
    from sds.server.operations.service import Service  # noqa: PLC0415
    from sds.server.settings import load_settings  # noqa: PLC0415

    if os.geteuid() == 0:
        log.warning("running as root: SDS needs no rights but those of the files' owner")
    settings = load_settings(home, **options)
    stop = threading.Event()
    pool = ProcessPool(home, settings, stop)
    with Service.open(home, settings, run=child_runner(stop)) as service:
        # Held until this process ends, however it ends.
        service.lock.acquire()
        try:
            service.begin_run()
            _log_recovery(service.recover())
            with ExitStack() as stack:
                listeners = _listen(home, settings)
                for listener in listeners:
                    stack.callback(listener.close)
                app = create_app(service, Background(service, stop), pool)
                _run(app, listeners, home, settings)
            service.end_run()
        finally:
            stop.set()
            service.lock.release()


def _log_recovery(found: RecoveryReport) -> None:
    """Log the work that a start found unfinished, and its outcome."""
    counts = (
        (len(found.jobs_requeued), "job begun again", "jobs begun again"),
        (len(found.jobs_failed), "job given up", "jobs given up"),
        (len(found.replicas_finished), "replica finished", "replicas finished"),
        (len(found.replicas_dropped), "replica dropped", "replicas dropped"),
        (len(found.files_removed), "file removed", "files removed"),
        (len(found.tables_published), "table published", "tables published"),
        (len(found.tables_withdrawn), "table withdrawn", "tables withdrawn"),
    )
    said = [counted(n, one, many) for n, one, many in counts if n]
    log.info("recovered: %s", ", ".join(said) or "nothing was unfinished")


def socket_path(home: Home, settings: Settings) -> Path:
    """Return where the server listens for the commands of its account."""
    return home.server_socket if settings.socket is None else settings.socket.absolute()


def _listen(home: Home, settings: Settings) -> list[socket.socket]:
    """Return sockets that listen where the settings say: the Unix socket, and a port if one is set.

    Raises
    ------
    ConfigurationError
        If that is not this machine alone, or is taken.
    """
    if settings.host not in _LOOPBACK:
        message = (
            f"host {settings.host!r} is not loopback, and tokens would cross the network in the "
            "clear; listen at 127.0.0.1 and reach it by ssh -L"
        )
        raise ConfigurationError(message)
    path = socket_path(home, settings)
    try:
        listeners = [listen_at(path)]
    except OSError as error:
        message = (
            f"cannot listen at {path}: {error.strerror or error}; name another path with the "
            "setting socket, for example below /run/user"
        )
        raise ConfigurationError(message) from error
    if settings.port is not None:
        try:
            listeners.append(_listen_tcp(settings.host, settings.port))
        except OSError as error:
            listeners[0].close()
            message = (
                f"cannot listen at {settings.host}:{settings.port}: {error}; choose another port"
            )
            raise ConfigurationError(message) from error
    return listeners


def _listen_tcp(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY where the protocol is said; without it answers on a connection that
    # is kept wait 40 ms for an acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()
    except BaseException:
        listener.close()
        raise
    return listener


def _run(app: FastAPI, listeners: list[socket.socket], home: Home, settings: Settings) -> None:
    """Answer requests until SIGTERM or SIGINT; the address is in the home as long."""
    import uvicorn  # noqa: PLC0415

    from sds.server.api.connection_limits import BACKLOG, BoundedProtocol  # noqa: PLC0415

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
        ws="none",
        http=BoundedProtocol,
        backlog=BACKLOG,
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                # Behind the handlers of uvicorn, which need the interpreter.
                for number in (signal.SIGTERM, signal.SIGINT):
                    _native.end_after_signal(number, _LAST_END_S)
                _announce(home, listeners, settings)

    server = Server(config)
    # uvicorn ends at a signal, then raises it again: it shall not end us before we have cleaned up.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    try:
        server.run(sockets=listeners)
    finally:
        home.server_address.unlink(missing_ok=True)
        remove_socket(socket_path(home, settings))


def _announce(home: Home, listeners: list[socket.socket], settings: Settings) -> None:
    """Write where the server listens, at once and only now that it does."""
    address: dict[str, str | int | None] = {
        "pid": os.getpid(),
        "socket": str(socket_path(home, settings)),
        "url": None,
    }
    if settings.port is not None:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        address["url"] = f"http://{host}:{listeners[1].getsockname()[1]}"
    temporary = home.server_address.with_suffix(".new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        json.dump(address, stream)
    temporary.rename(home.server_address)
    log.info("listening at %s", address["socket"])
    if address["url"] is not None:
        log.info("listening at %s", address["url"])


if __name__ == "__main__":
    sys.exit(main())
