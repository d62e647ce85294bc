"""``sds advise`` and ``sds what-if``: which layouts would pay."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from sds.cli.names import split_name
from sds.cli.options import AsJson, DatasetName
from sds.cli.quantities import named_order, named_selection
from sds.errors import SdsValueError
from sds.files import canonical_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sds.recommender.portfolio.values import ModelNames, Portfolio, Saving
    from sds.recommender.portfolio.what_if import WhatIf
    from sds.server.operations.advice_reports import Advice
    from sds.server.operations.service import Service

Selection = Annotated[
    list[str] | None,
    typer.Option(
        "--select",
        metavar="SELECTION",
        help="Advise for this selection, as in NumPy or by NAME=VALUE, instead of for traced "
        "reads; for example '[:, :, 5]'. May be repeated.",
    ),
]
Reads = Annotated[
    list[int] | None,
    typer.Option(
        metavar="N",
        min=1,
        help="With --select or --query: such reads or queries a day; once for all, or once for "
        "each.",
    ),
]


Queries = Annotated[
    list[str] | None,
    typer.Option(
        "--query",
        metavar="CONDITION",
        help="Of a table FILE:/TABLE: consider replicas sorted for sds query with this condition, "
        "for example 'energy > 1.3'; with several names 'FILE:/TABLE: energy > 1.3'. May be "
        "repeated.",
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAMES",
        help="With --query: what the queries return: energy,x; else all. Once for all queries, or "
        "once for each.",
    ),
]


def advise(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE[:/DATASET]",
            help="Files, or single datasets of them; all share one budget of space. If not "
            "given, all that was read.",
        ),
    ] = None,
    *,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Most space for new replicas, of all names together; if not given, the setting "
            "replica_budget_bytes, else what is free.",
        ),
    ] = None,
    select: Selection = None,
    reads: Reads = None,
    query: Queries = None,
    columns: Columns = None,
    verbose: Annotated[
        bool,
        typer.Option(
            "-v", "--verbose", help="Also what was compared and left out, and what predicts."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say which set of layouts would make the observed reads cheapest, and by how much.

    Rests on the traces of programs under SDS, on --select, and on --query. Builds nothing: the
    commands that would are printed. Times are predictions of reads from cold cache where they are
    not said to be measured; `uncalibrated` marks those of the built-in model.
    """
    from sds.cli.commands.advise_queries import queried_tables
    from sds.cli.output import note, print_json
    from sds.cli.quantities import parse_size
    from sds.home import default_home
    from sds.redirect.launch.untraced import untraced_sentences
    from sds.server.operations.advice_reports import AdviceRequest, NamedDataset
    from sds.server.remote_service import connect

    if not names:
        of_named = {"--budget": budget, "--select": select, "--reads": reads, "--query": query}
        _advise_all(of_named | {"--columns": columns}, verbose=verbose, as_json=as_json)
        return
    if query and select:
        message = "--select states reads of a dataset, --query those of a table: name one"
        raise SdsValueError(message)
    tables = queried_tables(names, query, columns, reads)
    split = [split_name(name) for name in names if name not in tables]
    if select and (len(split) > 1 or split[0][1] is None):
        message = f"--select needs one dataset: write {names[0]}:/DATASET"
        if split[0][1] is not None:
            message = f"--select states how one dataset is read, not {len(split)}: name one"
        raise SdsValueError(message)
    for file, dataset in split:
        select = [named_selection(text, file, dataset or "/") for text in select or []]
    selections, numbers = _stated(select, None if tables else reads)
    request = AdviceRequest(
        datasets=tuple(NamedDataset(file=file, dataset=dataset) for file, dataset in split),
        budget_bytes=None if budget is None else parse_size(budget, name="--budget"),
        selection=selections,
        n_reads=numbers,
        tables=tuple(tables.values()),
    )
    home = default_home()
    with connect(home) as service:
        if selections is None:
            count_traces(service)
        advice = service.advise(request)
    if as_json:
        print_json(_as_json(names[0], advice))
        return
    if selections is None and not tables and not advice.portfolio.measured_s_now:
        for sentence in untraced_sentences(home.spool):
            note(sentence)
    units = [what for what, named in (("reads", split), ("queries", tables)) if named]
    print_advice(advice, " and ".join(units), verbose=verbose)


def _advise_all(of_named: "Mapping[str, object]", *, verbose: bool, as_json: bool) -> None:
    """Advise on all that was read; SdsValueError with options that need a file."""
    from sds.cli.output import note, print_json
    from sds.home import default_home
    from sds.redirect.launch.untraced import untraced_sentences
    from sds.server.remote_service import connect

    for option, value in of_named.items():
        if value is not None:
            message = f"{option} without a file: name the files or datasets"
            raise SdsValueError(message)
    home = default_home()
    with connect(home) as service:
        count_traces(service)
        advice = service.advise_all()
    if as_json:
        print_json(_as_json(None, advice))
        return
    for sentence in untraced_sentences(home.spool):
        note(sentence)
    print_advice(advice, "reads", verbose=verbose)


