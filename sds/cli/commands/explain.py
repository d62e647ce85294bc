"""``sds explain``: what one read touches, and what it costs, in layouts that are or could be."""

import enum
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sds.cli.names import split_name
from sds.cli.options import AsJson
from sds.cli.quantities import named_order, named_selection
from sds.errors import SdsValueError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sds.analyzer import AccessPattern
    from sds.engine import ReadPlan, StrategyPlan
    from sds.explain.explanation import Explanation
    from sds.explain.hypothetical_layout import HypotheticalLayout
    from sds.recommender.models.cost_model import CostModel


class Preset(enum.StrEnum):
    """Systems whose striping and RAID are known."""

    HOPPER = "hopper"
    LOCAL_DISK = "local-disk"


def explain(
    name: Annotated[
        str,
        typer.Argument(metavar="FILE[:/DATASET]", help="A dataset; a file, without a selection."),
    ],
    selection: Annotated[
        str | None,
        typer.Argument(
            metavar="SELECTION",
            help="As in NumPy, for example '[:, 3, ::2]'; if not given, the datasets are listed, "
            "with what one plane across each of their axes costs.",
        ),
    ] = None,
    *,
    order: Annotated[
        list[str] | None,
        typer.Option(metavar="AXES", help="Suppose a replica of this axis order; e.g. 2,0,1."),
    ] = None,
    chunks: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SHAPE", help="Suppose a replica in chunks, along its own axes; e.g. 64,64,64."
        ),
    ] = None,
    stored_ratio: Annotated[
        float | None,
        typer.Option(
            metavar="RATIO", help="Stored over original size of supposed chunks; e.g. 0.4."
        ),
    ] = None,
    preset: Annotated[
        Preset | None,
        typer.Option(help="Suppose a system's striping and RAID, but for the options below."),
    ] = None,
    stripe_size: Annotated[
        list[str] | None, typer.Option(metavar="SIZE", help="Suppose this Lustre stripe size.")
    ] = None,
    stripe_count: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="Suppose the file striped over N OSTs."),
    ] = None,
    raid_disks: Annotated[
        int | None, typer.Option(metavar="N", help="Data disks of the RAID, without parity.")
    ] = None,
    raid_unit: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Bytes on one disk before the next.")
    ] = None,
    raid_min_request: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Smallest request to the RAID; the unit if left out."),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Show the layout as it is beside those supposed.")
    ] = False,
    draw: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw which OSTs and disks are hit, as .png or .svg."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what one read touches in the file and what it is predicted to cost.

    Options that suppose a layout may be repeated: every combination is shown side by side. Only
    metadata is read, and a few chunks where they are filtered. docs/reference/semantics.md defines
    each quantity. Times are those of the file's calibrated file system, or marked uncalibrated; of
    supposed striping or RAID nothing is calibrated.
    """
    from sds.cli.output import print_json
    from sds.cli.quantities import parse_size
    from sds.engine import measured_parameters
    from sds.explain.explanation import best_of, fastest_of
    from sds.explain.explanation import compare as compare_layouts
    from sds.explain.hypothetical_layout import HypotheticalLayout
    from sds.hdf5.dataset import parse_dataset_name
    from sds.home import default_home
    from sds.server.operations.file_system_models import configured_raid, configured_stripes
    from sds.server.settings import load_settings

    if selection is None:
        supposed = (
            order, chunks, stored_ratio, preset, stripe_size, stripe_count, raid_disks, raid_unit,
            raid_min_request, compare or None, draw,
        )  # fmt: skip
        if any(given is not None for given in supposed):
            message = f"{name} without a selection: name one, such as '[:, 5]', with these options"
            raise SdsValueError(message)
        _explain_file(name, as_json=as_json)
        return

    def size(text: str | None, option: str) -> int | None:
        return None if text is None else parse_size(text, name=option)

    file, dataset = parse_dataset_name(name)
    layouts = _layouts(
        orders=[named_order(text, file, dataset) for text in order or []],
        chunks=chunks or [],
        stored_ratio=stored_ratio,
        stripe_sizes=[parse_size(text, name="--stripe-size") for text in stripe_size or []],
        stripe_counts=stripe_count or [],
        disks=_hypothetical_disks(
            preset,
            raid_disks,
            size(raid_unit, "--raid-unit"),
            size(raid_min_request, "--raid-min-request"),
        ),
    )
    if compare and layouts[0] != HypotheticalLayout():
        layouts.insert(0, HypotheticalLayout())
    home = default_home()
    settings = load_settings(home)
    found = compare_layouts(
        file,
        dataset,
        named_selection(selection, file, dataset),
        layouts,
        configured=configured_stripes(settings),
        raid=configured_raid(settings),
        models=_models_of(file),
        parameters=measured_parameters(home, file),
        home=home,
        traced=_traced(Path(file)),
    )
    labels = [_label(layout) for layout in layouts]
    if draw is not None:
        from sds.explain.figures import draw_explanations

        draw_explanations(found, draw, labels=labels)
    if as_json:
        several = {"layouts": found, "labels": labels, "best": best_of(found)}
        print_json(found[0] if len(found) == 1 else several)
    elif len(found) == 1:
        _print_explanation(found[0])
    else:
        _print_comparison(found, labels, fastest_of(found))


def _explain_file(name: str, *, as_json: bool) -> None:
    """Print the datasets of a file, and what one plane across each of their axes costs."""
    from sds.cli.output import note, print_json, print_lines, print_table
    from sds.cli.quantities import format_seconds, format_size
    from sds.cli.traced_times import describe_in_short
    from sds.engine import measured_parameters
    from sds.explain.file_overview import overview
    from sds.home import default_home
    from sds.server.operations.file_system_models import configured_raid, configured_stripes
    from sds.server.settings import load_settings
    from sds.text import counted

    file, dataset = split_name(name)
    home = default_home()
    settings = load_settings(home)
    found, n_more = overview(
        file,
        dataset,
        configured=configured_stripes(settings),
        raid=configured_raid(settings),
        models=_models_of(Path(file)),
        parameters=measured_parameters(home, file),
        home=home,
        traced=_traced(Path(file)),
    )
    if as_json:
        print_json({"file": file, "datasets": found, "left_out": n_more})
        return
    for each in found:
        extent = "x".join(map(str, each.extent)) or "scalar"
        stored = "contiguous" if each.chunk_shape is None else "chunks of "
        stored += "" if each.chunk_shape is None else "x".join(map(str, each.chunk_shape))
        filters = f", {','.join(each.filters)}" if each.filters else ""
        size = format_size(each.size_bytes)
        print_lines(f"{each.path}  {extent} {each.dtype}, {stored}{filters}, {size}")
        if not each.planes:
            continue
        mark = "" if each.calibrated else ", uncalibrated"
        is_measured = any(plane.measured for plane in each.planes)
        print_table(
            (
                "one plane of",
                "useful>",
                "touched>",
                "pieces>",
                *(("measured (reads)>",) if is_measured else ()),
                f"predicted, cold{mark}>",
                "served by",
            ),
            [
                (
                    f"axis {plane.axis} {'/'.join(plane.names)}".strip(),
                    format_size(plane.bytes_useful),
                    "-" if plane.bytes_touched is None else format_size(plane.bytes_touched),
                    "-" if plane.pieces is None else f"{plane.pieces:,}",
                    *((describe_in_short(plane.measured),) if is_measured else ()),
                    "-" if plane.predicted_s is None else format_seconds(plane.predicted_s),
                    "original"
                    if plane.served_by is None
                    else f"replica {plane.served_by.replica_id}",
                )
                for plane in each.planes
            ],
        )
    unknown = (plane for each in found for plane in each.planes if plane.predicted_s is None)
    for remark in dict.fromkeys(remark for plane in unknown for remark in plane.notes):
        note(remark)
    if n_more:
        note(f"{counted(n_more, 'smaller dataset')} left out; name one as FILE:/DATASET")


def _hypothetical_disks(
    preset: Preset | None, disks: int | None, unit: int | None, min_request: int | None
) -> "HypotheticalLayout":
    """Return the hypothetical layout that holds the disks below every other."""
    from sds.explain.hypothetical_layout import HypotheticalLayout
    from sds.geometry import HOPPER, LOCAL_DISK

    if preset is None:
        return HypotheticalLayout(raid_disks=disks, raid_unit=unit, raid_min_request=min_request)
    known = HOPPER if preset is Preset.HOPPER else LOCAL_DISK
    if unit is None:
        min_request = min_request or known.raid.min_request_bytes
    return HypotheticalLayout(
        stripe_size=known.stripes.stripe_size_bytes,
        stripe_count=known.stripes.stripe_count,
        raid_disks=known.raid.data_disks if disks is None else disks,
        raid_unit=known.raid.unit_bytes if unit is None else unit,
        raid_min_request=min_request,
    )


def _layouts(
    *,
    orders: list[tuple[int, ...]],
    chunks: list[str],
    stored_ratio: float | None,
    stripe_sizes: list[int],
    stripe_counts: list[int],
    disks: "HypotheticalLayout",
) -> "list[HypotheticalLayout]":
    """Return every combination of hypothetical layouts, in the order of the options."""
    from dataclasses import replace

    from sds.cli.quantities import parse_chunks
    from sds.errors import LayoutError

    orders_or_none: list[tuple[int, ...] | None] = [*orders]
    shapes: list[tuple[int, ...] | None] = []
    for text in chunks:
        shape = parse_chunks(text)
        if shape == "auto":
            message = "--chunks auto supposes nothing definite; give a shape such as 64,64,64"
            raise LayoutError(message)
        shapes.append(None if isinstance(shape, str) else shape)
    if shapes and not orders and None in shapes:
        message = "--chunks contiguous supposes an axis order of its own; give --order as well"
        raise LayoutError(message)
    sizes: list[int | None] = [*stripe_sizes] or [disks.stripe_size]
    counts: list[int | None] = [*stripe_counts] or [disks.stripe_count]
    return [
        replace(
            disks,
            order=order,
            chunks=shape,
            stored_ratio=stored_ratio if shape is not None or not shapes else None,
            stripe_size=size,
            stripe_count=count,
        )
        for order, shape, size, count in itertools.product(
            orders_or_none or [None], shapes or [None], sizes, counts
        )
    ]


def _label(layout: "HypotheticalLayout") -> str:
    """Return a hypothetical layout in few words."""
    from sds.cli.quantities import format_order, format_size

    parts = []
    if layout.is_replica:
        parts.append("order " + format_order(layout.order) if layout.order else "replica")
    if layout.chunks is not None:
        parts.append("chunks " + "x".join(map(str, layout.chunks)))
    if layout.stripe_size is not None:
        parts.append("stripes " + format_size(layout.stripe_size).replace(" ", ""))
    if layout.stripe_count is not None:
        parts.append(f"{layout.stripe_count} OSTs")
    if not parts and layout.is_elsewhere:
        parts.append("other RAID")
    return ", ".join(parts) or "as it is"


def _models_of(file: Path) -> "tuple[CostModel, CostModel] | None":
    """Return the models of a file's file system; None where nothing was calibrated."""
    from sds.calibration.models_in_use import comparable_models
    from sds.hdf5.dataset import file_exists
    from sds.home import default_home
    from sds.server.operations.file_system_models import calibration_holding
    from sds.server.remote_service import known_calibrations

    if not file_exists(file):
        return None  # what is wrong with it, opening it tells
    found = calibration_holding(file, known_calibrations(default_home()))
    return None if found is None else comparable_models(found.calibration)


