"""Every error has an exit status, and the table in the manual is the one in the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sds import errors
from sds.cli.exit_codes import ExitCode, exit_code_of

MANUAL = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
EVERY_ERROR = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.SdsError)
]


@pytest.mark.parametrize("kind", EVERY_ERROR)
def test_every_error_ends_with_a_status_that_is_no_success(kind):
    assert exit_code_of(kind("x")) not in {ExitCode.SUCCESS, ExitCode.INTERRUPTED}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.SelectionError("x"), 2),
        (errors.LayoutError("x"), 2),
        (errors.FileMissingError("x"), 3),
        (errors.DatasetNotFoundError("x"), 3),
        (errors.NotHdf5Error("x"), 4),
        (errors.TruncatedFileError("x"), 4),
        (errors.VerificationError("x"), 4),
        (errors.ServerUnreachableError("x"), 5),
        (errors.BusyError("x"), 5),
        (errors.PermissionDeniedError("x"), 6),
        (PermissionError("x"), 6),
        (errors.InsufficientSpaceError("x"), 7),
        (errors.UnsupportedError("x"), 8),
        (errors.SourceChangedError("x"), 1),
        (OSError("x"), 1),
    ],
)
def test_statuses_are_as_documented(error, code):
    assert exit_code_of(error) == code


def test_the_manual_lists_every_status():
    table = MANUAL.read_text().split("## Exit status")[1].split("##")[0]
    listed = {
        int(n)
        for row in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE)
        for n in row.split(",")
    }
    assert listed == {int(code) for code in ExitCode}
