"""The web application: routers, errors, and who may reach them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, FastAPI, Query, Request, Security
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.security import HTTPBearer

import sds
from sds.server.api.admission import Gate
from sds.server.api.auth import Tokens
from sds.server.api.dependencies import only_known_parameters
from sds.server.api.docs_page import reference_page
from sds.server.api.error_responses import PROBLEMS, add_error_handlers
from sds.server.api.routers import plots
from sds.server.api.routes import operations_router
from sds.server.rest import PREFIX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sds.server.operations.jobs import Background
    from sds.server.operations.process_pool import ProcessPool
    from sds.server.operations.service import Service

_END_S = 4.0
# For the description alone: the gate looks at tokens before the application sees a request.
_BEARER = HTTPBearer(auto_error=False, description="a token of the file `token` in SDS_HOME")


CHALLENGE = "^[0-9a-f]{32,128}$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """HMAC-SHA256, keyed by each token, of ``sds-server CHALLENGE SERVER_PORT CLIENT_PORT``."""

    read: str
    operate: str


def create_app(
    service: Service, background: Background, pool: ProcessPool | None = None
) -> FastAPI:
    """Return the application over a service.

    Its lifespan starts the background and, at the end, stops it.

    Parameters
    ----------
    pool
        Runs the operations that open users' files; None: the service itself does.
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
    tokens = Tokens.load(service.home)
    app.state.service = service
    app.state.pool = pool
    add_error_handlers(app)
    for router in (operations_router(), plots.router):
        app.include_router(
            router,
            prefix=PREFIX,
            responses=PROBLEMS,
            dependencies=[Security(_BEARER), Depends(only_known_parameters)],
        )
    app.add_middleware(
        Gate,
        prefix=PREFIX,
        tokens=tokens,
        token_file=service.home.token,
        allowed_hosts=service.settings.allowed_hosts,
    )

    @app.get("/docs", include_in_schema=False)
    def docs() -> HTMLResponse:
        """Show the operations."""
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

    @app.get("/proof", tags=["health"], responses=PROBLEMS)
    def proof(request: Request, challenge: Annotated[str, Query(pattern=CHALLENGE)]) -> Proof:
        """Show that this server knows its tokens, before a client sends it one over TCP."""
        ends = (request.scope.get("server"), request.scope.get("client"))
        ports = tuple(0 if end is None else end[1] or 0 for end in ends)
        return Proof(**tokens.proofs(challenge, (ports[0], ports[1])))

    return app
