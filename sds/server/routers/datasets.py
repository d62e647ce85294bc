"""Datasets that were read, advised on or reorganized."""

from fastapi import APIRouter

from sds.server.dependencies import READ, ServiceOf
from sds.server.reports import Datasets

router = APIRouter(prefix="/datasets", tags=["datasets"], dependencies=READ)


@router.get("")
def datasets(service: ServiceOf, file: str | None = None) -> Datasets:
    """Return datasets, those that lose most time first; of one file, or all."""
    return Datasets(datasets=service.datasets(file))
