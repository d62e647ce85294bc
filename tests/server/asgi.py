"""A client of an application in this process, without a socket."""

import asyncio

import httpx


class Client:
    def __init__(self, app, *, base_url="http://127.0.0.1", headers=None):
        self._app = app
        self._options = {"base_url": base_url, "headers": headers}

    def request(self, method, path, **options):
        async def ask():
            # What an application raises after it has answered is the server's log, not an answer.
            transport = httpx.ASGITransport(app=self._app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, **self._options) as client:
                return await client.request(method, path, **options)

        return asyncio.run(ask())

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, path, **options):
        return self.request("POST", path, **options)

    def delete(self, path, **options):
        return self.request("DELETE", path, **options)