def _traced(file: Path) -> "dict[str, list[AccessPattern]]":
    """Return the patterns of a file's traced reads, by dataset."""
    from sds.hdf5.dataset import file_exists
    from sds.home import default_home
    from sds.server.remote_service import known_patterns

    found: dict[str, list[AccessPattern]] = {}
    if file_exists(file):
        for record in known_patterns(default_home(), file):
            found.setdefault(record.dataset, []).append(record.pattern)
    return found


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _predicted(found: "Explanation") -> tuple[str, str, str]:
    """Return the predicted times of a cold read and of one from memory, and the interval."""
    from sds.cli.quantities import format_seconds

    if found.predicted_s is None:
        return "-", "-", "-"
    marked = "" if found.calibrated else " (uncalibrated)"
    interval = (
        f"{format_seconds(found.predicted_low_s)} to {format_seconds(found.predicted_high_s)}"
    )
    warm = "-"
    if found.predicted_warm_s is not None:
        warm = format_seconds(found.predicted_warm_s) + marked
    return format_seconds(found.predicted_s) + marked, warm, interval


def _amplified(found: "Explanation") -> str:
    from sds.text import factor_text

    return "-" if found.amplification is None else f"{factor_text(found.amplification)} x"


def _disks(found: "Explanation") -> str:
    """Describe striping and RAID in one line."""
    from sds.cli.quantities import format_size
    from sds.text import counted

    if len(found.stripe_components) > 1:
        parts = [
            f"{format_size(part.stripes.stripe_size_bytes)} over {part.stripes.stripe_count} "
            f"from {format_size(part.begin_bytes)}"
            for part in found.stripe_components
        ]
        stripes = f"stripes in {len(parts)} components: {'; '.join(parts)}"
    else:
        size = format_size(found.stripes.stripe_size_bytes)
        stripes = f"stripes of {size} over {counted(found.stripes.stripe_count, 'OST')}"
    raid = found.raid
    return (
        f"{stripes} ({found.stripes_from}); "
        f"RAID of {counted(raid.data_disks, 'data disk')}, unit {format_size(raid.unit_bytes)}, "
        f"requests of {format_size(raid.min_request_bytes)}"
    )


