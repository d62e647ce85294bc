"""One HTML page of ``sds report``, complete in itself: it opens without a network."""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

from sds.analyzer.gains import measured_gains
from sds.cli.traced_times import (
    PATTERN_COLUMNS,
    REPLICA_COLUMNS,
    pattern_cells,
    replica_cells,
)
from sds.plots.draw import rendered
from sds.plots.gain_figures import (
    Estimate,
    ReadGain,
    ReplicaGainBar,
    draw_read_gains,
    draw_replica_gains,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.figure import Figure

    from sds.analyzer import ReadTimes
    from sds.catalog.model_records import PatternRecord
    from sds.server.operations.savings import ReplicaSavings

_MOST_ROWS = 20  # of a figure
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem;
       color: #111; background: #fff }
h2 { margin-top: 2.2rem; border-bottom: 1px solid #ccc }
table { border-collapse: collapse; margin: .6rem 0 }
td, th { padding: .15rem 1rem .15rem 0; text-align: left; vertical-align: top }
td.n, th.n { text-align: right; white-space: nowrap }
code { font: .92em ui-monospace, monospace; overflow-wrap: anywhere }
svg { max-width: 100%; height: auto }
"""
_HOW = (
    "Saved is the number of reads times the difference of two medians: reads from a replica "
    "against reads of the same kind that it left alone in shadow, else against those of the "
    "original. Intervals hold in 19 of 20 cases, for reads that are independent and at least six. "
    "Reads from the device and from memory are not told apart. Predicted is what advice said when "
    "the replica was built."
)


def report_page(
    title: str,
    fields: Sequence[tuple[str, str]],
    records: Sequence[PatternRecord],
    replicas: Sequence[ReplicaSavings],
    receipt: Mapping[str, Any],
) -> str:
    """Return the page.

    Parameters
    ----------
    title
        What was read.
    fields
        Names and values: when and where the page was made, and sums.
    records
        Kinds of read, those first that took most.
    receipt
        The same as JSON, which the page carries for programs.
    """
    of_replicas = [
        (f"{one.replica.file}:{one.replica.dataset}", *replica_cells(one)) for one in replicas
    ]
    of_reads = [
        ("" if number else f"{record.file}:{record.dataset}", *cells)
        for record in records
        for number, cells in enumerate(pattern_cells(record.pattern))
    ]
    parts = [
        "<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width'>",
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        _table(("", ""), fields),
        "<h2>Replicas</h2>",
        _figure(draw_replica_gains, _bars(replicas)),
        _table(("of", *REPLICA_COLUMNS), of_replicas) if replicas else "<p>None was built.</p>",
        "<h2>Reads</h2>",
        _figure(draw_read_gains, _read_gains(records)),
        _table(("dataset", *PATTERN_COLUMNS), of_reads) if records else "<p>None was traced.</p>",
        f"<h2>How this was measured</h2><p>{escape(_HOW)}</p>",
        f"<script type='application/json' id='receipt'>{_embedded(receipt)}</script>",
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _embedded(value: Mapping[str, Any]) -> str:
    """Return JSON that cannot end the element that it stands in."""
    return json.dumps(value, allow_nan=False).replace("<", "\\u003c")


def _figure(draw: Any, values: Sequence[Any]) -> str:  # noqa: ANN401  (each of its own values)
    """Return a figure as an element of the page; empty where there is nothing to draw."""
    if not values:
        return ""
    figure: Figure = draw(values)
    text = rendered(figure, "svg").decode()
    return text[text.index("<svg") :]


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; columns whose name ends in ``>`` are set to the right."""
    kinds = [" class='n'" if column.endswith(">") else "" for column in columns]

    def row(cells: Sequence[str], tag: str) -> str:
        return (
            "<tr>"
            + "".join(
                f"<{tag}{kind}>{escape(cell)}</{tag}>"
                for kind, cell in zip(kinds, cells, strict=True)
            )
            + "</tr>"
        )

    head = row([column.rstrip(">") for column in columns], "th") if any(columns) else ""
    return f"<table>{head}{''.join(row(cells, 'td') for cells in rows)}</table>"


def _median(times: ReadTimes) -> Estimate:
    low, high = times.median_interval_s
    return Estimate(seconds=times.median_s, low=low, high=high)


def _read_gains(records: Sequence[PatternRecord]) -> list[ReadGain]:
    """Return the kinds of read that a replica served and that can be compared."""
    found = []
    for record in records:
        pairs = [
            (gain.compared, gain.times)
            for gain in measured_gains(record.pattern)
            if gain.compared is not None and not gain.times.is_of_original
        ]
        if pairs:
            without, newest = max(pairs, key=lambda pair: pair[1].served_by)
            found.append(
                ReadGain(
                    label=f"{record.dataset}: {record.pattern.description}",
                    original=_median(without),
                    replica=_median(newest),
                )
            )
    return found[:_MOST_ROWS]


def _bars(replicas: Sequence[ReplicaSavings]) -> list[ReplicaGainBar]:
    """Return the replicas of which something is known, those first that saved most."""
    found = []
    for one in replicas:
        gain = one.gain
        if gain.saved_s is None or gain.saved_low_s is None or gain.saved_high_s is None:
            continue
        found.append(
            ReplicaGainBar(
                label=f"replica {one.replica.id} of {one.replica.dataset}, {one.replica.state}",
                saved=Estimate(seconds=gain.saved_s, low=gain.saved_low_s, high=gain.saved_high_s),
                build_s=one.replica.build_s or 0.0,
            )
        )
    return sorted(found, key=lambda bar: -bar.saved.seconds)[:_MOST_ROWS]
