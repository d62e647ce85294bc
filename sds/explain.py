"""What one read of a dataset touches, and what it is predicted to cost. Only metadata is read."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sds.chunks import chunk_extents
from sds.dataset import DatasetDescription, Storage, describe_open_dataset, get_dataset, open_hdf5
from sds.engine import Cache, FileState, ReadPlan, Strategy, StrategyPlan, compare_strategies
from sds.engine import plan_selection as plan_read
from sds.errors import LayoutError, LimitError
from sds.file_stripes import FoundStripes, StripesSource, find_stripes
from sds.geometry import (
    LOCAL_DISK_RAID,
    LOCAL_DISK_STRIPES,
    BlockFeatures,
    ChunkedLayout,
    ContiguousLayout,
    FeatureBounds,
    FileStripes,
    Hyperslab,
    OperationFeatures,
    OstLoads,
    ProcessReads,
    RaidLayout,
    StripeComponent,
    StripeLayout,
    block_features,
    check_order,
    count_chunks,
    extent_features,
    operation_loads,
    operation_of_extents,
    parse_selection,
    selection_from_index,
)
from sds.geometry.lustre import STRIPE_SIZE_UNIT_BYTES
from sds.recommender import CostModel, builtin_model

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    import h5py

    from sds.engine import IoParameters
    from sds.geometry import ArrayLayout

LIST_REGIONS = 64
"""File regions in one list I/O request (Ching 2002)."""

REPLICA_OFFSET_BYTES = 4096
"""Where a replica's data begins: on a page."""

MAX_LAYOUTS = 64
"""That are compared at once."""