def _print_explanation(found: "Explanation") -> None:
    """Print an explanation, one quantity per line."""
    from sds.cli.output import note, print_fields
    from sds.cli.quantities import format_order, format_size
    from sds.cli.traced_times import describe_times

    touched = "-"
    if found.bytes_touched is not None:
        touched = format_size(found.bytes_touched)
        if found.amplification is not None:
            touched += f", {_amplified(found)} what is useful"
    chunks: tuple[tuple[str, str], ...] = ()
    if found.chunks_touched is not None:
        shape = "x".join(map(str, found.chunk_shape or ()))
        chunks = (("chunks read", f"{_count(found.chunks_touched)} of {shape}"),)
    cold, warm, interval = _predicted(found)
    if found.predicted_s is not None:
        cold += f"; 19 of 20 reads within {interval}, by the model {found.model}"
    served: tuple[tuple[str, str], ...] = ()
    if found.served_by is not None:
        replica = found.served_by
        stored = "contiguous"
        if replica.chunk_shape is not None:
            stored = "chunks " + "x".join(map(str, replica.chunk_shape))
        words = f"replica {replica.replica_id}, order {format_order(replica.order)}, {stored}"
        served = (("served by, cold", words),)
    print_fields(
        (
            ("dataset", f"{found.file}:{found.dataset}"),
            ("selection", found.selection),
            ("extent as stored", f"{found.extent}, {found.element_size_bytes} B, {found.storage}"),
            ("file on disks", _disks(found)),
            *chunks,
            ("runs", _count(found.runs)),
            ("block depth", _count(found.block_depth)),
            ("block gap, count", _count(found.block_gap_count)),
            ("block gap, distance", _count(found.block_gap_distance)),
            ("block gap, paper", _count(found.block_gap_paper)),
            ("bytes useful", format_size(found.bytes_useful)),
            ("bytes touched", touched),
            ("OSTs touched", _count(found.osts_touched)),
            ("disks touched", _count(found.disks_touched)),
            *(("measured", describe_times(times)) for times in found.measured),
            ("predicted, cold", cold),
            *((("predicted, memory", warm),) if found.predicted_warm_s is not None else ()),
            *served,
        )
    )
    if found.plans:
        _print_plans(found.plans)
    _print_map(found)
    for remark in found.notes:
        note(remark)


