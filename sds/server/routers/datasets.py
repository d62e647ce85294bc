"""Datasets that were read, advised on or reorganized."""

from fastapi import APIRouter

from sds.server.dependencies import About, FileName
from sds.server.reports import Datasets
from sds.server.service import Service

router = APIRouter(prefix="/datasets", tags=["datasets"])


@router.get("")
def datasets(about: About, file: FileName = None) -> Datasets:
    """Return datasets, those that lose most time first; of one file, or all."""
    return Datasets(datasets=about(Service.datasets, file))
