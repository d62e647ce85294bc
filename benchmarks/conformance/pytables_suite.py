"""Runs PyTables' own tests and writes what became of each: ``python pytables_suite.py RESULT``."""
# ruff: noqa: N802  (unittest's names)

from __future__ import annotations

import json
import sys
import unittest
from pathlib import Path
from typing import Any

from tables.tests import test_suite


class Recorder(unittest.TextTestResult):
    """Notes the outcome of every test, in the order in which they run."""

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401  (unittest's)
        super().__init__(*arguments, **options)
        self.outcomes: list[tuple[str, str]] = []

    def addSuccess(self, test: unittest.TestCase) -> None:
        """Note a test that has passed."""
        super().addSuccess(test)
        self.outcomes.append((test.id(), "passed"))

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: ANN401
        """Note a failed assertion."""
        super().addFailure(test, err)
        self.outcomes.append((test.id(), "failed"))

    def addError(self, test: unittest.TestCase, err: Any) -> None:  # noqa: ANN401
        """Note a test that has raised."""
        super().addError(test, err)
        self.outcomes.append((test.id(), "failed"))

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:  # noqa: ANN401
        """Note a part of a test."""
        super().addSubTest(test, subtest, err)
        self.outcomes.append((subtest.id(), "passed" if err is None else "failed"))

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        """Note a test that was left out."""
        super().addSkip(test, reason)
        self.outcomes.append((test.id(), "skipped"))


runner = unittest.TextTestRunner(resultclass=Recorder)
result = runner.run(test_suite.suite())
Path(sys.argv[1]).write_text(json.dumps(result.outcomes))
