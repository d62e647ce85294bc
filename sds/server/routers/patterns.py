"""Access patterns found in traces."""

from fastapi import APIRouter

from sds.server.dependencies import READ, ServiceOf
from sds.server.reports import Patterns

router = APIRouter(prefix="/patterns", tags=["patterns"], dependencies=READ)


@router.get("")
def patterns(service: ServiceOf, file: str | None = None, dataset: str | None = None) -> Patterns:
    """Return access patterns, those that lose most time first."""
    return Patterns(patterns=service.patterns(file, dataset))