def what_if(
    name: DatasetName,
    *,
    order: Annotated[
        str | None,
        typer.Option(
            metavar="AXES",
            help="Suppose a replica of this axis order, as of sds reorganize; for example 2,0,1.",
        ),
    ] = None,
    chunks: Annotated[
        str | None,
        typer.Option(
            metavar="SHAPE", help="With --order: in chunks of this shape; contiguous if not given."
        ),
    ] = None,
    compress: Annotated[
        str,
        typer.Option(
            metavar="FILTERS", help="With --chunks: source, for the filters of the source; none."
        ),
    ] = "none",
    region: Annotated[
        str | None,
        typer.Option(
            metavar="SELECTION", help="With --order: of this box of the source; '[0:100, :, :]'."
        ),
    ] = None,
    tiles: Annotated[
        str | None,
        typer.Option(
            metavar="SHAPE",
            help="With --order: of the tiles of this shape that are read again and again, as of "
            "sds reorganize; 1,64,64.",
        ),
    ] = None,
    min_reads: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="With --tiles: those read at least N times; 2 if not given."
        ),
    ] = None,
    without: Annotated[
        list[int] | None,
        typer.Option(metavar="ID", min=1, help="Predict without this replica; may be repeated."),
    ] = None,
    select: Selection = None,
    reads: Reads = None,
    sort: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="With --query: suppose a replica of the table sorted by this."
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="With --query: what the queries return; else all. A supposed replica holds what "
            "they need.",
        ),
    ] = None,
    query: Queries = None,
    as_json: AsJson = False,
) -> None:
    """Predict what reads would take with a replica that does not exist, or without one that does.

    Of a table, with --query, the same of sorted replicas. Builds and removes nothing.

    Example: sds what-if cube.h5:/cube --order 2,0,1
    """
    from sds.cli.commands.advise_queries import queried_tables
    from sds.cli.commands.reorganize import named_tiles
    from sds.cli.output import print_json
    from sds.cli.quantities import parse_chunks
    from sds.hdf5.dataset import parse_dataset_name
    from sds.home import default_home
    from sds.server.operations.advice_reports import WhatIfRequest
    from sds.server.remote_service import connect

    file, dataset = parse_dataset_name(name)
    if compress not in {"none", "source"}:
        message = f"--compress {compress}: how well other filters work is not known; source or none"
        raise SdsValueError(message)
    tables = queried_tables([name], query, None if columns is None else [columns], reads)
    select = [named_selection(text, file, dataset) for text in select or []]
    selections, numbers = _stated(select, None if tables else reads)
    shape = None if chunks is None else parse_chunks(chunks)
    if shape == "auto":
        message = "--chunks auto: name the lengths; sds advise fits them to the reads"
        raise SdsValueError(message)
    named = named_tiles(canonical_path(file), dataset, tiles, min_reads)
    request = WhatIfRequest(
        file=canonical_path(file),
        dataset=dataset,
        order=None if order is None else named_order(order, file, dataset),
        chunks=shape if isinstance(shape, tuple) else None,
        filtered=compress == "source",
        region=None if region is None else named_selection(region, file, dataset),
        without=tuple(without or ()),
        selection=selections,
        n_reads=numbers,
        queries=tables[name].queries if tables else (),
        sort=sort,
    )
    if named is not None:
        request = replace(request, tiles=named.tiles, min_reads=named.min_reads)
    with connect(default_home()) as service:
        if selections is None and not tables:
            count_traces(service)
        answer = service.what_if(request)
    if as_json:
        print_json(answer)
        return
    _print_what_if(answer, "queries" if tables else "reads")


def count_traces(service: "Service") -> None:
    """Count the reads of programs that have ended since the spool was read last."""
    from sds.cli.output import note

    for problem in service.ingest().problems:
        note(problem)


def _stated(
    select: list[str] | None, reads: list[int] | None
) -> "tuple[tuple[str, ...] | None, tuple[int, ...] | int | None]":
    """Return the selections stated, and how many reads there are of each."""
    if reads and not select:
        message = "--reads needs --select: traced reads have been counted"
        raise SdsValueError(message)
    if not select:
        return None, None
    if not reads:
        return tuple(select), None
    if len(reads) == 1:
        return tuple(select), reads[0]
    if len(reads) != len(select):
        message = (
            f"--reads {len(reads)} times and --select {len(select)} times: give --reads once for "
            "all selections, or once for each"
        )
        raise SdsValueError(message)
    return tuple(select), tuple(reads)


