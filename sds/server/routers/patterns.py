"""Access patterns found in traces."""

from fastapi import APIRouter

from sds.server.dependencies import About, FileName
from sds.server.reports import Patterns
from sds.server.service import Service

router = APIRouter(prefix="/patterns", tags=["patterns"])


@router.get("")
def patterns(about: About, file: FileName = None, dataset: str | None = None) -> Patterns:
    """Return access patterns, those that lose most time first."""
    return Patterns(patterns=about(Service.patterns, file, dataset))
