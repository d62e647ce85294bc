"""Datasets of a file, how they are stored, and what one plane across each axis costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import h5py

from sds.analyzer import ReadTimes
from sds.errors import SdsError
from sds.explain.explanation import ServingReplica, compare
from sds.explain.hypothetical_layout import HypotheticalLayout
from sds.geometry.storage_layout import MIB
from sds.hdf5.dataset import Storage, describe_open_dataset, get_dataset, open_hdf5
from sds.hdf5.dimension_names import dimension_names
from sds.organizer.replica_file.filters import filter_name

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from sds.analyzer import AccessPattern
    from sds.engine import IoParameters
    from sds.explain.explanation import Explanation
    from sds.geometry import RaidLayout, StripeLayout
    from sds.hdf5.dataset import DatasetDescription
    from sds.home import Home
    from sds.recommender.models.cost_model import CostModel

MOST_DATASETS = 20
"""Datasets of which an overview tells, the largest ones."""
# Smaller datasets are read whole at once.
_LEAST_BYTES = MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneCost:
    """Cost of reading one plane: all elements with one index of an axis, in its middle.

    Attributes
    ----------
    axis, names
        The axis that the plane fixes, and its names, if it has any.
    bytes_useful, bytes_touched
        Of the plane; of the runs or whole chunks that hold it, None where that is not known.
    pieces
        Runs of a contiguous dataset, chunks of a chunked one.
    measured
        Times of traced reads of such planes, as of `sds.explain.explanation.Explanation`.
    predicted_s, predicted_warm_s
        From the original, from cold cache and from memory; None where no model fits.
    served_by
        The replica that would serve it instead; None: none.
    notes
        What is not known, and why.
    """

    axis: int
    names: tuple[str, ...]
    bytes_useful: int
    bytes_touched: int | None
    pieces: int | None
    measured: tuple[ReadTimes, ...]
    predicted_s: float | None
    predicted_warm_s: float | None
    served_by: ServingReplica | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetOverview:
    """A dataset, and the planes across its axes.

    Attributes
    ----------
    size_bytes, stored_bytes
        Of all elements; and what the file spends on them.
    planes
        None of datasets under 1 MiB, or with one axis.
    calibrated
        Whether times are of a model that was fitted to the file system.
    """

    path: str
    extent: tuple[int, ...]
    dtype: str
    storage: Storage
    chunk_shape: tuple[int, ...] | None
    filters: tuple[str, ...]
    size_bytes: int
    stored_bytes: int
    planes: tuple[PlaneCost, ...]
    calibrated: bool


def overview(
    file: str | os.PathLike[str],
    dataset: str | None,
    *,
    configured: StripeLayout | None,
    raid: RaidLayout,
    models: tuple[CostModel, CostModel] | None,
    parameters: IoParameters | None,
    home: Home | None,
    traced: Mapping[str, Sequence[AccessPattern]] | None = None,
) -> tuple[tuple[DatasetOverview, ...], int]:
    """Return the largest datasets of a file, or the one named, and how many are left out.

    Parameters and errors as of :func:`sds.explain.explanation.compare`.
    """
    with open_hdf5(file) as handle:
        paths = _paths(handle) if dataset is None else [dataset]
        described: list[tuple[DatasetDescription, tuple[tuple[str, ...], ...]]] = []
        for path in paths:
            opened = get_dataset(handle, path)
            try:
                described.append((describe_open_dataset(opened, file), dimension_names(opened)))
            except SdsError:
                if dataset is not None:
                    raise
    described.sort(key=lambda found: -found[0].size_bytes)

    def planes(found: DatasetDescription, names: tuple[tuple[str, ...], ...]) -> list[Explanation]:
        if len(found.extent) < 2 or found.size_bytes < _LEAST_BYTES or not found.is_fixed_size:
            return []
        explained: list[Explanation] = []
        for axis, length in enumerate(found.extent):
            middle = [slice(None)] * len(names)
            selection = (*middle[:axis], length // 2, *middle[axis + 1 :])
            explained += compare(
                file,
                found.path,
                selection,
                [HypotheticalLayout()],
                configured=configured,
                raid=raid,
                models=models,
                parameters=parameters,
                home=home,
                traced=traced,
            )
        return explained

    shown = []
    for found, names in described[:MOST_DATASETS]:
        explained = planes(found, names)
        shown.append(
            DatasetOverview(
                path=found.path,
                extent=found.extent,
                dtype=str(found.dtype),
                storage=found.storage,
                chunk_shape=found.chunk_shape,
                filters=tuple(filter_name(step) for step in found.filters),
                size_bytes=found.size_bytes,
                stored_bytes=found.stored_bytes,
                planes=tuple(
                    PlaneCost(
                        axis=axis,
                        names=names[axis],
                        bytes_useful=each.bytes_useful,
                        bytes_touched=each.bytes_touched,
                        pieces=each.runs if each.chunks_touched is None else each.chunks_touched,
                        measured=each.measured,
                        predicted_s=each.predicted_s,
                        predicted_warm_s=each.predicted_warm_s,
                        served_by=each.served_by,
                        notes=each.notes,
                    )
                    for axis, each in enumerate(explained)
                ),
                calibrated=any(each.calibrated for each in explained),
            )
        )
    return tuple(shown), len(described) - len(shown)


def _paths(handle: h5py.File) -> list[str]:
    """Return the paths of all datasets of a file, each once."""
    paths: list[str] = []

    def collect(_: str, member: h5py.Group | h5py.Dataset) -> None:
        if isinstance(member, h5py.Dataset):
            paths.append(str(member.name))

    handle.visititems(collect)
    return paths
