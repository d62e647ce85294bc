"""What became of each test of a suite, and what the connector changed about it.

A suite is compared test by test: equal counts could hide a test that fails and another that
begins to pass.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


class Outcome(StrEnum):
    """What became of one test."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    MISSING = "missing"
    """It was not reached: the program ended before, or the other run has it alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRun:
    """One run of a suite.

    Attributes
    ----------
    outcomes
        By test.
    exit_status
        Of the suite: a crash at its end leaves every test's outcome as it was.
    wall_s, cpu_s
        Of the whole run; CPU time of all its processes.
    outputs
        Digest of what a test printed and wrote, where that is to be the same in every run.
    """

    outcomes: dict[str, Outcome]
    exit_status: int
    wall_s: float
    cpu_s: float
    outputs: dict[str, str] = field(default_factory=dict)


def numbered(outcomes: Iterable[tuple[str, Outcome]]) -> dict[str, Outcome]:
    """Return outcomes by test, the second of a name as ``name #2``.

    >>> numbered([("a", Outcome.PASSED), ("a", Outcome.FAILED)])["a #2"].value
    'failed'
    """
    seen: Counter[str] = Counter()
    found = {}
    for name, outcome in outcomes:
        seen[name] += 1
        found[name if seen[name] == 1 else f"{name} #{seen[name]}"] = outcome
    return found


def junit_outcomes(path: Path) -> dict[str, Outcome]:
    """Return what a JUnit report says; nothing where the run ended before it was written."""
    if not path.exists():
        return {}

    def outcome(case: ET.Element) -> Outcome:
        if case.find("failure") is not None or case.find("error") is not None:
            return Outcome.FAILED
        not_run = case.find("skipped") is not None or case.get("status") in {"notrun", "disabled"}
        return Outcome.SKIPPED if not_run else Outcome.PASSED

    def name(case: ET.Element) -> str:
        # ctest gives a test the class of its own name.
        own, of_class = case.get("name", ""), case.get("classname", "")
        return own if of_class in {"", own} else f"{of_class}::{own}"

    tree = ET.parse(path)  # noqa: S314  (written by the suite that was just run)
    return numbered((name(case), outcome(case)) for case in tree.iter("testcase"))


_API_TEST = re.compile(
    r"(?P<indent> *)Testing (?P<name>[^\n]*?)(?: {2,}|\n| (?=PASSED|\*FAILED|-SKIP))"
    r"|(?P<outcome>PASSED|\*FAILED\*|-SKIP-)"
)
_API_OUTCOMES = {
    "PASSED": Outcome.PASSED,
    "*FAILED*": Outcome.FAILED,
    "-SKIP-": Outcome.SKIPPED,
}


def api_test_outcomes(output: str) -> dict[str, Outcome]:
    r"""Return what HDF5's API tests printed: each test by the group of tests that it is part of.

    >>> text = "Testing H5Fopen  \n  Testing read-only    PASSED\n  Testing read-write   *FAILED*"
    >>> {name: outcome.value for name, outcome in api_test_outcomes(text).items()}
    {'H5Fopen / read-only': 'passed', 'H5Fopen / read-write': 'failed'}
    """
    found: list[tuple[str, Outcome]] = []
    group = name = ""
    for part in _API_TEST.finditer(output + "\n"):
        if part["outcome"] is None:
            name = part["name"].strip()
            if part["indent"]:
                name = f"{group} / {name}"
            else:
                group = name
        else:
            # A group may have a result of its own behind those of its parts.
            found.append((name or group, _API_OUTCOMES[part["outcome"]]))
            name = ""
    return numbered(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A suite natively and under the connector.

    Attributes
    ----------
    native, connector
        How many tests had each outcome.
    new_failures
        Tests that fail, or are not reached, in a run under the connector and in no native one;
        outputs that are not the native ones; exit statuses of the suite that no native run had.
    native_only
        Those that would be new failures, but can succeed with the native connector alone.
    differences
        Other tests that have another outcome than natively, with both.
    wall_ratio, cpu_ratio
        Median under the connector / median of the native runs.
    """

    native: dict[Outcome, int]
    connector: dict[Outcome, int]
    new_failures: list[str] = field(default_factory=list)
    native_only: list[str] = field(default_factory=list)
    native_failures: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    wall_ratio: float
    cpu_ratio: float
    native_wall_s: float


def _worst(runs: Iterable[Mapping[str, Outcome]], test: str) -> Outcome:
    order = [Outcome.FAILED, Outcome.MISSING, Outcome.SKIPPED, Outcome.PASSED]
    return min((run.get(test, Outcome.MISSING) for run in runs), key=order.index)


def compare(
    native: list[SuiteRun], connector: list[SuiteRun], *, native_only: frozenset[str] = frozenset()
) -> Comparison:
    """Compare runs of one suite; a test counts by its worst outcome in either list.

    native_only
        Tests that no connector but the native one can pass.
    """
    tests = sorted({test for run in (*native, *connector) for test in run.outcomes})
    pairs = {
        test: (
            _worst((run.outcomes for run in native), test),
            _worst((run.outcomes for run in connector), test),
        )
        for test in tests
    }
    bad = {Outcome.FAILED, Outcome.MISSING}
    new = [
        test
        for test, (was, now) in pairs.items()
        if now in bad and was not in {Outcome.FAILED, now}
    ]
    expected = {test: digest for run in native for test, digest in run.outputs.items()}
    new += [
        f"{test}: another output"
        for test in sorted(expected)
        if any(run.outputs.get(test) != expected[test] for run in connector)
    ]
    statuses = {run.exit_status for run in native}
    excused = [test for test in new if test in native_only]
    new = [test for test in new if test not in native_only]
    # A suite fails for a test that is excused, but is not ended by a signal.
    new += [
        f"exit status {run.exit_status}, natively {sorted(statuses)}"
        for run in connector
        if run.exit_status not in statuses and not (excused and run.exit_status > 0)
    ]
    return Comparison(
        native=dict(Counter(was for was, _ in pairs.values())),
        connector=dict(Counter(now for _, now in pairs.values())),
        new_failures=new,
        native_only=excused,
        native_failures=[test for test, (was, _) in pairs.items() if was == Outcome.FAILED],
        differences=[
            f"{test}: {was} -> {now}"
            for test, (was, now) in pairs.items()
            if was != now and test not in {*new, *excused}
        ],
        wall_ratio=median(r.wall_s for r in connector) / median(r.wall_s for r in native),
        cpu_ratio=median(r.cpu_s for r in connector) / median(r.cpu_s for r in native),
        native_wall_s=median(r.wall_s for r in native),
    )
