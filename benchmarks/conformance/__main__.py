"""Peers' test suites natively and under the connector: ``python -m benchmarks.conformance``.

Each suite runs natively and under the connector (tracing and redirection on), in turns, on the
same installation. Outcomes are compared test by test. The exit status is 1 where a test fails
under the connector that does not fail natively.

Results are kept as JSON beside each other, so that suites can be run one at a time, and written as
a table into docs/reference/conformance.md with --update.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.conformance.report import load_results, save_result, summary, update_document
from benchmarks.conformance.running import run_both
from benchmarks.conformance.suites import cache_directory, suites

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "reference" / "conformance.md"


def main() -> int:
    """Run the named suites; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.conformance",
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("suite", nargs="*", help="all that can be run, where none is named")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each side, in turns")
    parser.add_argument(
        "--hdf5-source", type=Path, metavar="DIR",
        help="full source tree of HDF5 (with test/ and tools/), for its tests",
    )  # fmt: skip
    parser.add_argument(
        "--netcdf-source", type=Path, metavar="DIR", help="source tree of netCDF-C, for its tests"
    )
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "conformance")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave the runs' files here")
    parser.add_argument("--update", action="store_true", help=f"write the table into {DOCUMENT}")
    options = parser.parse_args()

    found = suites(
        cache_directory(),
        hdf5_source=options.hdf5_source, netcdf_source=options.netcdf_source,
    )  # fmt: skip
    known = {suite.name: suite for suite in found}
    unknown = [name for name in options.suite if name not in known]
    if unknown:
        parser.error(
            f"no suite is named {', '.join(unknown)}; there are {', '.join(known)}"
            " (more with --hdf5-source and --netcdf-source)"
        )
    failed = False
    names = options.suite or ([] if options.update else list(known))
    for name in names:
        with tempfile.TemporaryDirectory(prefix="sds-conformance-") as scratch:
            result = run_both(known[name], options.keep or Path(scratch), rounds=options.rounds)
        save_result(result, options.results)
        print(summary(result), flush=True)
        failed = failed or bool(result.comparison.new_failures)
    if options.update:
        update_document(DOCUMENT, load_results(options.results))
    return 1 if failed else 0


sys.exit(main())
