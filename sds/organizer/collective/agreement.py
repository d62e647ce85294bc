"""Errors of one rank, raised on all: no rank waits for one that has given up."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from mpi4py import MPI

from sds.errors import SdsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mpi4py.MPI import Comm

T = TypeVar("T")


def raise_on_all(comm: Comm, error: Exception | None) -> None:
    """Raise the error of this rank; or of the first rank that has one, as its cause.

    All ranks call it together.

    Raises
    ------
    SdsError
        Where another rank has an error; names the rank.
    """
    failed = comm.allreduce(comm.size if error is None else comm.rank, op=MPI.MIN)
    if failed == comm.size:
        return
    of_first = comm.bcast(error, root=failed)
    if error is not None:
        raise error
    raise SdsError(f"rank {failed}: {of_first}") from of_first


def on_all(comm: Comm, call: Callable[[], T]) -> T:
    """Return what a call returns on this rank, if it raises on none."""
    error: Exception | None = None
    try:
        returned = call()
    except (SdsError, OSError, MemoryError) as raised:
        error = raised
    raise_on_all(comm, error)
    return returned
