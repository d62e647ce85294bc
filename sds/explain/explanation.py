"""Footprint and predicted cost of one read of a dataset.

Only metadata is read, and of filtered chunks a few, to know how long undoing the filters takes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sds.analyzer.read_times import ReadTimes, joined_times
from sds.client.replica_reader import serving_candidate
from sds.engine import Cache, FileState, ReadPlan, Strategy, StrategyPlan, compare_strategies
from sds.engine import plan_selection as plan_read
from sds.errors import LayoutError, UnsupportedError
from sds.explain.hypothetical_layout import Disks, HypotheticalLayout, array_layout_of, disks_of
from sds.explain.touched_extents import (
    OstLoad,
    footprint_as_replica,
    footprint_as_stored,
    ost_loads,
)
from sds.geometry import (
    LOCAL_DISK_RAID,
    ChunkedLayout,
    ContiguousLayout,
    FeatureBounds,
    Hyperslab,
    RaidLayout,
    ReplicaLayout,
    StripeComponent,
    StripeLayout,
    parse_selection,
    selection_from_index,
)
from sds.hdf5.chunk_extents import decode_seconds_per_byte
from sds.hdf5.dataset import (
    DatasetDescription,
    Storage,
    describe_open_dataset,
    get_dataset,
    open_hdf5,
)
from sds.hdf5.striping import find_stripes
from sds.recommender.candidates.cost_matrix import read_costs
from sds.recommender.models.cost_model import builtin_models
from sds.recommender.models.read_cost import StoredArray
from sds.recommender.portfolio.confidence import probability_faster

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import h5py

    from sds.analyzer import AccessPattern
    from sds.engine import IoParameters
    from sds.geometry import ArrayLayout
    from sds.home import Home
    from sds.recommender.models.cost_model import CostModel

LIST_REGIONS = 64
"""File regions in one list I/O request (Ching 2002)."""

MAX_LAYOUTS = 64
"""Layouts compared at once, at most."""

_CONFIDENCE = 0.95
_LEAST_SECONDS = 1e-12
_ELSEWHERE = (
    "its elements are of variable length, or references: what they hold lies elsewhere in the "
    "file, and is not counted"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Requests for one read by each strategy.

    ``multiple``: one per run. ``list``: one per `LIST_REGIONS` runs.
    """

    multiple: int
    list: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingReplica:
    """A replica that serves a read: its number, its file, and how it is stored."""

    replica_id: int
    path: str
    order: tuple[int, ...]
    chunk_shape: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Footprint of one read, as docs/reference/semantics.md defines it, and its predicted time.

    Attributes
    ----------
    selection
        The selection as slices, in the axis order of the dataset.
    extent, data_offset_bytes, order
        As stored; ``order`` is None unless another axis order is hypothetical, and where it is,
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
    measured
        Times of traced reads of this kind, apart for each of what served them: as many indices of
        each axis up to a power of two, wherever they begin. Of the dataset as it is.
    predicted_s, predicted_low_s, predicted_high_s
        Seconds from cold cache by the model named ``model``, and the interval in which 19 of 20
        reads lie; None where none fits.
    predicted_warm_s
        Seconds where all that is read is in memory; None where that is not known, as of chunks.
    ratio_error
        Standard deviation of the logarithm of the ratio of two such predictions.
    calibrated
        Whether that model was fitted to the file system.
    serves
        Whether reads would come from this layout, beside the dataset as it is; None where no time
        is predicted.
    served_by
        The replica that serves such a read of the dataset as it is, with cold caches; None: the
        original does.
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
    predicted_warm_s: float | None = None
    measured: tuple[ReadTimes, ...] = ()
    ratio_error: float | None = None
    model: str | None = None
    calibrated: bool = False
    serves: bool | None = None
    served_by: ServingReplica | None = None
    plans: tuple[StrategyPlan, ...] = ()


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
    models: tuple[CostModel, CostModel] | None = None,
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
        Storage below the file, sizes in bytes. Striping that is left out is that of the file
        system; else it is as ``configured``, else one OST. RAID that is left out is that of a
        local disk, and ``raid_min_request`` the unit.
    order, chunks
        Suppose a replica with this axis order, as in `numpy.transpose`, and chunks of this shape
        in its own axes; contiguous without.
    stored_ratio
        What compression leaves of a hypothetical chunk, for example 0.4.
    models
        Of the original through HDF5 and of a replica through the engine, which predict the time;
        the built-in ones where None.
    parameters
        Costs of requests, by which the read engine's strategies are predicted; the built-in ones
        where None.
    budget_s
        Seconds after which bounds are given instead of exact values; None: no limit.

    Raises
    ------
    NotHdf5Error, FileMissingError, DatasetNotFoundError
        And the other errors of `sds.hdf5.dataset.describe_dataset`.
    SelectionError
        If the selection cannot be read or reaches outside the dataset.
    LayoutError
        If the striping, the RAID, the order or the chunks cannot be.
    """
    hypothetical = HypotheticalLayout(
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
        file, dataset, selection, (hypothetical,),
        configured=configured, models=models, parameters=parameters, budget_s=budget_s,
    )[0]  # fmt: skip


def compare(
    file: str | os.PathLike[str],
    dataset: str,
    selection: object,
    layouts: Sequence[HypotheticalLayout],
    *,
    configured: StripeLayout | None = None,
    raid: RaidLayout = LOCAL_DISK_RAID,
    models: tuple[CostModel, CostModel] | None = None,
    parameters: IoParameters | None = None,
    home: Home | None = None,
    traced: Mapping[str, Sequence[AccessPattern]] | None = None,
    budget_s: float | None = None,
) -> tuple[Explanation, ...]:
    """Return what reading a selection touches in each of several layouts; see `explain`.

    Parameters
    ----------
    layouts
        ``HypotheticalLayout()`` is the dataset as it is.
    configured, raid
        Striping where the file system does not say, and RAID, as they are.
    models
        As of `explain`, on the file's own disks; on others the built-in ones predict.
    parameters
        Hold for layouts on the file's own disks only.
    home
        Whose replicas may serve; None: nobody's.
    traced
        Patterns of traced reads, by the path of the dataset.
    """
    if not 0 < len(layouts) <= MAX_LAYOUTS:
        message = f"{len(layouts)} layouts to compare; give 1 to {MAX_LAYOUTS}"
        raise LayoutError(message)
    found = find_stripes(file, configured)
    with open_hdf5(file) as handle:
        opened = get_dataset(handle, dataset)
        described = describe_open_dataset(opened, file)
        slab = _slab_of(selection, described.extent)
        measured = _measured(described, slab, traced or {})
        decode_s_per_byte = _decode_s_per_byte(opened)
        explained = [
            _explain_layout(
                opened,
                described,
                slab,
                hypothetical,
                disks=disks_of(described, hypothetical, found, raid),
                models=builtin_models() if models is None or hypothetical.is_elsewhere else models,
                parameters=None if hypothetical.is_elsewhere else parameters,
                decode_s_per_byte=decode_s_per_byte,
                served_by=(
                    _serving_replica(home, opened, described, slab)
                    if home is not None and hypothetical == HypotheticalLayout()
                    else None
                ),
                budget_s=budget_s,
            )
            for hypothetical in layouts
        ]
        return tuple(
            replace(each, measured=measured) if layout == HypotheticalLayout() else each
            for each, layout in zip(explained, layouts, strict=True)
        )


def _measured(
    described: DatasetDescription, slab: Hyperslab, traced: Mapping[str, Sequence[AccessPattern]]
) -> tuple[ReadTimes, ...]:
    """Return the times of traced reads of the kind that a selection is of."""
    return joined_times(
        times
        for pattern in traced.get(described.path, ())
        if pattern.extent == described.extent and pattern.is_of_kind(slab)
        for times in pattern.times
    )


def _serving_replica(
    home: Home, opened: h5py.Dataset, described: DatasetDescription, slab: Hyperslab
) -> ServingReplica | None:
    found = serving_candidate(home, opened, described, slab) if slab.n_elements else None
    if found is None:
        return None
    return ServingReplica(
        replica_id=found.replica_id,
        path=str(found.path),
        order=found.order,
        chunk_shape=found.chunk_shape,
    )


def best_of(explanations: Sequence[Explanation]) -> int | None:
    """Return `fastest_of`; None also of a replica that would not serve."""
    first = fastest_of(explanations)
    return first if first is not None and explanations[first].serves else None


def fastest_of(explanations: Sequence[Explanation]) -> int | None:
    """Return which layout is predicted fastest; None where its lead on the next is uncertain.

    The lead is certain where the layout is faster than the next in 19 of 20 cases, by the error
    that the model makes of ratios; of layouts without a prediction nothing is known, and calibrated
    predictions are not compared with built-in ones.
    """
    times = [each.predicted_s for each in explanations]
    origins = {each.calibrated for each in explanations}
    if len(times) < 2 or None in times or len(origins) > 1:
        return None
    first, second = sorted(range(len(times)), key=lambda i: times[i] or 0.0)[:2]
    ratio_error = max(explanations[i].ratio_error or 0.0 for i in (first, second))
    ratio = (times[second] or 0.0) / max(times[first] or 0.0, _LEAST_SECONDS)
    return first if probability_faster(ratio, ratio_error) >= _CONFIDENCE else None


def _explain_layout(
    opened: h5py.Dataset,
    described: DatasetDescription,
    slab: Hyperslab,
    hypothetical: HypotheticalLayout,
    *,
    disks: Disks,
    models: tuple[CostModel, CostModel],
    parameters: IoParameters | None,
    decode_s_per_byte: float | None,
    served_by: ServingReplica | None,
    budget_s: float | None,
) -> Explanation:
    layout = None
    if hypothetical.is_replica:
        layout = array_layout_of(described, hypothetical)
        footprint = footprint_as_replica(described, slab, layout, disks, budget_s)
    elif hypothetical.stored_ratio is not None:
        raise LayoutError("a stored ratio needs chunks: give chunks as well")
    else:
        footprint = footprint_as_stored(opened, described, slab, disks, budget_s)
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
        order=hypothetical.order,
        data_offset_bytes=described.data_offset_bytes
        if layout is None
        else layout.data_offset_bytes,
        chunk_shape=_chunk_shape_of(described, layout),
        chunks_touched=footprint.chunks,
        stripes=disks.stripes.prevailing(0, Path(described.file).stat().st_size),
        stripe_components=disks.stripes.components,
        stripes_from=disks.source,
        raid=disks.raid,
        served_by=served_by,
        bytes_useful=bytes_useful,
        notes=(
            *disks.notes,
            *(() if footprint.note is None else (footprint.note,)),
            *(() if described.is_fixed_size else (_ELSEWHERE,)),
        ),
    )
    features = footprint.features
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
        osts=ost_loads(footprint.loads, disks),
        requests=Requests(multiple=features.runs, list=math.ceil(features.runs / LIST_REGIONS)),
        plans=()
        if isinstance(layout, ChunkedLayout)
        else _plans(described, slab, layout, parameters),
    )
    unpriced = _unpriced_filters(described, hypothetical, decode_s_per_byte)
    if not bytes_useful:
        unpriced = "no prediction: nothing is selected, and models are fitted to reads of something"
    if unpriced is not None:
        return replace(explanation, notes=(*explanation.notes, unpriced))
    model = models[int(isinstance(layout, ContiguousLayout))]
    predicted = model.predict(features, processes_per_ost=1 / max(1, features.osts_touched))
    seconds, warm_s, serves = _seconds(
        described,
        slab,
        hypothetical,
        disks,
        models,
        parameters=parameters,
        decode_s_per_byte=decode_s_per_byte or 0.0,
    )
    if not math.isfinite(seconds):
        seconds = predicted.seconds
    return replace(
        explanation,
        serves=serves,
        predicted_s=seconds,
        predicted_low_s=seconds * (predicted.low / predicted.seconds),
        predicted_high_s=seconds * (predicted.high / predicted.seconds),
        predicted_warm_s=warm_s if warm_s < seconds else None,
        ratio_error=model.ratio_error,
        model=model.name,
        calibrated=model.calibrated,
    )


def _seconds(
    described: DatasetDescription,
    slab: Hyperslab,
    hypothetical: HypotheticalLayout,
    disks: Disks,
    models: tuple[CostModel, CostModel],
    *,
    parameters: IoParameters | None,
    decode_s_per_byte: float,
) -> tuple[float, float, bool]:
    """Return the times of a cold and a warm read, and whether the layout would serve it.

    By the function that chooses; infinite where that has none.
    """
    if described.storage not in {Storage.CONTIGUOUS, Storage.CHUNKED} or not described.extent:
        return math.inf, math.inf, not hypothetical.is_replica
    array = StoredArray(
        extent=described.extent,
        element_size_bytes=described.element_size_bytes,
        chunks=described.chunk_shape,
        data_offset_bytes=described.data_offset_bytes or 0,
        stored_bytes=described.stored_bytes if described.filters else None,
        decode_s_per_byte=decode_s_per_byte,
        stripes=disks.stripes.prevailing(0, Path(described.file).stat().st_size),
        raid=disks.raid,
    )
    if not hypothetical.is_replica:
        costs = read_costs(array, models, [slab], [1], parameters=parameters)
        return float(costs.original[0]), float(costs.original_warm[0]), True
    layout = ReplicaLayout.whole(
        described.extent, order=hypothetical.order, chunk_shape=hypothetical.chunks
    )
    costs = read_costs(array, models, [slab], [1], [layout], parameters=parameters)
    serves = math.isfinite(costs.serving[0, 0])
    return float(costs.replicas[0, 0]), float(costs.replicas_warm[0, 0]), serves


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


def _unpriced_filters(
    described: DatasetDescription,
    hypothetical: HypotheticalLayout,
    decode_s_per_byte: float | None,
) -> str | None:
    """Return why no time is predicted; None where nothing stands against it."""
    if hypothetical.is_replica:
        if hypothetical.stored_ratio is None:
            return None
        return "no prediction: the models do not know what undoing the supposed filters costs"
    if decode_s_per_byte is not None:
        return None
    names = ", ".join(f.name or str(f.code) for f in described.filters)
    return f"no prediction: this HDF5 cannot undo the filters ({names})"


def _decode_s_per_byte(opened: h5py.Dataset) -> float | None:
    """Return how long undoing a dataset's filters takes; None where this HDF5 cannot."""
    try:
        return decode_seconds_per_byte(opened)
    except UnsupportedError:
        return None


def _plans(
    described: DatasetDescription,
    slab: Hyperslab,
    replica: ContiguousLayout | None,
    parameters: IoParameters | None,
) -> tuple[StrategyPlan, ...]:
    """Return what the strategies of the read engine would do; nothing for chunks."""
    if replica is None and described.storage is not Storage.CONTIGUOUS:
        return ()
    layout = replica or ContiguousLayout(
        element_size_bytes=described.element_size_bytes,
        data_offset_bytes=described.data_offset_bytes or 0,
    )

    def plan(strategy: Strategy, cache: Cache) -> ReadPlan:
        state = FileState(cache=cache)
        return plan_read(
            described.extent, slab, layout, strategy=strategy, state=state, parameters=parameters
        )

    return compare_strategies(plan)


def _slab_of(selection: object, extent: tuple[int, ...]) -> Hyperslab:
    if isinstance(selection, Hyperslab):
        selection.check_within(extent)
        return selection
    if isinstance(selection, str):
        return parse_selection(selection, extent)
    return selection_from_index(selection, extent)[0]
