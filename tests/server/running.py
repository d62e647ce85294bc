"""Servers as users run them: processes of their own."""

import contextlib
import json
import os
import signal
import subprocess
import sys

import httpx

from tests.waiting import PATIENCE_S, wait_until


class Server:
    """A server process on a home, and a client of it."""

    def __init__(self, home, *arguments, **environment):
        self.home = home
        home.create()
        self.log = (home.root / "server.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sds.server.main", "--home", home.root, *arguments],
            stdout=self.log,
            stderr=subprocess.STDOUT,
            env=os.environ | environment,
        )

    def wait_until_it_listens(self):
        log = self.home.root / "server.log"

        def is_ready():
            assert self.process.poll() is None, log.read_text()
            with contextlib.suppress(FileNotFoundError, httpx.TransportError):
                address = json.loads(self.home.server_address.read_text())
                if address["pid"] == self.process.pid:
                    self.client = self._client(address)
                    assert self.client.get("/readyz").status_code == 200
                    return True
            return False

        wait_until(is_ready, log.read_text)
        return self

    def _client(self, address):
        """Return a client of its TCP port where it has one, with a token, else of its socket."""
        if address["url"] is None:
            transport = httpx.HTTPTransport(uds=address["socket"])
            return httpx.Client(
                base_url="http://localhost", transport=transport, timeout=PATIENCE_S
            )
        headers = {"Authorization": f"Bearer {self.token('operate')}"}
        return httpx.Client(
            base_url=address["url"], headers=headers, trust_env=False, timeout=PATIENCE_S
        )

    def token(self, scope):
        lines = dict(line.split() for line in self.home.token.read_text().splitlines())
        return lines[scope]

    def kill(self):
        self._end(signal.SIGKILL)

    def terminate(self):
        return self._end(signal.SIGTERM)

    def _end(self, number):
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(timeout=PATIENCE_S)
        self.log.close()
        if hasattr(self, "client"):
            self.client.close()
        return self.process.returncode

    def wait_for(self, job_id, states=("done", "failed", "cancelled")):
        """Wait until a job is in one of these states, and return it."""
        found = {}

        def has_come():
            found.update(self.client.get(f"/api/v1/jobs/{job_id}").json())
            return found["state"] in states

        wait_until(has_come, lambda: f"{states}: {found}")
        return found
