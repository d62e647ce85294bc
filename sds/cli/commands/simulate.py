"""``sds simulate``: how long a read by many processes would take on a simulated file system."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sds.cli.names import text_of
from sds.cli.options import AsJson

if TYPE_CHECKING:
    from sds.geometry import ProcessReads
    from sds.machines.machine_file import Machine
    from sds.simulator import Operation, SimulatedTime
    from sds.simulator.parameter_fit import PredictedTime


def simulate(
    array: Annotated[
        str,
        typer.Argument(
            metavar="ARRAY", help="FILE:/DATASET, or the extent of an array: 1024,1024,65536."
        ),
    ],
    selection: Annotated[
        str, typer.Argument(metavar="SELECTION", help="As in NumPy, for example '[:, 3, ::2]'.")
    ],
    *,
    element_size: Annotated[
        int | None, typer.Option(metavar="BYTES", help="Of one element, where ARRAY is an extent.")
    ] = None,
    processes: Annotated[
        int, typer.Option(metavar="N", help="Processes that share the selection.")
    ] = 1,
    parts: Annotated[
        str | None,
        typer.Option(metavar="N,N,...", help="Processes per axis; as even as can be if left out."),
    ] = None,
    order: Annotated[
        list[str] | None,
        typer.Option(metavar="AXES", help="Stored in this axis order; may be given repeatedly."),
    ] = None,
    mode: Annotated[
        str, typer.Option(metavar="MODE", help="How the processes read: independent or collective.")
    ] = ("independent"),
    strategy: Annotated[
        str, typer.Option(metavar="NAME", help="Of independent reads: multiple, sieve or list.")
    ] = "multiple",
    stripe_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Lustre stripe size; Hopper's if not given.")
    ] = None,
    stripe_count: Annotated[
        int | None, typer.Option(metavar="N", help="OSTs over which the file is striped.")
    ] = None,
    machine: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Another machine than Hopper, from `sds machine fit` or by hand."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate how long a read by many processes would take on Hopper's Lustre file system.

    Or on the machine of a file. The array is taken to be contiguous, and nothing of it cached.
    Nothing is read. All times are simulated, which takes milliseconds to seconds for each read:
    docs/explanation/simulator.md says what is modelled and what is left out.
    """
    from sds.cli.output import print_json
    from sds.cli.quantities import parse_order
    from sds.simulator import Operation, simulate_many

    extent, element_size_bytes, offset_bytes = _array_of(array, element_size)
    operation = Operation.of(
        extent,
        _divided(extent, selection, processes, parts),
        element_size_bytes=element_size_bytes,
        data_offset_bytes=offset_bytes,
        mode=mode,
        strategy=strategy,
    )
    known = _machine(machine, stripe_size, stripe_count)
    orders = [parse_order(text) for text in order or ()] or [tuple(range(len(extent)))]
    operations = [operation.stored_as(axes) for axes in orders]
    times = simulate_many(operations, known.parameters)
    # Machines are fitted to such reads alone: of others the error is not known.
    is_like_fitted = (operation.mode, operation.strategy) == ("independent", "multiple")
    predicted = known.fitted.predict_many(operations) if known.fitted and is_like_fitted else None
    if as_json:
        print_json(
            {
                "simulated": [
                    {
                        "order": axes,
                        "n_processes": operation.n_processes,
                        "time": time,
                        "predicted": None if predicted is None else predicted[i],
                    }
                    for i, (axes, time) in enumerate(zip(orders, times, strict=True))
                ]
            }
        )
    else:
        _print_times(operations, orders, times, predicted)


