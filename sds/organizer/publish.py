"""From replicas to the redirect table that lets programs read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sds.dataset import describe_open_dataset, get_dataset, open_hdf5
from sds.errors import DatasetNotFoundError, SdsError
from sds.identity import identity_of
from sds.redirect.tables import RedirectTable, TableCandidate, TableDataset, TableModel
from sds.redirect.type_digest import type_crc32c

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import h5py

    from sds.geometry import RaidLayout, StripeLayout
    from sds.organizer.replica import Replica
    from sds.recommender import CostModel


def build_table(
    source: Path,
    replicas: Sequence[tuple[int, Replica]],
    *,
    models: tuple[CostModel, CostModel],
    stripes: StripeLayout,
    raid: RaidLayout,
) -> RedirectTable:
    """Return the redirect table of a source with all of its replicas.

    Left out is what may not be served: a replica of an earlier state of the source, one whose file
    is not, or no longer, the one that was verified, one of another type, and one of a type that is
    never redirected. A dataset without a replica is not in the table.

    Parameters
    ----------
    source
        Canonical path.
    replicas
        Number in the catalog, and description.
    models
        Of a read from the original and of one from a replica
        (:func:`sds.recommender.models_for_table`).
    stripes, raid
        Of the file systems of both.

    Raises
    ------
    FileMissingError, PermissionDeniedError, NotHdf5Error, ...
        If the source cannot be read.
    """
    identity = identity_of(source)
    current = [
        (number, replica)
        for number, replica in replicas
        if replica.source_path == source
        and replica.source_identity == identity
        and _is_as_verified(replica)
    ]
    datasets: list[TableDataset] = []
    with open_hdf5(source) as handle:
        for path in dict.fromkeys(replica.dataset_path for _, replica in current):
            found = _find(handle, path)
            if found is None:
                continue
            described = describe_open_dataset(found, source)
            file_type = found.id.get_type()
            candidates = tuple(
                TableCandidate(
                    replica_id=number,
                    path=replica.path,
                    identity=replica.identity,
                    data_offset_bytes=replica.data_offset_bytes,
                    metadata_crc32c=replica.metadata_crc32c,
                    order=replica.order,
                    stripes=stripes,
                    raid=raid,
                    model=_table_model(models[1]),
                )
                for number, replica in current
                if replica.dataset_path == path
                and replica.extent == described.extent
                and replica.type_crc32c is not None
                and replica.type_crc32c == type_crc32c(file_type)
            )
            if not candidates:
                continue
            datasets.append(
                TableDataset(
                    path=path,
                    extent=described.extent,
                    element_size_bytes=described.element_size_bytes,
                    type_crc32c=type_crc32c(file_type),
                    type_class=int(file_type.get_class()),
                    data_offset_bytes=described.data_offset_bytes,
                    stripes=stripes,
                    raid=raid,
                    model=_table_model(models[0]),
                    candidates=candidates,
                )
            )
    return RedirectTable(source_path=source, source_identity=identity, datasets=tuple(datasets))


def _is_as_verified(replica: Replica) -> bool:
    """Return whether the file of a replica is still the one that was described."""
    try:
        return identity_of(replica.path) == replica.identity
    except SdsError:
        return False


def _find(handle: h5py.File, path: str) -> h5py.Dataset | None:
    """Return a dataset of the source; None where it is gone."""
    try:
        return get_dataset(handle, path)
    except DatasetNotFoundError:
        return None


def _table_model(model: CostModel) -> TableModel:
    """Return the part of a cost model that a table carries."""
    return TableModel(
        kind=model.kind.code,
        gap=model.gap.code,
        calibrated=model.calibrated,
        coefficients=model.coefficients,
        floor_s=model.floor_s,
    )
