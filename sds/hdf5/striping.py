"""Striping of a file: as Lustre reports it, else as configured, else one OST."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from sds.errors import FormatError
from sds.geometry.lustre import stripes_of_attribute, stripes_of_lfs
from sds.geometry.storage_layout import LOCAL_DISK_STRIPES, FileStripes

if TYPE_CHECKING:
    from sds.geometry.storage_layout import StripeLayout

_ATTRIBUTE = "lustre.lov"
_LFS_TIMEOUT_S = 10
_MAX_OUTPUT_CHARACTERS = 16 << 20  # 2000 OSTs in each of 4096 components take less

# What getxattr answers where a file is on no Lustre, or has no layout of its own.
_NOT_THERE = frozenset({errno.ENODATA, errno.ENOTSUP, errno.EOPNOTSUPP})


class StripesSource(StrEnum):
    """Source of what is known about the striping of a file."""

    ATTRIBUTE = "from lustre.lov"
    LFS = "from lfs getstripe"
    CONFIGURED = "configured"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStripes:
    """Striping of a file, and where that is known from.

    Attributes
    ----------
    problem
        Why Lustre's own answer could not be used, where it gave one; None: nothing to say.
    """

    stripes: FileStripes
    source: StripesSource
    problem: str | None = None


def find_stripes(
    path: str | os.PathLike[str], configured: StripeLayout | None = None
) -> FoundStripes:
    """Return how a file is striped.

    The first that answers: its extended attribute ``lustre.lov``; ``lfs getstripe -y``, where
    there is an ``lfs``; what is configured; one OST.
    """
    problems: list[str] = []
    for source, ask in ((StripesSource.ATTRIBUTE, _ask_attribute), (StripesSource.LFS, _ask_lfs)):
        try:
            stripes = ask(Path(path))
        except FormatError as error:
            problems.append(str(error))
        else:
            if stripes is not None:
                return FoundStripes(stripes=stripes, source=source)
    problem = "; ".join(problems) or None
    if configured is not None:
        return FoundStripes(
            stripes=FileStripes.of(configured), source=StripesSource.CONFIGURED, problem=problem
        )
    return FoundStripes(
        stripes=FileStripes.of(LOCAL_DISK_STRIPES), source=StripesSource.ASSUMED, problem=problem
    )


def _ask_attribute(path: Path) -> FileStripes | None:
    """Return the striping of the extended attribute; None where there is none."""
    try:
        value = os.getxattr(path, _ATTRIBUTE)
    except OSError as error:
        if error.errno in _NOT_THERE or isinstance(error, FileNotFoundError):
            return None
        message = f"{_ATTRIBUTE} of {path} cannot be read: {error.strerror}"
        raise FormatError(message) from error
    return stripes_of_attribute(value)


@lru_cache(maxsize=1)
def _lfs(path: str | None) -> str | None:
    """Return the program in that PATH; a process looks once, however many files it asks about."""
    return shutil.which("lfs", path=path)


def _ask_lfs(path: Path) -> FileStripes | None:
    """Return the striping that lfs prints; None without lfs, or off Lustre."""
    lfs = _lfs(os.environ.get("PATH"))
    if lfs is None or not path.exists():
        return None
    # An absolute path, for a name that begins with - would be an option.
    command = [lfs, "getstripe", "-y", str(path.resolve())]
    try:
        answer = subprocess.run(  # noqa: S603  (the arguments are fixed)
            command,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_LFS_TIMEOUT_S,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FormatError(f"{lfs} gives no answer: {error}") from error
    if answer.returncode != 0:
        return None
    if len(answer.stdout) > _MAX_OUTPUT_CHARACTERS:
        raise FormatError(f"{lfs} prints {len(answer.stdout)} characters about one file")
    return stripes_of_lfs(answer.stdout)
