"""Predict the time of a query by a scan and from a sorted replica. Pure.

What undoing the filters of a scanned column takes is as measured of the file, where that is given:
by advice, and by sorted replicas. Else deflate is taken to need 0.3 ns per byte that comes out, the
least that zlib was seen to need (of constant bytes), and other filters nothing: then a scan is
taken for no slower than it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sds.engine import IoParameters
    from sds.hdf5.columns import Column, Table

# Beyond what moving their bytes takes; measured by benchmarks/query.py.
_OPEN_S = 2e-3
_COMPARE_S_PER_ROW = 1e-9
_ORDER_S_PER_ROW = 1.2e-7
# Matches per window below which their span is that of two.
_FEW = 1e-3
_DEFLATE = 1  # H5Z_FILTER_DEFLATE
_DEFLATE_S_PER_BYTE = 0.3e-9
WINDOW_BYTES = 8 << 20
"""Bytes of rows in memory at once: a scan reads the columns of a result window by window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryCosts:
    """Predicted times of a query, in seconds.

    Attributes
    ----------
    n_matching
        Rows that the key leaves over.
    scan_s, sorted_s
        From the original and from the sorted replica; of cached files, and of files that are not.
        The scan, where all matches lie in one place: what it cannot do without.
    scattered_scan_s
        From the original, cached, where matches lie anywhere with the same chance.
    """

    n_matching: int
    scan_s: tuple[float, float]
    sorted_s: tuple[float, float]
    scattered_scan_s: float

    @property
    def is_sorted_faster(self) -> bool:
        """True if the replica is predicted faster in both cases: files cached, and not."""
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
    decode_s_per_byte: Mapping[str, float] | None = None,
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
    decode_s_per_byte
        What undoing filters takes, by column; for those that are not named, see above.
    """
    names = tuple(dict.fromkeys((*compared, *returned)))
    sizes = {name: table.column(name).size_bytes for name in names}
    rates = {name: _decode_rate(table.column(name), decode_s_per_byte or {}) for name in names}
    first = tuple(dict.fromkeys(compared))
    others = tuple(name for name in names if name not in first)
    if table.is_compound:  # HDF5 reads and decodes all members
        of_row = table.row_size_bytes
        first_row, other_row = (of_row, of_row * rates[first[0]]), (0, 0.0)
    else:
        first_row, other_row = (
            (sum(sizes[n] for n in some), math.fsum(sizes[n] * rates[n] for n in some))
            for some in (first, others)
        )
    # Matches are everywhere, or in one place: the less is what a scan cannot do without.
    scan_cpu_s = table.n_rows * len(first) * _COMPARE_S_PER_ROW

    def scan_s(s_per_byte: float, n_other_rows: float) -> float:
        moved = table.n_rows * first_row[0] + n_other_rows * other_row[0]
        decoded_s = table.n_rows * first_row[1] + n_other_rows * other_row[1]
        return scan_cpu_s + moved * s_per_byte + decoded_s

    number_bytes = 8
    sorted_bytes = n_matching * (sum(sizes.values()) + number_bytes)
    n_requests = (len(names) + 1) * max(1, n_ranges) + 4
    sorted_cpu_s = _OPEN_S + n_matching * _ORDER_S_PER_ROW
    copy_s, device_s = parameters.copy_s_per_byte, parameters.buffered_s_per_byte
    cold_s = n_requests * parameters.reads.startup_s
    n_windows = max(1.0, table.n_rows * sum(sizes.values()) / WINDOW_BYTES)
    spanned = table.n_rows * _span_share(n_matching / n_windows)
    return QueryCosts(
        n_matching=n_matching,
        scan_s=(
            scan_s(copy_s, n_matching),
            scan_s(max(copy_s, device_s), n_matching),
        ),
        sorted_s=(
            sorted_cpu_s + sorted_bytes * copy_s,
            sorted_cpu_s + sorted_bytes * max(copy_s, device_s) + cold_s,
        ),
        scattered_scan_s=scan_s(copy_s, max(n_matching, spanned)),
    )


def _decode_rate(column: Column, measured: Mapping[str, float]) -> float:
    """Return what undoing the filters of a column takes, in seconds per byte that comes out."""
    if column.name in measured:
        return measured[column.name]
    return _DEFLATE_S_PER_BYTE if any(step.code == _DEFLATE for step in column.filters) else 0.0


def _span_share(n_matching: float) -> float:
    """Return how much of a window lies between its first match and its last, on average.

    For matches drawn independently, `n_matching` expected (Poisson): the span of k matches is
    (k - 1) / (k + 1) on average.
    """
    if n_matching < _FEW:
        return n_matching**2 / 6  # the sum below loses its digits
    return 1 - 2 * -math.expm1(-n_matching) / n_matching + math.exp(-n_matching)
