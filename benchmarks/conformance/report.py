"""Results of suites: kept as JSON, told in words, written as a table."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from benchmarks.conformance.outcomes import Comparison, Outcome
from benchmarks.conformance.running import SuiteResult

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

BEGIN = "<!-- written by `python -m benchmarks.conformance --update` -->"
END = "<!-- end of what is written -->"


def save_result(result: SuiteResult, directory: Path) -> None:
    """Keep a result under the name of its suite."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{result.suite}.json").write_text(
        json.dumps(dataclasses.asdict(result), indent=1) + "\n"
    )


def load_results(directory: Path) -> list[SuiteResult]:
    """Return all results that were kept."""
    results = []
    for path in sorted(directory.glob("*.json")):
        kept = json.loads(path.read_text())
        counts = kept.pop("comparison")
        for side in ("native", "connector"):
            counts[side] = {Outcome(outcome): n for outcome, n in counts[side].items()}
        results.append(SuiteResult(comparison=Comparison(**counts), **kept))
    return results


def counted(outcomes: dict[Outcome, int]) -> str:
    """Return how many passed, failed and so on.

    >>> counted({Outcome.PASSED: 3, Outcome.FAILED: 1})
    '3 passed, 1 failed'
    """
    return ", ".join(f"{outcomes[kind]:,} {kind}" for kind in Outcome if kind in outcomes)


def summary(result: SuiteResult) -> str:
    """Return a result in words."""
    seen = result.comparison
    timing = (
        f"time ratio {seen.wall_ratio:.2f} (CPU {seen.cpu_ratio:.2f}), {result.rounds} runs of each"
    )
    lines = [
        f"{result.suite}: {result.versions}",
        f"  native     {counted(seen.native)}; {seen.native_wall_s:.1f} s",
        f"  connector  {counted(seen.connector)}; {timing}",
        f"  reads traced: {result.reads_traced:,}; served by replicas: {result.reads_served:,}",
        f"  new failures: {len(seen.new_failures)}",
        *(f"    {test}" for test in seen.new_failures),
    ]
    if seen.native_only:
        lines += ["  native connector alone:", *(f"    {test}" for test in seen.native_only)]
    if seen.native_failures:
        lines += ["  failures of the native library:", *(f"    {t}" for t in seen.native_failures)]
    if seen.differences:
        lines += ["  other differences:", *(f"    {test}" for test in seen.differences)]
    return "\n".join(lines)


def new_failures(seen: Comparison) -> str:
    """Return how many there are, and how many more the native connector alone could pass."""
    named = f" ({len(seen.native_only)} named below)" if seen.native_only else ""
    return f"{len(seen.new_failures)}{named}"


HEADING = (
    "| Suite | Versions | Native | Under SDS | New failures | Time (CPU), ratio |",
    "|---|---|---|---|---|---|",
)


def row(result: SuiteResult) -> str:
    """Return a result as a row of a table in Markdown."""
    seen = result.comparison
    return (
        f"| {result.title} | {result.versions} | {counted(seen.native)} "
        f"| {counted(seen.connector)} | {new_failures(seen)} "
        f"| {seen.wall_ratio:.2f} ({seen.cpu_ratio:.2f}) |"
    )


def table(results: Sequence[SuiteResult], before: str = "") -> str:
    """Return the results as a Markdown table.

    before
        An earlier table: rows of suites and versions that are not among the results stay in it.
    """
    rows = [line for line in before.splitlines() if line.startswith("| ") and line not in HEADING]
    for new in map(row, results):
        title, versions = new.split(" | ")[:2]
        same = [i for i, old in enumerate(rows) if old.startswith(f"{title} | ")]
        again = [i for i in same if rows[i].startswith(f"{title} | {versions} | ")]
        if again:
            rows[again[0]] = new
        else:
            rows.insert(same[-1] + 1 if same else len(rows), new)
    return "\n".join([*HEADING, *rows])


def update_document(path: Path, results: Sequence[SuiteResult]) -> None:
    """Write results into the table in a document; the rows of other suites and versions stay.

    Raises
    ------
    ValueError
        If the document does not hold the two marks between which the table stands.
    """
    text = path.read_text()
    before, begin, rest = text.partition(BEGIN)
    old, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{path} lacks {BEGIN!r} and {END!r}, between which the table is written")
    path.write_text(f"{before}{BEGIN}\n\n{table(results, old)}\n\n{END}{after}")
