"""The web application: routers, errors, and who may reach them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse

import sds
from sds.server.auth import Tokens
from sds.server.errors import PROBLEMS, ForbiddenError, add_error_handlers, response
from sds.server.page import reference_page
from sds.server.routers import (
    datasets,
    home,
    jobs,
    patterns,
    plots,
    recommendations,
    replicas,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.responses import Response

    from sds.server.jobs import Background
    from sds.server.service import Service

PREFIX = "/api/v1"
_END_S = 4.0


def create_app(service: Service, background: Background) -> FastAPI:
    """Return the application over a service.

    Its lifespan starts the background and, at the end, stops it.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        background.start()
        try:
            yield
        finally:
            background.end(_END_S)

    app = FastAPI(
        title="SDS",
        summary="Makes reading large HDF5 files fast without changing the programs that read them",
        version=sds.__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = service
    app.state.background = background
    app.state.tokens = Tokens.load(service.home)
    add_error_handlers(app)
    for module in (datasets, patterns, recommendations, replicas, jobs, home, plots):
        app.include_router(module.router, prefix=PREFIX, responses=PROBLEMS)
    allowed = {name.lower() for name in service.settings.allowed_hosts}

    @app.middleware("http")
    async def check_host(
        request: Request, answer: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        # A page on the web can make a browser resolve its own name to 127.0.0.1: only requests
        # that name this server are for it.
        name = host_name(request.headers.get("host", ""))
        if name not in allowed:
            message = (
                f"host {name!r} is not served here; add it to the setting allowed_hosts "
                "if this server is known by that name"
            )
            return response(ForbiddenError(message))
        return await answer(request)

    @app.get("/docs", include_in_schema=False)
    def docs() -> HTMLResponse:
        """Show what can be asked."""
        return HTMLResponse(reference_page(app.openapi()))

    @app.get("/healthz", tags=["health"])
    def healthz() -> JSONResponse:
        """Tell that the process answers and its background works."""
        alive = background.alive
        return JSONResponse({"ok": alive}, status_code=200 if alive else 503)

    @app.get("/readyz", tags=["health"], responses=PROBLEMS)
    def readyz() -> JSONResponse:
        """Tell that the catalog can be read."""
        service.queue.counts()
        return JSONResponse({"ok": True})

    return app


def host_name(header: str) -> str:
    """Return the name of a Host header, without port and brackets, in lower case."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()
