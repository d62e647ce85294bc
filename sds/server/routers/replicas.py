"""Replicas: listed and removed here, built and verified by jobs."""

from fastapi import APIRouter

from sds.catalog.records import ReplicaRecord
from sds.server.dependencies import OPERATE, READ, ServiceOf
from sds.server.reports import Id, Replicas

router = APIRouter(prefix="/replicas", tags=["replicas"])


@router.get("", dependencies=READ)
def replicas(
    service: ServiceOf,
    file: str | None = None,
    dataset: str | None = None,
    all_states: bool = False,  # noqa: FBT001, FBT002  (a query parameter has a name)
) -> Replicas:
    """Return replicas, oldest first; those that are gone only with `all_states`."""
    return Replicas(replicas=service.replicas(file, dataset, all_states=all_states))


@router.get("/{replica_id}", dependencies=READ)
def replica(service: ServiceOf, replica_id: Id) -> ReplicaRecord:
    """Return one replica."""
    return service.replica(replica_id)


@router.delete("/{replica_id}", dependencies=OPERATE)
def remove(service: ServiceOf, replica_id: Id) -> ReplicaRecord:
    """Stop serving a replica and delete its file."""
    return service.remove(replica_id)
