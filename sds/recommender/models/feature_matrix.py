"""Features of many operations in columns, as models predict from them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from sds import _native
from sds.errors import SdsValueError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.geometry import BlockFeatures

# Names of sds_model_inputs, in its order.
FEATURES: tuple[str, ...] = _native.MODEL_INPUTS


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureRow:
    """Features of one operation, as native/include/sds/cost.h lists and explains them."""

    block_depth: float
    block_gap_count: float
    block_gap_distance: float
    block_gap_paper: float
    processes_per_ost: float
    runs_most: float
    bytes_touched_most: float
    bytes_useful: float
    n_processes: float
    n_aggregators: float
    first_visits: float
    later_fetches: float
    trips_most: float
    fetch_distance: float
    step_bytes: float
    ost_bytes: float
    disk_segments: float
    disk_blocks: float
    disk_distance: float
    sieve_requests: float
    sieve_jumps: float
    sieve_bytes: float


if tuple(f.name for f in fields(FeatureRow)) != _native.MODEL_INPUTS:
    raise ImportError(
        f"the native core counts {_native.MODEL_INPUTS}: it was built from another version; "
        "install the package again"
    )


@dataclass(frozen=True, slots=True, eq=False)
class FeatureMatrix:
    """Features of n operations (native/include/sds/cost.h says what each is).

    Attributes
    ----------
    columns
        Shape (len(FEATURES), n), float64, C order.
    """

    columns: NDArray[np.float64]

    def __post_init__(self) -> None:
        columns = self.columns
        if columns.ndim != 2 or columns.shape[0] != len(FEATURES):
            raise SdsValueError(
                f"features of shape {columns.shape} are not one row for each of "
                f"{', '.join(FEATURES)}"
            )
        wrong = ~np.isfinite(columns) | (columns < 0)
        if wrong.any():
            row, i = np.argwhere(wrong)[0]
            raise SdsValueError(
                f"{FEATURES[row]} of operation {i} is {columns[row, i]}: what is touched is "
                "counted, so give a finite number that is not negative"
            )

    def __len__(self) -> int:
        return int(self.columns.shape[1])

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        column: NDArray[np.float64] = self.columns[FEATURES.index(name)]
        return column

    def take(self, indices: NDArray[np.intp] | Sequence[int]) -> Self:
        """Return the operations at some indices."""
        return type(self)(np.ascontiguousarray(self.columns[:, indices]))

    @classmethod
    def _of_rows(cls, rows: list[tuple[float, ...]]) -> Self:
        matrix = np.array(rows, dtype=np.float64).reshape(len(rows), len(FEATURES))
        return cls(np.ascontiguousarray(matrix.T))

    @classmethod
    def of_reads(
        cls, features: Sequence[BlockFeatures], processes_per_ost: Sequence[float]
    ) -> Self:
        """Return the features of operations of which one read each is known.

        The other processes are taken to read as much, as many of them from its OSTs as P says.
        """
        return cls._of_rows(
            [
                _native.model_inputs_of_read(f.native(), p)
                for f, p in zip(features, processes_per_ost, strict=True)
            ]
        )

    @classmethod
    def of_operations(cls, operations: Sequence[FeatureRow]) -> Self:
        """Return the features of operations known whole."""
        return cls._of_rows(
            [tuple(float(getattr(one, name)) for name in FEATURES) for one in operations]
        )
