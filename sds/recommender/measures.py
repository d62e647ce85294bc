"""What models predict from, in columns: one row per measure, one column per operation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from sds import _native
from sds.errors import SdsValueError
from sds.geometry import IoMode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.geometry import BlockFeatures, OperationFeatures

# Names of sds_measures, in its order.
MEASURES: tuple[str, ...] = _native.MEASURES


@dataclass(frozen=True, slots=True, eq=False)
class MeasureTable:
    """Measures of n operations (native/include/sds/cost.h says what each is).

    Attributes
    ----------
    columns
        Shape (len(MEASURES), n), float64, C order.
    """

    columns: NDArray[np.float64]

    def __post_init__(self) -> None:
        columns = self.columns
        if columns.ndim != 2 or columns.shape[0] != len(MEASURES):
            raise SdsValueError(
                f"measures of shape {columns.shape} are not one row for each of "
                f"{', '.join(MEASURES)}"
            )
        wrong = ~np.isfinite(columns) | (columns < 0)
        if wrong.any():
            row, i = np.argwhere(wrong)[0]
            raise SdsValueError(
                f"{MEASURES[row]} of operation {i} is {columns[row, i]}: what is touched is "
                "counted, so give a finite number that is not negative"
            )

    def __len__(self) -> int:
        return int(self.columns.shape[1])

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        column: NDArray[np.float64] = self.columns[MEASURES.index(name)]
        return column

    def take(self, indices: NDArray[np.intp] | Sequence[int]) -> Self:
        """Return the operations at some indices."""
        return type(self)(np.ascontiguousarray(self.columns[:, indices]))

    @classmethod
    def _of_rows(cls, rows: list[tuple[float, ...]]) -> Self:
        matrix = np.array(rows, dtype=np.float64).reshape(len(rows), len(MEASURES))
        return cls(np.ascontiguousarray(matrix.T))

    @classmethod
    def of_reads(
        cls, features: Sequence[BlockFeatures], processes_per_ost: Sequence[float]
    ) -> Self:
        """Return the measures of operations of which one read each is known.

        The other processes are taken to read as much, as many of them from its OSTs as P says.
        """
        return cls._of_rows(
            [
                _native.measures_of_read(f.native(), p)
                for f, p in zip(features, processes_per_ost, strict=True)
            ]
        )

    @classmethod
    def of_operations(
        cls,
        operations: Sequence[OperationFeatures],
        unions: Sequence[OperationFeatures] = (),
    ) -> Self:
        """Return the measures of operations known whole.

        unions: what the processes of each touch together, where operations are independent reads;
        empty: what they touch is taken to differ.
        """
        return cls._of_rows(
            [_row_of(f, u) for f, u in zip(operations, unions or operations, strict=True)]
        )


def _row_of(f: OperationFeatures, union: OperationFeatures) -> tuple[float, ...]:
    # P is aggregators per OST of collective operations.
    collective = f.mode is IoMode.COLLECTIVE
    found = {
        "block_depth": f.block_depth,
        "block_gap_count": f.block_gap_count,
        "block_gap_distance": f.block_gap_distance,
        "block_gap_paper": f.block_gap_paper or 0,
        "processes_per_ost": f.processes_per_ost,
        "runs_most": f.runs_most,
        "bytes_touched_most": f.bytes_touched_most,
        "bytes_useful": f.bytes_useful,
        "n_processes": f.n_processes,
        "n_aggregators": f.processes_per_ost * f.osts_touched if collective else 0,
        "segments_most": f.segments_most,
        "ost_bytes": f.ost_bytes_touched,
        "disk_requests": f.disk_segments,
        "disk_segments": union.disk_segments,
        "disk_blocks": union.disk_blocks,
        "disk_distance": union.disk_gap_distance,
        # Of operations HDF5's requests are not counted: each run is taken to be one.
        "sieve_requests": f.runs_most,
        "sieve_jumps": f.runs_most,
        "sieve_bytes": f.bytes_touched_most,
    }
    return tuple(float(found[name]) for name in MEASURES)
