"""``sds explain``: what one read touches, and what it costs."""

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sds.cli.options import AsJson, DatasetName

if TYPE_CHECKING:
    from sds.engine import ReadPlan, StrategyPlan
    from sds.explain import Explanation
    from sds.recommender import CostModel


class Preset(enum.StrEnum):
    """Systems whose striping and RAID are known."""

    HOPPER = "hopper"
    LOCAL_DISK = "local-disk"


def explain(
    name: DatasetName,
    selection: Annotated[
        str, typer.Argument(metavar="SELECTION", help="As in NumPy, for example '[:, 3, ::2]'.")
    ],
    *,
    order: Annotated[
        str | None,
        typer.Option(metavar="AXES", help="Suppose a replica of this axis order; e.g. 2,0,1."),
    ] = None,
    preset: Annotated[
        Preset | None,
        typer.Option(help="Striping and RAID that the options below leave out; local-disk."),
    ] = None,
    stripe_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Lustre stripe size.")
    ] = None,
    stripe_count: Annotated[
        int | None, typer.Option(metavar="N", help="OSTs over which the file is striped.")
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
    as_json: AsJson = False,
) -> None:
    """Show what one read touches in the file and what it is predicted to cost.

    Only metadata is read. docs/reference/semantics.md defines each quantity. Times are those of
    the file's calibrated file system, or marked uncalibrated; of supposed striping or RAID
    nothing is calibrated.
    """
    from sds.cli.output import print_json
    from sds.cli.quantities import parse_order, parse_size
    from sds.dataset import parse_dataset_name
    from sds.engine import measured_parameters
    from sds.explain import explain as explain_read
    from sds.geometry import HOPPER, LOCAL_DISK
    from sds.home import default_home

    def size(text: str | None, option: str) -> int | None:
        return None if text is None else parse_size(text, name=option)

    file, dataset = parse_dataset_name(name)
    known = HOPPER if preset is Preset.HOPPER else LOCAL_DISK
    supposed = (preset, stripe_size, stripe_count, raid_disks, raid_unit, raid_min_request)
    is_here = all(option is None for option in supposed)
    unit = size(raid_unit, "--raid-unit")
    min_request = size(raid_min_request, "--raid-min-request")
    if unit is None:
        unit = known.raid.unit_bytes
        min_request = min_request or known.raid.min_request_bytes
    explanation = explain_read(
        file,
        dataset,
        selection,
        stripe_size=size(stripe_size, "--stripe-size") or known.stripes.stripe_size_bytes,
        stripe_count=known.stripes.stripe_count if stripe_count is None else stripe_count,
        raid_disks=known.raid.data_disks if raid_disks is None else raid_disks,
        raid_unit=unit,
        raid_min_request=min_request,
        order=None if order is None else parse_order(order),
        model=_calibrated_model(file, is_replica=order is not None) if is_here else None,
        parameters=measured_parameters(default_home(), file) if is_here else None,
    )
    if as_json:
        print_json(explanation)
    else:
        _print_explanation(explanation)


def _calibrated_model(file: Path, *, is_replica: bool) -> "CostModel | None":
    """Return the model of the file system that holds a file; None where it was not calibrated."""
    from sds.cli.client import connect
    from sds.home import default_home
    from sds.recommender import models_for_advice

    home = default_home()
    if not (home.database.exists() or home.server_address.exists()) or not file.exists():
        return None
    device = file.stat().st_dev
    with connect(home) as service:
        found = [record for record in service.calibrations() if record.device == device]
    if not found:
        return None
    original, replica = models_for_advice(found[0].calibration)
    return replica if is_replica else original


def _print_explanation(found: "Explanation") -> None:
    """Print an explanation, one quantity per line."""
    from sds.cli.output import note, print_fields
    from sds.cli.quantities import format_seconds, format_size

    def count(value: int | None) -> str:
        return "-" if value is None else f"{value:,}"

    touched = "-"
    if found.bytes_touched is not None:
        touched = format_size(found.bytes_touched)
        if found.bytes_useful:
            touched += f", {found.bytes_touched / found.bytes_useful:.3g} x what is useful"
    predicted = format_seconds(found.predicted_s)
    if found.predicted_s is not None and not found.calibrated:
        predicted += " (uncalibrated)"
    stripes, raid = found.stripes, found.raid
    disks = (
        f"stripes of {format_size(stripes.stripe_size_bytes)} over {stripes.stripe_count} OST(s); "
        f"RAID of {raid.data_disks} data disk(s), unit {format_size(raid.unit_bytes)}, "
        f"requests of {format_size(raid.min_request_bytes)}"
    )
    print_fields(
        (
            ("dataset", f"{found.file}:{found.dataset}"),
            ("selection", found.selection),
            ("extent as stored", f"{found.extent}, {found.element_size_bytes} B, {found.storage}"),
            ("file on disks", disks),
            ("runs", count(found.runs)),
            ("block depth", count(found.block_depth)),
            ("block gap, count", count(found.block_gap_count)),
            ("block gap, distance", count(found.block_gap_distance)),
            ("block gap, paper", count(found.block_gap_paper)),
            ("bytes useful", format_size(found.bytes_useful)),
            ("bytes touched", touched),
            ("OSTs touched", count(found.osts_touched)),
            ("predicted time", predicted),
        )
    )
    if found.plans:
        _print_plans(found.plans)
    for remark in found.notes:
        note(remark)


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
    columns = ("strategy", "by", "requests>", "bytes read>", "memory>", "warm>", "cold>")
    print_table(columns, rows)
