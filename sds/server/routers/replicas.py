"""Replicas: listed and removed here, built and verified by jobs."""

from fastapi import APIRouter

from sds.catalog.records import Id, ReplicaRecord
from sds.server.dependencies import About, FileName, ServiceOf
from sds.server.reports import Replicas
from sds.server.service import Service

router = APIRouter(prefix="/replicas", tags=["replicas"])


@router.get("")
def replicas(
    about: About,
    file: FileName = None,
    dataset: str | None = None,
    all_states: bool = False,  # noqa: FBT001, FBT002  (a query parameter has a name)
) -> Replicas:
    """Return replicas, oldest first; those that are gone only with `all_states`."""
    return Replicas(replicas=about(Service.replicas, file, dataset, all_states=all_states))


@router.get("/{replica_id}")
def replica(service: ServiceOf, replica_id: Id) -> ReplicaRecord:
    """Return one replica."""
    return service.replica(replica_id)


@router.delete("/{replica_id}")
def remove(service: ServiceOf, replica_id: Id) -> ReplicaRecord:
    """Stop serving a replica and delete its file."""
    return service.remove(replica_id)