def _array_of(array: str, element_size: int | None) -> tuple[tuple[int, ...], int, int]:
    """Return extent, element size and data offset of a dataset, or of what an extent describes."""
    from sds.errors import SdsValueError
    from sds.hdf5.dataset import describe_dataset, parse_dataset_name

    if ":/" in array[1:]:
        file, dataset = parse_dataset_name(array)
        described = describe_dataset(file, dataset)
        if element_size is not None:
            raise SdsValueError("--element-size is for an extent; a dataset has its own")
        return described.extent, described.element_size_bytes, described.data_offset_bytes or 0
    lengths = [part.strip() for part in array.strip("()[]").split(",") if part.strip()]
    if not all(part.isascii() and part.isdigit() for part in lengths):
        message = f"{array!r} is neither FILE:/DATASET nor an extent such as 1024,1024,65536"
        raise SdsValueError(message)
    if element_size is None:
        raise SdsValueError("an extent needs --element-size, for example --element-size 2")
    return tuple(map(int, lengths)), element_size, 0


def _divided(
    extent: tuple[int, ...], selection: str, processes: int, parts: str | None
) -> "ProcessReads":
    """Return what each process reads."""
    from sds.cli.quantities import parse_chunks
    from sds.errors import SdsValueError
    from sds.geometry import ProcessReads, parse_selection

    slab = parse_selection(selection, extent)
    if parts is None:
        return ProcessReads.shared(slab, processes)
    given = parse_chunks(parts)
    if isinstance(given, str):
        raise SdsValueError(f"--parts {parts!r}; give a number for each axis, for example 8,8,8")
    if processes not in {1, math.prod(given)}:
        message = f"--parts {parts} are {math.prod(given)} processes, --processes {processes}"
        raise SdsValueError(message)
    return ProcessReads.decomposed(slab, given)


def _machine(file: Path | None, stripe_size: str | None, stripe_count: int | None) -> "Machine":
    """Return Hopper or the machine of a file, with other striping where that is given."""
    from dataclasses import replace

    from sds.cli.quantities import parse_size
    from sds.machines.machine_file import Machine, parse_machine
    from sds.simulator import hopper

    known = Machine(parameters=hopper(), fitted=None)
    if file is not None:
        known = parse_machine(text_of(file), name=str(file))
    stripes = known.parameters.stripes
    if stripe_size is not None:
        stripes = replace(stripes, stripe_size_bytes=parse_size(stripe_size, name="--stripe-size"))
    if stripe_count is not None:
        stripes = replace(stripes, stripe_count=stripe_count)
    parameters = replace(known.parameters, stripes=stripes)
    fitted = None if known.fitted is None else replace(known.fitted, parameters=parameters)
    return Machine(parameters=parameters, fitted=fitted)


def _print_times(
    operations: "list[Operation]",
    orders: list[tuple[int, ...]],
    times: "list[SimulatedTime]",
    predicted: "list[PredictedTime] | None",
) -> None:
    """Print one line per axis order."""
    from sds.cli.output import note, print_table
    from sds.cli.quantities import format_count, format_order, format_seconds, format_size
    from sds.text import counted

    rows = [
        [
            format_order(axes) or "-",
            "x".join(map(str, operation.extent)) or "scalar",
            format_seconds(time.seconds),
            format_count(time.requests),
            format_count(time.messages),
            format_size(time.bytes_sent),
            format_count(time.disk_seeks),
            format_seconds(max(time.disk_busy_s)),
        ]
        for operation, axes, time in zip(operations, orders, times, strict=True)
    ]
    columns: tuple[str, ...] = (
        "order",
        "stored as",
        "simulated>",
        "requests>",
        "replies>",
        "bytes sent>",
        "seeks>",
        "busiest disk>",
    )
    if predicted is not None:
        columns = (*columns, "predicted>", "two in three within>")
        for row, time in zip(rows, predicted, strict=True):
            ends = (format_seconds(end) for end in (time.low_s, time.high_s))
            row += [format_seconds(time.seconds), " to ".join(ends)]
    print_table(columns, rows)
    first = operations[0]
    processes = counted(first.n_processes, "process", "processes")
    note(f"{processes}, {first.mode}; every time is simulated, none measured")