def _as_json(name: str | None, advice: "Advice") -> dict[str, object]:
    """Return advice as JSON keys, what to do first beside it."""
    portfolio = advice.portfolio
    best = portfolio.layouts[0] if portfolio.layouts else None
    named = name if best is None else best.target
    file, dataset = (None, None) if named is None else split_name(named)
    return {
        "file": file,
        "dataset": dataset,
        "order": None if best is None or best.layout.sort else best.layout.order,
        "command": None if best is None else best.command,
        "calibrated": portfolio.calibrated,
        "measured_s_now": portfolio.measured_s_now,
        "seconds_now": portfolio.seconds_now,
        "seconds_now_basis": portfolio.basis,
        "seconds_then": portfolio.seconds_then,
        "saves_s": portfolio.saving.seconds,
        "cold_s_now": portfolio.cold_s_now,
        "cold_s_then": portfolio.cold_s_then,
        "warm_s_now": portfolio.warm_s_now,
        "warm_s_then": portfolio.warm_s_then,
        "speedup": None if best is None else best.speedup,
        "portfolio": portfolio,
        "stripes": advice.stripes,
        "rewrites": advice.rewrites,
        "notes": advice.notes,
    }


def _models(found: "ModelNames") -> str:
    """Return which models predicted."""
    return _both(
        _model(found.original, found.interval_original, found.predicted),
        _model(found.replica, found.interval_replica, found.predicted),
    )


def _both(original: str, replica: str) -> str:
    """Return the models of the original and of replicas, once where they are the same."""
    return original if original == replica else f"{original}, replicas by {replica}"


def _model(name: str, interval: float | None, predicted: str = "reads") -> str:
    """Return the name of a model, and within which factor 19 of 20 times are of what it says."""
    return name if interval is None else f"{name} (19 of 20 {predicted} within x{interval:.2g})"


def print_advice(advice: "Advice", units: str, *, verbose: bool = False) -> None:
    """Print what to build: the set, what each saves, and the commands.

    verbose: also what was left out, what is alike, and which models predict.
    """
    from sds.cli.output import note, print_lines, print_prose
    from sds.cli.quantities import format_seconds
    from sds.recommender.portfolio.values import NO_QUERY_STATED

    portfolio = advice.portfolio
    _print_headline(portfolio, units)
    _print_cold_and_warm(portfolio)
    if portfolio.layouts:
        _print_layouts(portfolio, verbose=verbose)
    for rewrite in advice.rewrites:
        print_prose(
            "Or, where nobody needs the file as it is, write it anew: its reads would take "
            f"{format_seconds(rewrite.seconds_then)} a day (predicted)"
        )
        print_lines(f"    {rewrite.command}")
    for models in portfolio.models if verbose else ():
        print_prose(f"  predicted by {_models(models)}")
    if portfolio.declined:
        _print_declined(portfolio, verbose=verbose)
    if not portfolio.exact:
        print_prose(
            "No set of these layouts saves more than "
            f"{format_seconds(portfolio.bound_s_per_day)} a day."
        )
    if advice.stripes.command is not None:
        print_lines(f"Before that: {advice.stripes.command}")
        print_prose(f"  {advice.stripes.reason}")
    for remark in advice.notes:
        if verbose or remark != NO_QUERY_STATED:
            note(remark)


def _print_headline(portfolio: "Portfolio", units: str) -> None:
    """Print how many replicas to build, and what they save."""
    from sds.cli.output import print_prose
    from sds.cli.quantities import format_seconds, format_size
    from sds.text import counted

    budget = portfolio.budget_bytes
    space = "" if budget is None else f" of at most {format_size(budget)}"
    if not portfolio.layouts:
        best = portfolio.declined[0] if portfolio.declined else None
        why = "" if best is None else f"; of the best, {best.name}: {best.reason}"
        print_prose(
            "Build nothing: no further replica would pay "
            f"(space: {'no limit' if budget is None else format_size(budget)}){why}."
        )
        return
    predicted = "predicted" if portfolio.calibrated else "predicted, uncalibrated"
    now, then = format_seconds(portfolio.seconds_now), format_seconds(portfolio.seconds_then)
    times = {
        "measured": f"{now} (measured) to {then} ({predicted})",
        "mixed": f"{now} (measured in part) to {then} ({predicted})",
        "predicted": f"{now} to {then} ({predicted})",
    }
    print_prose(
        f"Build {counted(len(portfolio.layouts), 'replica')} "
        f"({format_size(portfolio.used_bytes)}{space}): a day's {units} go from "
        f"{times[portfolio.basis]}, saving {_interval(portfolio.saving)}"
    )


