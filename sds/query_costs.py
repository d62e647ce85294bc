"""What a query takes by a scan, and from a sorted replica: predictions, no file touched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.columns import Table
    from sds.engine import IoParameters

# Beyond what moving their bytes takes; measured by benchmarks/query.py.
_OPEN_S = 2e-3
_COMPARE_S_PER_ROW = 1e-9
_ORDER_S_PER_ROW = 1.2e-7


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryCosts:
    """What a query is predicted to take, in seconds.

    Attributes
    ----------
    n_matching
        Rows that the key leaves over.
    scan_s, sorted_s
        From the original and from the sorted replica; of cached files, and of files that are not.
    """

    n_matching: int
    scan_s: tuple[float, float]
    sorted_s: tuple[float, float]

    @property
    def is_sorted_faster(self) -> bool:
        """Whether the replica is predicted faster in both cases: files cached, and not."""
        pairs = zip(self.sorted_s, self.scan_s, strict=True)
        return all(of_replica < of_scan for of_replica, of_scan in pairs)


def predict_query(
    table: Table,
    compared: Sequence[str],
    returned: Sequence[str],
    *,
    n_matching: int,
    n_ranges: int,
    parameters: IoParameters,
) -> QueryCosts:
    """Return what a query takes by scanning, and from a sorted replica.

    Parameters
    ----------
    compared, returned
        Columns of the condition and of the result.
    n_matching, n_ranges
        Rows that the condition on the key leaves over, and in how many pieces they lie in the
        replica.
    parameters
        What reads from the file system cost.
    """
    sizes = {column.name: column.size_bytes for column in table.columns}
    others = [name for name in returned if name not in compared]
    row_bytes = sum(sizes[name] for name in (*compared, *others))
    compared_bytes = sum(sizes[name] for name in compared)
    if table.is_compound:
        compared_bytes = row_bytes = sum(sizes.values())
    # Matches are everywhere, or in one place: the less is what a scan cannot do without.
    scan_bytes = table.n_rows * compared_bytes + n_matching * (row_bytes - compared_bytes)
    scan_cpu_s = table.n_rows * len(compared) * _COMPARE_S_PER_ROW
    number_bytes = 8
    held = sum(sizes[name] for name in dict.fromkeys((*compared, *returned))) + number_bytes
    sorted_bytes = n_matching * held
    n_requests = (len(dict.fromkeys((*compared, *returned))) + 1) * max(1, n_ranges) + 4
    sorted_cpu_s = _OPEN_S + n_matching * _ORDER_S_PER_ROW
    copy_s, device_s = parameters.copy_s_per_byte, parameters.buffered_s_per_byte
    cold_s = n_requests * parameters.reads.startup_s
    return QueryCosts(
        n_matching=n_matching,
        scan_s=(
            scan_cpu_s + scan_bytes * copy_s,
            scan_cpu_s + scan_bytes * max(copy_s, device_s),
        ),
        sorted_s=(
            sorted_cpu_s + sorted_bytes * copy_s,
            sorted_cpu_s + sorted_bytes * max(copy_s, device_s) + cold_s,
        ),
    )
