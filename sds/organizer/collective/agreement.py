"""Errors of one rank, raised on all: no rank waits for one that has given up."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from mpi4py import MPI

from sds.errors import SdsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mpi4py.MPI import Comm

T = TypeVar("T")


class OtherRankError(SdsError):
    """An error of another rank.

    Attributes
    ----------
    original
        The error, as that rank has it.
    """

    def __init__(self, message: str, original: Exception) -> None:
        super().__init__(message)
        self.original = original


def is_raised_on_all(error: Exception) -> bool:
    """Return whether every rank has this error, or one that says so: none waits for another."""
    return isinstance(error, OtherRankError) or getattr(error, "is_on_all", False)


def raise_on_all(comm: Comm, error: Exception | None) -> None:
    """Raise the error of this rank, or that of the first rank that has one.

    All ranks call it together.

    Raises
    ------
    OtherRankError
        Where another rank has an error; names the rank.
    """
    failed = comm.allreduce(comm.size if error is None else comm.rank, op=MPI.MIN)
    if failed == comm.size:
        return
    of_first = comm.bcast(error, root=failed)
    if error is not None:
        error.is_on_all = True  # type: ignore[attr-defined]  # see is_raised_on_all
        raise error
    raise OtherRankError(f"rank {failed}: {of_first}", of_first) from of_first


def on_all(comm: Comm, call: Callable[[], T]) -> T:
    """Return what a call returns on this rank, if it raises on none."""
    error: Exception | None = None
    try:
        returned = call()
    except Exception as raised:  # noqa: BLE001  (raised below: the others must not wait)
        error = raised
    raise_on_all(comm, error)
    return returned
