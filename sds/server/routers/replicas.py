"""Replicas: listed and removed here, built and verified by jobs."""

from typing import Annotated

from fastapi import APIRouter, Query

from sds.catalog.records import ReplicaRecord
from sds.server.dependencies import OPERATE, READ, ServiceOf
from sds.server.reports import PAGE_LENGTH, Id, Replicas

router = APIRouter(prefix="/replicas", tags=["replicas"])


@router.get("", dependencies=READ)
def replicas(
    service: ServiceOf,
    *,
    file: str | None = None,
    dataset: str | None = None,
    path: str | None = None,
    all_states: bool = False,
    after: Annotated[int, Query(ge=0, le=2**63 - 1)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = PAGE_LENGTH,
) -> Replicas:
    """Return a page of replicas, oldest first; those that are gone only with `all_states`.

    `path` names a replica file. The next page begins `after` what this one says is `next`.
    """
    return service.replica_page(
        file, dataset, path=path, all_states=all_states, after=after, limit=limit
    )


@router.get("/{replica_id}", dependencies=READ)
def replica(service: ServiceOf, replica_id: Id) -> ReplicaRecord:
    """Return one replica."""
    return service.replica(replica_id)


@router.delete("/{replica_id}", dependencies=OPERATE)
def remove(service: ServiceOf, replica_id: Id) -> ReplicaRecord:
    """Stop serving a replica and delete its file."""
    return service.remove(replica_id)