def _print_layouts(portfolio: "Portfolio", *, verbose: bool) -> None:
    """Print the replicas to build, and the commands that build them."""
    from sds.cli.output import print_lines, print_prose, print_table
    from sds.cli.quantities import format_days, format_seconds, format_size
    from sds.text import factor_text, share_text

    print_table(
        (
            "replica",
            "serves>",
            "predicted to save a day>",
            "in 19 of 20 cases>",
            "faster>",
            "size>",
            "build>",
            "pays after>",
        ),
        [
            (
                layout.name,
                share_text(layout.shares.reads),
                format_seconds(layout.saving.seconds),
                f"{format_seconds(layout.saving.low)} to {format_seconds(layout.saving.high)}",
                f"{factor_text(layout.speedup)}x",
                format_size(layout.size_bytes),
                format_seconds(layout.build_s),
                format_days(layout.break_even_days),
            )
            for layout in portfolio.layouts
        ],
    )
    for layout in portfolio.layouts:
        print_prose(f"  {layout.reason}")
        print_lines(f"    {layout.command}")
        if layout.alike and verbose:
            print_prose(f"    the models cannot tell from it: {'; '.join(layout.alike)}")


def _print_declined(portfolio: "Portfolio", *, verbose: bool) -> None:
    """Print which layouts were compared and are not built, and why."""
    from sds.cli.output import print_lines, print_prose
    from sds.text import counted

    if not verbose:
        n = len(portfolio.declined)
        print_prose(f"{counted(n, 'other layout')} left out, why: sds advise --verbose")
        return
    print_lines("Not built:")
    for declined in portfolio.declined:
        print_prose(f"  {declined.name} of {declined.target}: {declined.reason}")


def _print_cold_and_warm(portfolio: "Portfolio") -> None:
    """Print what traced reads are predicted to take from cold cache, and from memory."""
    from sds.cli.output import print_prose
    from sds.cli.quantities import format_seconds

    if portfolio.basis == "predicted":
        return
    if not portfolio.layouts:
        if portfolio.measured_s_now is not None:
            took = format_seconds(portfolio.measured_s_now)
            print_prose(f"Measured, the reads of a day took {took}.")
        return
    ways = (
        ("from cold cache", portfolio.cold_s_now, portfolio.cold_s_then),
        ("from memory", portfolio.warm_s_now, portfolio.warm_s_then),
    )
    known = [
        f"{name} {format_seconds(now)} now and {format_seconds(then)} then"
        for name, now, then in ways
        if now is not None and then is not None
    ]
    if known:
        print_prose(f"The models alone predict {'; '.join(known)}.")


def _print_what_if(answer: "WhatIf", units: str) -> None:
    """Print what would change."""
    from sds.cli.output import print_fields, print_table
    from sds.cli.quantities import format_days, format_seconds, format_size

    predicted = "predicted" if answer.calibrated else "predicted, uncalibrated"
    origin = {"measured": "measured", "mixed": "measured in part", "predicted": predicted}
    print_fields(
        (
            ("dataset", answer.target),
            *(("with", name) for name in answer.added),
            *(("without", name) for name in answer.taken_away),
            (
                f"{units} of a day now",
                f"{format_seconds(answer.seconds_now)} ({origin[answer.basis]})",
            ),
            (f"{units} of a day then", f"{format_seconds(answer.seconds_then)} ({predicted})"),
            ("predicted saving", f"{_interval(answer.saving)} a day"),
            ("predicted by", _models(answer.models)),
            ("space", format_size(answer.size_bytes)),
            *((("build", format_seconds(answer.build_s)),) if answer.added else ()),
            *(
                (("pays after", format_days(answer.break_even_days)),)
                if answer.break_even_days is not None
                else ()
            ),
        )
    )
    print_table(
        ("pattern", f"{units} a day>", "now>", "from", "then, predicted>", "from"),
        [
            (
                row.pattern,
                _reads(row.reads_per_day),
                format_seconds(row.seconds_now),
                row.from_now,
                format_seconds(row.seconds_then),
                row.from_then,
            )
            for row in answer.patterns
        ],
    )


def _interval(saving: "Saving") -> str:
    """Return a saving with its interval."""
    from sds.cli.quantities import format_seconds

    if saving.seconds == 0:
        return "nothing"
    low, high = format_seconds(saving.low), format_seconds(saving.high)
    return f"{format_seconds(saving.seconds)} ({low} to {high})"


def _reads(per_day: float) -> str:
    """Return how many reads a day there are: whole numbers from ten on, three digits below."""
    return f"{per_day:,.0f}" if per_day >= 10 else f"{per_day:.3g}"
