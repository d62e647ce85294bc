"""Exit statuses of ``sds``, for every error of :mod:`sds.errors`."""

from __future__ import annotations

import enum
import errno

from sds import errors


class UsageError(Exception):
    """Arguments that a command cannot take."""


class ExitCode(enum.IntEnum):
    """Exit statuses; docs/reference/cli.md lists them."""

    SUCCESS = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    DAMAGED = 4
    SERVER = 5
    PERMISSION = 6
    NO_SPACE = 7
    UNSUPPORTED = 8
    NOT_EXECUTABLE = 126
    COMMAND_NOT_FOUND = 127
    INTERRUPTED = 130
    BROKEN_PIPE = 141


# A class counts for its subclasses; the first that fits decides.
_BY_ERROR: tuple[tuple[type[Exception], ExitCode], ...] = (
    (UsageError, ExitCode.USAGE),
    (errors.SdsValueError, ExitCode.USAGE),
    (errors.NotFoundError, ExitCode.NOT_FOUND),
    (errors.FormatError, ExitCode.DAMAGED),
    (errors.VerificationError, ExitCode.DAMAGED),
    (errors.SourceChangedError, ExitCode.FAILED),
    (errors.ServerError, ExitCode.SERVER),
    (errors.BusyError, ExitCode.SERVER),
    (errors.CatalogError, ExitCode.FAILED),
    (errors.PermissionDeniedError, ExitCode.PERMISSION),
    (errors.InsufficientSpaceError, ExitCode.NO_SPACE),
    (errors.UnsupportedError, ExitCode.UNSUPPORTED),
    (errors.RankDeficientError, ExitCode.FAILED),
    (errors.SdsError, ExitCode.FAILED),
    (PermissionError, ExitCode.PERMISSION),
    (FileNotFoundError, ExitCode.NOT_FOUND),
    (OSError, ExitCode.FAILED),
)


def exit_code_of(error: Exception) -> ExitCode:
    """Return the exit status for an error that ends a command."""
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return ExitCode.NO_SPACE
    for kind, code in _BY_ERROR:
        if isinstance(error, kind):
            return code
    return ExitCode.FAILED
