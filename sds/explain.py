"""What one read of a dataset touches, and what it is predicted to cost. Only metadata is read."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sds.chunks import chunk_extents
from sds.dataset import DatasetDescription, Storage, describe_open_dataset, get_dataset, open_hdf5
from sds.engine import Cache, FileState, ReadPlan, Strategy, StrategyPlan, compare_strategies
from sds.engine import plan_selection as plan_read
from sds.geometry import (
    LOCAL_DISK_RAID,
    LOCAL_DISK_STRIPES,
    BlockFeatures,
    ContiguousLayout,
    FeatureBounds,
    FileLayout,
    Hyperslab,
    RaidLayout,
    StripeLayout,
    block_features,
    check_order,
    extent_features,
    parse_selection,
    selection_from_index,
)
from sds.recommender import CostModel, builtin_model

if TYPE_CHECKING:
    import os

    import h5py

    from sds.engine import IoParameters

LIST_REGIONS = 64
"""File regions in one list I/O request (Ching 2002)."""

REPLICA_OFFSET_BYTES = 4096
"""Where a replica's data begins: on a page."""

_NO_FEATURES = {
    Storage.COMPACT: "stored compact: the elements come with the object header, in one request",
    Storage.VIRTUAL: "a virtual dataset: explain the datasets that it is made of instead",
    Storage.EXTERNAL: "stored in external raw files, whose bytes are not in this file",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Requests for one read by each strategy.

    ``multiple``: one per run. ``list``: one per `LIST_REGIONS` runs.
    """

    multiple: int
    list: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What one read touches, as docs/reference/semantics.md defines it.

    Attributes
    ----------
    selection
        The selection as slices, in the axis order of the dataset.
    extent, data_offset_bytes, order
        As stored; ``order`` is None unless another axis order was supposed, and where it was,
        stored axis i is axis ``order[i]`` of the dataset.
    runs ... disks_touched
        None where the storage says nothing about them; ``notes`` then says why. Of a chunked
        dataset, of the chunks touched, which are read whole; ``bytes_useful`` is what was selected.
    bounds
        (low, high) of what a time budget left open; None where exact.
    predicted_s
        Seconds by the model named ``model``; None where none fits.
    calibrated
        Whether that model was fitted to the file system.
    plans
        What each strategy of the read engine would do, with data that the page cache holds (loaded
        from a new mapping, where that is fastest) and that it does not; empty where the elements do
        not lie in the file one after another. docs/explanation/reads.md.
    """

    file: str
    dataset: str
    selection: str
    extent: tuple[int, ...]
    element_size_bytes: int
    storage: Storage
    order: tuple[int, ...] | None
    data_offset_bytes: int | None
    chunk_shape: tuple[int, ...] | None
    stripes: StripeLayout
    raid: RaidLayout
    bytes_useful: int
    notes: tuple[str, ...]
    runs: int | None = None
    block_depth: int | None = None
    block_gap_count: int | None = None
    block_gap_distance: int | None = None
    block_gap_paper: int | None = None
    bytes_touched: int | None = None
    osts_touched: int | None = None
    disks_touched: int | None = None
    chunks_touched: int | None = None
    exact: bool | None = None
    bounds: FeatureBounds | None = None
    requests: Requests | None = None
    predicted_s: float | None = None
    model: str | None = None
    calibrated: bool = False
    plans: tuple[StrategyPlan, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Touched:
    """Features of one read, or None with a note that says why."""

    features: BlockFeatures | None
    chunks: int | None = None
    note: str | None = None


def explain(
    file: str | os.PathLike[str],
    dataset: str,
    selection: object,
    *,
    stripe_size: int | None = None,
    stripe_count: int | None = None,
    raid_disks: int | None = None,
    raid_unit: int | None = None,
    raid_min_request: int | None = None,
    order: tuple[int, ...] | None = None,
    model: CostModel | None = None,
    parameters: IoParameters | None = None,
    budget_s: float | None = None,
) -> Explanation:
    """Return what reading a selection of a dataset touches.

    Parameters
    ----------
    file, dataset
        An HDF5 file and the path of a dataset in it.
    selection
        An index expression such as ``np.s_[:, 3, ::2]``, or the text of one.
    stripe_size, stripe_count, raid_disks, raid_unit, raid_min_request
        Storage below the file, sizes in bytes; what is left out is that of a local disk, and
        ``raid_min_request`` the unit.
    order
        Suppose a contiguous replica with this axis order, as in `numpy.transpose`.
    model
        Predicts the time; the built-in one where None.
    parameters
        Costs of requests, by which the read engine's strategies are predicted; the built-in ones
        where None.
    budget_s
        Seconds after which bounds are given instead of exact values; None: no limit.

    Raises
    ------
    NotHdf5Error, FileMissingError, DatasetNotFoundError
        And the other errors of `sds.dataset.describe_dataset`.
    SelectionError
        If the selection cannot be read or reaches outside the dataset.
    LayoutError
        If the striping, the RAID or the order cannot be.
    """
    stripes = StripeLayout(
        stripe_size_bytes=_given(stripe_size, LOCAL_DISK_STRIPES.stripe_size_bytes),
        stripe_count=_given(stripe_count, LOCAL_DISK_STRIPES.stripe_count),
    )
    raid = RaidLayout.of(
        unit_bytes=_given(raid_unit, LOCAL_DISK_RAID.unit_bytes),
        data_disks=_given(raid_disks, LOCAL_DISK_RAID.data_disks),
        min_request_bytes=raid_min_request,
    )
    storage = FileLayout(stripes=stripes, raid=raid)
    with open_hdf5(file) as handle:
        found = get_dataset(handle, dataset)
        described = describe_open_dataset(found, file)
        slab = _slab_of(selection, described.extent)
        if order is None:
            touched = _touched_as_stored(found, described, slab, storage, budget_s)
        else:
            order = check_order(order, len(described.extent))
            touched = _touched_as_replica(described, slab, order, storage, budget_s)
    features = touched.features
    notes = () if touched.note is None else (touched.note,)
    replica = order is not None
    explanation = Explanation(
        file=str(described.file),
        dataset=described.path,
        selection=str(slab),
        extent=described.extent if order is None else tuple(described.extent[a] for a in order),
        element_size_bytes=described.element_size_bytes,
        storage=Storage.CONTIGUOUS if replica else described.storage,
        order=order,
        data_offset_bytes=REPLICA_OFFSET_BYTES if replica else described.data_offset_bytes,
        chunk_shape=None if replica else described.chunk_shape,
        chunks_touched=touched.chunks,
        stripes=stripes,
        raid=raid,
        bytes_useful=slab.n_elements * described.element_size_bytes,
        notes=notes,
    )
    if features is None:
        return explanation
    explanation = replace(
        explanation,
        runs=features.runs,
        block_depth=features.block_depth,
        block_gap_count=features.block_gap_count,
        block_gap_distance=features.block_gap_distance,
        block_gap_paper=features.block_gap_paper,
        bytes_touched=features.bytes_touched,
        osts_touched=features.osts_touched,
        disks_touched=features.disks_touched,
        exact=features.exact,
        bounds=features.bounds,
        requests=Requests(multiple=features.runs, list=math.ceil(features.runs / LIST_REGIONS)),
        plans=_plans(described, slab, order, parameters),
    )
    if described.filters and not replica:
        names = ", ".join(f.name or str(f.code) for f in described.filters)
        note = f"no prediction: the models do not know what undoing the filters costs ({names})"
        return replace(explanation, notes=(*notes, note))
    predictor = builtin_model() if model is None else model
    return replace(
        explanation,
        predicted_s=predictor.seconds(features),
        model=predictor.name,
        calibrated=predictor.calibrated,
    )


def _touched_as_stored(
    dataset: h5py.Dataset,
    described: DatasetDescription,
    slab: Hyperslab,
    storage: FileLayout,
    budget_s: float | None,
) -> _Touched:
    """Return what reading a selection touches as the dataset lies in its file."""
    if described.storage is Storage.CHUNKED:
        offsets, lengths = chunk_extents(dataset, slab)
        return _Touched(
            features=extent_features(
                offsets, lengths, storage.stripes, storage.raid, budget_s=budget_s
            ),
            chunks=len(offsets),
            note="stored in chunks, which are read whole: the features are those of the chunks",
        )
    if described.storage is not Storage.CONTIGUOUS:
        return _Touched(features=None, note=_NO_FEATURES[described.storage])
    if described.data_offset_bytes is None:
        return _Touched(features=None, note="nothing has been written yet: nothing is read")
    layout = ContiguousLayout(
        element_size_bytes=described.element_size_bytes,
        data_offset_bytes=described.data_offset_bytes,
    )
    features = block_features(
        described.extent, slab, layout, storage.stripes, storage.raid, budget_s=budget_s
    )
    return _Touched(features=features)


def _touched_as_replica(
    described: DatasetDescription,
    slab: Hyperslab,
    order: tuple[int, ...],
    storage: FileLayout,
    budget_s: float | None,
) -> _Touched:
    """Return what reading a selection would touch in a replica of this axis order."""
    layout = ContiguousLayout(
        element_size_bytes=described.element_size_bytes,
        data_offset_bytes=REPLICA_OFFSET_BYTES,
        order=order,
    )
    return _Touched(
        features=block_features(
            described.extent, slab, layout, storage.stripes, storage.raid, budget_s=budget_s
        ),
        note="supposes a replica of this axis order, its data on a page boundary",
    )


def _plans(
    described: DatasetDescription,
    slab: Hyperslab,
    order: tuple[int, ...] | None,
    parameters: IoParameters | None,
) -> tuple[StrategyPlan, ...]:
    """Return what the strategies of the read engine would do; nothing for chunks."""
    if order is None and described.storage is not Storage.CONTIGUOUS:
        return ()
    offset = described.data_offset_bytes if order is None else REPLICA_OFFSET_BYTES
    layout = ContiguousLayout(
        element_size_bytes=described.element_size_bytes,
        data_offset_bytes=offset or 0,
        order=order,
    )

    def plan(strategy: Strategy, cache: Cache) -> ReadPlan:
        state = FileState(cache=cache)
        return plan_read(
            described.extent, slab, layout, strategy=strategy, state=state, parameters=parameters
        )

    return compare_strategies(plan)


def _given(value: int | None, default: int) -> int:
    return default if value is None else value


def _slab_of(selection: object, extent: tuple[int, ...]) -> Hyperslab:
    if isinstance(selection, Hyperslab):
        selection.check_within(extent)
        return selection
    if isinstance(selection, str):
        return parse_selection(selection, extent)
    return selection_from_index(selection, extent)[0]
