"""``sds-server``: starts, says where it listens, and ends when told to."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from sds.errors import ConfigurationError, SdsError
from sds.home import Home, default_home

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastapi import FastAPI

    from sds.server.settings import Settings

log = logging.getLogger("sds.server")

_LOOPBACK = {"127.0.0.1", "::1", "localhost"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status: 0, or 1 after a message on stderr."""
    given = _parser().parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("alembic").setLevel(logging.WARNING)
    # What the server reads of users' files is no access pattern of theirs.
    os.environ.pop("HDF5_VOL_CONNECTOR", None)
    home = Home(given.home.expanduser().absolute()) if given.home else default_home()
    try:
        if given.command == "upgrade":
            _upgrade(home)
        else:
            options = {"host": given.host, "port": given.port, "socket": given.socket}
            _serve(home, {name: value for name, value in options.items() if value is not None})
    except (SdsError, OSError) as error:
        print(f"sds-server: {error}", file=sys.stderr)  # noqa: T201  (the command's own output)
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
    parser.add_argument("--host", help="loopback address to listen at (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port (default 0: a free one)")
    parser.add_argument("--socket", type=Path, help="listen at a Unix socket instead")
    return parser


def _upgrade(home: Home) -> None:
    """Bring the catalog to the revision that this SDS needs."""
    from sds.catalog.engine import open_engine, sqlite_url  # noqa: PLC0415
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
    from sds.server.app import create_app  # noqa: PLC0415  (fastapi, sqlalchemy)
    from sds.server.jobs import Background, child_runner  # noqa: PLC0415
    from sds.server.service import Service  # noqa: PLC0415
    from sds.server.settings import load_settings  # noqa: PLC0415

    if os.geteuid() == 0:
        log.warning("running as root: SDS needs no rights but those of the files' owner")
    settings = load_settings(home, **options)
    stop = threading.Event()
    with Service.open(home, settings, run=child_runner(stop)) as service:
        # Held until this process ends, however it ends.
        service.lock.acquire()
        try:
            service.begin_run()
            log.info("recovered: %s", service.recover())
            listener = _listen(settings)
            app = create_app(service, Background(service, stop))
            _run(app, listener, home, settings)
            service.end_run()
        finally:
            service.lock.release()


def _listen(settings: Settings) -> socket.socket:
    """Return a socket that listens where the settings say.

    Raises
    ------
    ConfigurationError
        If that is not this machine alone, or is taken.
    """
    if settings.socket is not None:
        return _listen_unix(settings.socket.absolute())
    if settings.host not in _LOOPBACK:
        message = (
            f"host {settings.host!r} is not loopback, and tokens would cross the network in the "
            "clear; listen at 127.0.0.1 and reach it by ssh -L"
        )
        raise ConfigurationError(message)
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        message = f"cannot listen at {settings.host}:{settings.port}: {error}; choose another port"
        raise ConfigurationError(message) from error
    listener.listen()
    return listener


def _listen_unix(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    previous = os.umask(0o177)  # no moment at which others can connect
    try:
        # Left by a server that was killed: the home's lock is ours, so nobody listens there.
        if path.is_socket():
            path.unlink()
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        message = f"cannot listen at {path}: {error}; choose another path"
        raise ConfigurationError(message) from error
    finally:
        os.umask(previous)
    listener.listen()
    return listener


def _run(app: FastAPI, listener: socket.socket, home: Home, settings: Settings) -> None:
    """Answer requests until SIGTERM or SIGINT; the address is in the home as long."""
    import uvicorn  # noqa: PLC0415

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
        ws="none",
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                _announce(home, listener, settings)

    server = Server(config)
    # uvicorn ends at a signal, then raises it again: it shall not end us before we have cleaned up.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    try:
        server.run(sockets=[listener])
    finally:
        home.server_address.unlink(missing_ok=True)
        if settings.socket is not None:
            settings.socket.unlink(missing_ok=True)


def _announce(home: Home, listener: socket.socket, settings: Settings) -> None:
    """Write where the server listens, at once and only now that it does."""
    address: dict[str, str | int] = {"pid": os.getpid()}
    if settings.socket is not None:
        address |= {"url": "http://localhost", "socket": str(settings.socket.absolute())}
    else:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        address |= {"url": f"http://{host}:{listener.getsockname()[1]}"}
    temporary = home.server_address.with_suffix(".new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        json.dump(address, stream)
    temporary.rename(home.server_address)
    log.info("listening at %s", address.get("socket", address["url"]))


if __name__ == "__main__":
    sys.exit(main())