_MAX_LANES_DRAWN = 1 << 16
_DRAWING_BUDGET_S = 2.0

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
class OstLoad:
    """What a read touches of one OST; ``disk_blocks`` are blocks on each of its data disks."""

    ost: int
    bytes_touched: int
    disk_blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Supposed:
    """A layout that no file need have; what is None is as it is.

    Attributes
    ----------
    order
        Axis order of a replica, as in `numpy.transpose`.
    chunks
        Chunk shape of a replica, in its own axes.
    stored_ratio
        Bytes of a chunk in the file by its elements' bytes: what compression leaves.
    stripe_size, stripe_count
        Lustre striping, bytes.
    raid_disks, raid_unit, raid_min_request
        RAID below an OST, sizes in bytes.
    """

    order: tuple[int, ...] | None = None
    chunks: tuple[int, ...] | None = None
    stored_ratio: float | None = None
    stripe_size: int | None = None
    stripe_count: int | None = None
    raid_disks: int | None = None
    raid_unit: int | None = None
    raid_min_request: int | None = None

    @property
    def is_replica(self) -> bool:
        """Whether the dataset is supposed to be stored anew."""
        return self.order is not None or self.chunks is not None

    @property
    def is_elsewhere(self) -> bool:
        """Whether other disks are supposed than those on which the file lies."""
        return any(
            value is not None
            for value in (
                self.stripe_size,
                self.stripe_count,
                self.raid_disks,
                self.raid_unit,
                self.raid_min_request,
            )
        )


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
    stripes, stripe_components, stripes_from
        Striping of the component that holds most of the file; of all components; and where that
        is known from, or ``supposed``.
    amplification
        Bytes touched by useful byte; None where nothing is selected.
    bounds
        (low, high) of what a time budget left open; None where exact.
    osts
        What is touched OST by OST, of those that may be; empty where that is not known or there
        are too many to tell.
    predicted_s, predicted_low_s, predicted_high_s
        Seconds by the model named ``model``, and the interval in which 19 of 20 reads lie; None
        where none fits.
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
    stripe_components: tuple[StripeComponent, ...]
    stripes_from: str
    raid: RaidLayout
    bytes_useful: int
    notes: tuple[str, ...]
    amplification: float | None = None
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
    osts: tuple[OstLoad, ...] = ()
    requests: Requests | None = None
    predicted_s: float | None = None
    predicted_low_s: float | None = None
    predicted_high_s: float | None = None
    model: str | None = None
    calibrated: bool = False
    plans: tuple[StrategyPlan, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Disks:
    """Striping and RAID of a file, and where the striping is known from."""

    stripes: FileStripes
    source: str
    raid: RaidLayout
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Touched:
    """Features of one read, or None with a note that says why."""

    features: BlockFeatures | None
    loads: OstLoads | None = None
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
    chunks: tuple[int, ...] | None = None,
    stored_ratio: float | None = None,
    configured: StripeLayout | None = None,
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
        Storage below the file, sizes in bytes. Striping that is left out is asked of the file
        system; else it is as ``configured``, else one OST. RAID that is left out is that of a
        local disk, and ``raid_min_request`` the unit.
    order, chunks
        Suppose a replica with this axis order, as in `numpy.transpose`, and chunks of this shape
        in its own axes; contiguous without.
    stored_ratio
        What compression leaves of a supposed chunk, for example 0.4.
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
        If the striping, the RAID, the order or the chunks cannot be.
    """
    supposed = Supposed(
        order=order,
        chunks=chunks,
        stored_ratio=stored_ratio,
        stripe_size=stripe_size,
        stripe_count=stripe_count,
        raid_disks=raid_disks,
        raid_unit=raid_unit,
        raid_min_request=raid_min_request,
    )
    return compare(
        file, dataset, selection, (supposed,),
        configured=configured, model_for=lambda _: model, parameters=parameters, budget_s=budget_s,
    )[0]  # fmt: skip


def compare(
    file: str | os.PathLike[str],
    dataset: str,
    selection: object,
    layouts: Sequence[Supposed],
    *,
    configured: StripeLayout | None = None,
    raid: RaidLayout = LOCAL_DISK_RAID,
    model_for: Callable[[Supposed], CostModel | None] = lambda _: None,
    parameters: IoParameters | None = None,
    budget_s: float | None = None,
) -> tuple[Explanation, ...]:
    """Return what reading a selection touches in each of several layouts; see `explain`.

    Parameters
    ----------
    layouts
        ``Supposed()`` is the dataset as it is.
    configured, raid
        Striping where the file system does not say, and RAID, as they are.
    model_for
        The model that predicts the time in a layout; None: the built-in one.
    parameters
        Hold for layouts on the file's own disks only.
    """
    if not 0 < len(layouts) <= MAX_LAYOUTS:
        message = f"{len(layouts)} layouts to compare; give 1 to {MAX_LAYOUTS}"
        raise LayoutError(message)
    found = find_stripes(file, configured)
    with open_hdf5(file) as handle:
        opened = get_dataset(handle, dataset)
        described = describe_open_dataset(opened, file)
        slab = _slab_of(selection, described.extent)
        return tuple(
            _explain_layout(
                opened,
                described,
                slab,
                supposed,
                disks=_disks_of(described, supposed, found, raid),
                model=model_for(supposed) or builtin_model(),
                parameters=None if supposed.is_elsewhere else parameters,
                budget_s=budget_s,
            )
            for supposed in layouts
        )


def best_of(explanations: Sequence[Explanation]) -> int | None:
    """Return which layout is predicted fastest; None where two cannot be told apart.

    They can where the whole interval of the fastest lies below the others' predictions.
    """
    known = [i for i, each in enumerate(explanations) if each.predicted_s is not None]
    if len(known) < 2 or len(known) < len(explanations):
        return None
    first, second = sorted(known, key=lambda i: explanations[i].predicted_s or math.inf)[:2]
    high_s = explanations[first].predicted_high_s
    next_s = explanations[second].predicted_s
    return first if high_s is not None and next_s is not None and high_s < next_s else None


def _explain_layout(
    opened: h5py.Dataset,
    described: DatasetDescription,
    slab: Hyperslab,
    supposed: Supposed,
    *,
    disks: _Disks,
    model: CostModel,
    parameters: IoParameters | None,
    budget_s: float | None,
) -> Explanation:
    layout = None
    if supposed.is_replica:
        layout = _supposed_layout(described, supposed)
        touched = _touched_as_replica(described, slab, layout, disks, budget_s)
    elif supposed.stored_ratio is not None:
        raise LayoutError("what compression leaves is of supposed chunks; give chunks as well")
    else:
        touched = _touched_as_stored(opened, described, slab, disks, budget_s)
    order = None if layout is None else layout.order
    extent = described.extent if order is None else tuple(described.extent[a] for a in order)
    bytes_useful = slab.n_elements * described.element_size_bytes
    explanation = Explanation(
        file=str(described.file),
        dataset=described.path,
        selection=str(slab),
        extent=extent,
        element_size_bytes=described.element_size_bytes,
        storage=_storage_of(described, layout),
        order=supposed.order,
        data_offset_bytes=described.data_offset_bytes if layout is None else REPLICA_OFFSET_BYTES,
        chunk_shape=_chunk_shape_of(described, layout),
        chunks_touched=touched.chunks,
        stripes=disks.stripes.prevailing(0, Path(described.file).stat().st_size),
        stripe_components=disks.stripes.components,
        stripes_from=disks.source,
        raid=disks.raid,
        bytes_useful=bytes_useful,
        notes=(*disks.notes, *(() if touched.note is None else (touched.note,))),
    )
    features = touched.features
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
        amplification=features.bytes_touched / bytes_useful if bytes_useful else None,
        osts_touched=features.osts_touched,
        disks_touched=features.disks_touched,
        exact=features.exact,
        bounds=features.bounds,
        osts=_ost_loads(touched.loads, disks),
        requests=Requests(multiple=features.runs, list=math.ceil(features.runs / LIST_REGIONS)),
        plans=()
        if isinstance(layout, ChunkedLayout)
        else _plans(described, slab, layout, parameters),
    )
    unpriced = _unpriced_filters(described, supposed)
    if unpriced is not None:
        return replace(explanation, notes=(*explanation.notes, unpriced))
    predicted = model.predict(features, processes_per_ost=1 / max(1, features.osts_touched))
    return replace(
        explanation,
        predicted_s=predicted.seconds,
        predicted_low_s=predicted.low,
        predicted_high_s=predicted.high,
        model=model.name,
        calibrated=model.calibrated,
    )


def _storage_of(described: DatasetDescription, layout: ArrayLayout | None) -> Storage:
    if layout is None:
        return described.storage
    return Storage.CHUNKED if isinstance(layout, ChunkedLayout) else Storage.CONTIGUOUS


def _chunk_shape_of(
    described: DatasetDescription, layout: ArrayLayout | None
) -> tuple[int, ...] | None:
    if layout is None:
        return described.chunk_shape
    return layout.chunk_shape if isinstance(layout, ChunkedLayout) else None


def _unpriced_filters(described: DatasetDescription, supposed: Supposed) -> str | None:
    """Return why no time is predicted; None where nothing stands against it."""
    if supposed.is_replica:
        if supposed.stored_ratio is None:
            return None
        return "no prediction: the models do not know what undoing the supposed filters costs"
    if not described.filters:
        return None
    names = ", ".join(f.name or str(f.code) for f in described.filters)
    return f"no prediction: the models do not know what undoing the filters costs ({names})"


def _disks_of(
    described: DatasetDescription, supposed: Supposed, found: FoundStripes, own_raid: RaidLayout
) -> _Disks:
    """Return the disks below a layout: what is supposed of them, else the file's own."""
    min_request = supposed.raid_min_request
    if supposed.raid_unit is None and min_request is None:
        min_request = own_raid.min_request_bytes
    raid = RaidLayout.of(
        unit_bytes=_given(supposed.raid_unit, own_raid.unit_bytes),
        data_disks=_given(supposed.raid_disks, own_raid.data_disks),
        min_request_bytes=min_request,
    )
    if supposed.stripe_size is None and supposed.stripe_count is None:
        remarks = []
        if found.problem is not None:
            remarks.append(f"striping is {found.source}: {found.problem}")
        if supposed.is_replica and len(found.stripes.components) > 1:
            remarks.append("the replica is supposed to be striped as the file is")
        return _Disks(
            stripes=found.stripes, source=str(found.source), raid=raid, notes=tuple(remarks)
        )
    own = LOCAL_DISK_STRIPES
    if found.source is not StripesSource.ASSUMED:
        own = found.stripes.prevailing(0, Path(described.file).stat().st_size)
    stripes = StripeLayout(
        stripe_size_bytes=_given(supposed.stripe_size, own.stripe_size_bytes),
        stripe_count=_given(supposed.stripe_count, own.stripe_count),
    )
    remarks = []
    if stripes.stripe_size_bytes % STRIPE_SIZE_UNIT_BYTES:
        remarks.append(
            f"no Lustre file has stripes of {stripes.stripe_size_bytes} bytes: "
            "they are multiples of 64 KiB"
        )
    return _Disks(
        stripes=FileStripes.of(stripes), source="supposed", raid=raid, notes=tuple(remarks)
    )


def _supposed_layout(described: DatasetDescription, supposed: Supposed) -> ArrayLayout:
    rank = len(described.extent)
    order = None if supposed.order is None else check_order(supposed.order, rank)
    if supposed.chunks is None:
        if supposed.stored_ratio is not None:
            raise LayoutError("what compression leaves is of supposed chunks; give chunks as well")
        return ContiguousLayout(
            element_size_bytes=described.element_size_bytes,
            data_offset_bytes=REPLICA_OFFSET_BYTES,
            order=order,
        )
    if len(supposed.chunks) != rank:
        message = f"chunks {supposed.chunks} of a dataset with {rank} axes; give one length each"
        raise LayoutError(message)
    stored_bytes = None
    if supposed.stored_ratio is not None:
        if not 0 < supposed.stored_ratio <= 100:
            message = f"compression leaves {supposed.stored_ratio}; give a ratio such as 0.4"
            raise LayoutError(message)
        whole = math.prod(supposed.chunks) * described.element_size_bytes
        stored_bytes = max(1, math.ceil(whole * supposed.stored_ratio))
    return ChunkedLayout(
        element_size_bytes=described.element_size_bytes,
        chunk_shape=supposed.chunks,
        data_offset_bytes=REPLICA_OFFSET_BYTES,
        order=order,
        stored_chunk_bytes=stored_bytes,
    )


def _touched_as_stored(
    dataset: h5py.Dataset,
    described: DatasetDescription,
    slab: Hyperslab,
    disks: _Disks,
    budget_s: float | None,
) -> _Touched:
    """Return what reading a selection touches as the dataset lies in its file."""
    if described.storage is Storage.CHUNKED:
        offsets, lengths = chunk_extents(dataset, slab)
        first = np.array([0, len(offsets)])
        return _Touched(
            features=extent_features(
                offsets, lengths, disks.stripes, disks.raid, budget_s=budget_s
            ),
            loads=_drawable(
                disks,
                lambda: operation_of_extents(
                    first, offsets, lengths, disks.stripes, disks.raid, budget_s=_DRAWING_BUDGET_S
                ),
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
    return _touched_in(described, slab, layout, disks, budget_s)


def _touched_as_replica(
    described: DatasetDescription,
    slab: Hyperslab,
    layout: ArrayLayout,
    disks: _Disks,
    budget_s: float | None,
) -> _Touched:
    """Return what reading a selection would touch in a supposed replica."""
    touched = _touched_in(described, slab, layout, disks, budget_s)
    if isinstance(layout, ChunkedLayout):
        stored = slab if layout.order is None else slab.permuted(layout.order)
        return replace(
            touched,
            chunks=count_chunks(stored, layout.chunk_shape),
            note="supposes a replica in these chunks, one after the other in C order, read whole",
        )
    return replace(
        touched, note="supposes a replica of this axis order, its data on a page boundary"
    )


def _touched_in(
    described: DatasetDescription,
    slab: Hyperslab,
    layout: ArrayLayout,
    disks: _Disks,
    budget_s: float | None,
) -> _Touched:
    reads = ProcessReads.of([slab])
    return _Touched(
        features=block_features(
            described.extent, slab, layout, disks.stripes, disks.raid, budget_s=budget_s
        ),
        loads=_drawable(
            disks,
            lambda: operation_loads(
                described.extent,
                reads,
                layout,
                disks.stripes,
                disks.raid,
                budget_s=_DRAWING_BUDGET_S,
            ),
        ),
    )


def _drawable(
    disks: _Disks, account: Callable[[], tuple[OperationFeatures, OstLoads]]
) -> OstLoads | None:
    """Return the account OST by OST; None where it is too long to be of use or takes too long."""
    n_osts = sum(c.stripes.stripe_count for c in disks.stripes.components)
    if n_osts * disks.raid.data_disks > _MAX_LANES_DRAWN:
        return None
    try:
        return account()[1]
    except LimitError:
        return None


def _ost_loads(loads: OstLoads | None, disks: _Disks) -> tuple[OstLoad, ...]:
    """Return an account of every OST that the file is striped over."""
    if loads is None:
        return ()
    touched = {ost: row for row, ost in enumerate(loads.ost.tolist())}
    # Components without names have the numbers behind those that are named.
    first = disks.stripes.components[0]
    if len(disks.stripes.components) == 1:
        osts = set(range(first.stripes.stripe_count)) if first.osts is None else set(first.osts)
    else:
        named = {ost for each in disks.stripes.components for ost in each.osts or ()}
        osts = named | {ost for ost in touched if ost > max(named, default=-1)}
    nothing = (0,) * loads.blocks.shape[1]
    return tuple(
        OstLoad(
            ost=ost,
            bytes_touched=int(loads.bytes_touched[touched[ost]]) if ost in touched else 0,
            disk_blocks=tuple(loads.blocks[touched[ost]].tolist()) if ost in touched else nothing,
        )
        for ost in sorted(osts)
    )


def _plans(
    described: DatasetDescription,
    slab: Hyperslab,
    supposed: ContiguousLayout | None,
    parameters: IoParameters | None,
) -> tuple[StrategyPlan, ...]:
    """Return what the strategies of the read engine would do; nothing for chunks."""
    if supposed is None and described.storage is not Storage.CONTIGUOUS:
        return ()
    layout = supposed or ContiguousLayout(
        element_size_bytes=described.element_size_bytes,
        data_offset_bytes=described.data_offset_bytes or 0,
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