def _print_map(found: "Explanation", title: str | None = None) -> None:
    """Draw what is hit, where there is more than one disk."""
    from sds.cli.output import console, print_lines
    from sds.explain.ost_map import draw_osts, prefers_ascii

    if sum(len(load.disk_blocks) for load in found.osts) < 2:
        return
    screen = console()
    width = min(screen.width, _MAP_WIDTH)
    print_lines("", *([] if title is None else [title]))
    screen.print(draw_osts(found.osts, width=width, plain=prefers_ascii()))


_MAP_WIDTH = 128
_QUANTITY_WIDTH = 24
_LAYOUT_WIDTH = 24


def _print_comparison(
    found: "Sequence[Explanation]", labels: list[str], fastest: int | None
) -> None:
    """Print several layouts side by side, as many as the terminal has room for."""
    from sds.cli.output import console, note, print_fields, print_table
    from sds.cli.quantities import format_size

    first = found[0]
    print_fields(
        (
            ("dataset", f"{first.file}:{first.dataset}"),
            ("selection", first.selection),
            ("bytes useful", format_size(first.bytes_useful)),
        )
    )
    quantities: list[tuple[str, Callable[[Explanation], str]]] = [
        ("stored", _storage),
        (
            "stripes",
            lambda e: f"{format_size(e.stripes.stripe_size_bytes)} x {e.stripes.stripe_count}",
        ),
        ("runs", lambda e: _count(e.runs)),
        ("requests, as planned", _planned_requests),
        ("chunks read", lambda e: _count(e.chunks_touched)),
        (
            "bytes touched",
            lambda e: "-" if e.bytes_touched is None else format_size(e.bytes_touched),
        ),
        ("amplification", _amplified),
        ("OSTs touched", lambda e: _count(e.osts_touched)),
        ("disks touched", lambda e: _count(e.disks_touched)),
        ("block depth", lambda e: _count(e.block_depth)),
        ("block gap, count", lambda e: _count(e.block_gap_count)),
        ("block gap, distance", lambda e: _count(e.block_gap_distance)),
        ("block gap, paper", lambda e: _count(e.block_gap_paper)),
        ("predicted, cold", lambda e: _predicted(e)[0]),
        ("19 of 20 within", lambda e: _predicted(e)[2]),
        ("predicted, memory", lambda e: _predicted(e)[1]),
        ("model", lambda e: e.model or "-"),
    ]
    room = max(1, (console().width - _QUANTITY_WIDTH) // _LAYOUT_WIDTH)
    for begin in range(0, len(found), room):
        shown = range(begin, min(begin + room, len(found)))
        rows = [[title, *(show(found[i]) for i in shown)] for title, show in quantities]
        print_table(("", *(f"{labels[i]}>" for i in shown)), rows)
    for each, label in zip(found, labels, strict=True):
        _print_map(each, label)
    for remark in dict.fromkeys(remark for each in found for remark in each.notes):
        of = [label for each, label in zip(found, labels, strict=True) if remark in each.notes]
        note(remark if len(of) == len(found) else f"{'; '.join(of)}: {remark}")
    if fastest is not None:
        beside = "" if found[fastest].serves else "; beside the dataset as it is it would not serve"
        note(f"predicted fastest: {labels[fastest]}{beside}")
    elif all(each.predicted_s is not None for each in found):
        mixed = len({each.calibrated for each in found}) > 1
        note(
            "predictions of a calibration and built-in ones are not compared"
            if mixed
            else "the two fastest cannot be told apart by this model"
        )


def _storage(found: "Explanation") -> str:
    shape = "x".join(map(str, found.chunk_shape or ()))
    return f"chunks {shape}" if shape else str(found.storage)


def _planned_requests(found: "Explanation") -> str:
    """Return the requests of the read engine with a cold cache."""
    auto = next((plan for plan in found.plans if plan.strategy == "auto"), None)
    return "-" if auto is None else _count(auto.cold.requests)


def _print_plans(plans: "tuple[StrategyPlan, ...]") -> None:
    """Print what each strategy would do; twice where that depends on the cache."""
    from sds.cli.output import print_table
    from sds.cli.quantities import format_seconds, format_size

    def row(name: str, plan: "ReadPlan", warm: float | None, cold: float | None) -> list[str]:
        return [
            name,
            plan.executor,
            f"{plan.requests:,}",
            format_size(plan.bytes_read),
            format_size(plan.memory_bytes),
            format_seconds(warm),
            format_seconds(cold),
        ]

    def work(plan: "ReadPlan") -> tuple[object, ...]:
        return plan.executor, plan.requests, plan.bytes_read, plan.memory_bytes

    rows = []
    for of in plans:
        if work(of.warm) == work(of.cold):
            rows.append(row(of.strategy, of.warm, of.warm.predicted_s, of.cold.predicted_s))
        else:
            rows.append(row(f"{of.strategy}, warm", of.warm, of.warm.predicted_s, None))
            rows.append(row(f"{of.strategy}, cold", of.cold, None, of.cold.predicted_s))
    columns = ("strategy", "by", "requests>", "bytes read>", "memory>", "predicted, warm>", "cold>")
    print_table(columns, rows)
