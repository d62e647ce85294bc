"""Replicas: listed and removed here, built and verified by jobs."""

from typing import Annotated

from fastapi import APIRouter, Query

from sds.catalog.records import Id, ReplicaRecord
from sds.server.dependencies import About, FileName, ServiceOf
from sds.server.reports import PAGE_LENGTH, Replicas
from sds.server.service import Service

router = APIRouter(prefix="/replicas", tags=["replicas"])


@router.get("")
def replicas(
    about: About,
    *,
    file: FileName = None,
    dataset: str | None = None,
    path: str | None = None,
    all_states: bool = False,
    after: Annotated[int, Query(ge=0, le=2**63 - 1)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = PAGE_LENGTH,
) -> Replicas:
    """Return a page of replicas, oldest first; those that are gone only with `all_states`.

    `path` names a replica file. The next page begins `after` what this one says is `next`.
    """
    return about(
        Service.replica_page,
        file,
        dataset,
        path=path,
        all_states=all_states,
        after=after,
        limit=limit,
    )


@router.get("/{replica_id}")
def replica(service: ServiceOf, replica_id: Id) -> ReplicaRecord:
    """Return one replica."""
    return service.replica(replica_id)


@router.delete("/{replica_id}")
def remove(service: ServiceOf, replica_id: Id) -> ReplicaRecord:
    """Stop serving a replica and delete its file."""
    return service.remove(replica_id)
