"""How long the server takes to answer: ``python -m benchmarks.rest [--requests N]``.

A server on an empty home answers `/healthz` and `/api/v1/status`, one request at a time: on a kept
connection to its Unix socket, on a new one for each request as the commands make them, and on a
kept connection to its TCP port.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sds.home import Home
from sds.server.lock import read_address
from sds.server.remote_service import Connection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sds.server.lock import ServerAddress

_START_S = 60.0


@contextmanager
def server(home: Home) -> Iterator[ServerAddress]:
    """Yield where a server of a home listens, at its socket and at a port, for the block's time."""
    log = home.root / "server.log"
    with (
        log.open("wb") as out,
        subprocess.Popen(
            [sys.executable, "-m", "sds.server.main", "--home", home.root, "--port", "0"],
            stdout=out,
            stderr=out,
        ) as process,
    ):
        try:
            give_up = time.monotonic() + _START_S
            while (address := read_address(home)) is None:
                if process.poll() is not None or time.monotonic() > give_up:
                    raise RuntimeError(log.read_text())
                time.sleep(0.05)
            yield address
        finally:
            process.terminate()


def seconds(
    connection: http.client.HTTPConnection, path: str, token: str, *, n: int, keep: bool
) -> list[float]:
    """Return how long each request took; the first, which nothing is warm for, is not among them.

    Parameters
    ----------
    keep
        Whether all go over one connection.
    """
    headers = {"Authorization": f"Bearer {token}"}
    taken = []
    for _ in range(n + 1):
        begin_s = time.perf_counter()
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        taken.append(time.perf_counter() - begin_s)
        if answer.status != http.HTTPStatus.OK:
            raise RuntimeError(body.decode())
        if not keep:
            connection.close()
    connection.close()
    return taken[1:]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=200, help="of each kind")
    parser.add_argument("--json", action="store_true", help="print every time instead")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        home = Home(Path(directory) / "home")
        home.create()
        with server(home) as address:
            tokens = dict(line.split() for line in home.token.read_text().splitlines())
            host, _, port = (address.url or "").removeprefix("http://").rpartition(":")
            found = {}
            for path in ("/healthz", "/api/v1/status"):
                for name, keep in (("socket, kept", True), ("socket, new each", False)):
                    connection: http.client.HTTPConnection = Connection(
                        Path(address.socket), users=frozenset({os.geteuid()}), timeout_s=_START_S
                    )
                    found[name, path] = seconds(
                        connection, path, tokens["read"], n=given.requests, keep=keep
                    )
                connection = http.client.HTTPConnection(host, int(port), timeout=_START_S)
                found["TCP, kept", path] = seconds(
                    connection, path, tokens["read"], n=given.requests, keep=True
                )
    if given.json:
        print(json.dumps({" ".join(key): taken for key, taken in found.items()}))
        return
    print(f"{'connection':<18}{'request':<18}{'median ms':>10}{'5 %':>8}{'95 %':>8}")
    for (name, path), taken in found.items():
        low, *_, high = statistics.quantiles(taken, n=20)
        middle = statistics.median(taken)
        print(f"{name:<18}{path:<18}{1e3 * middle:>10.2f}{1e3 * low:>8.2f}{1e3 * high:>8.2f}")


if __name__ == "__main__":
    main()
