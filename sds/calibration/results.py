"""Results of calibrations: measurements of a file system, and the models fitted to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from sds.calibration.aggregate import RepeatError
from sds.engine import IoParameters
from sds.errors import SdsValueError
from sds.geometry import LOCAL_DISK_RAID, RaidLayout, StripeLayout
from sds.recommender.models.cost_model import CacheState, CostModel, Via
from sds.recommender.models.samples import ModelChoice, Samples

if TYPE_CHECKING:
    from sds.recommender.models.cost_model import CostModel


class ReadRequest(TypedDict):
    """Selection of one read, as sent to a reading process (stored axis order).

    strategy: of the engine; through HDF5 it has no meaning.
    """

    via: str
    file: str
    dataset: str
    data_offset_bytes: int
    element_size_bytes: int
    strategy: str
    extent: tuple[int, ...]
    start: tuple[int, ...]
    stride: tuple[int, ...]
    count: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystem:
    """File system that a calibration holds for.

    Attributes
    ----------
    mount_point, kind, source
        As in /proc/self/mountinfo, e.g. ``/scratch``, ``lustre``, ``10.0.0.1@o2ib:/scratch``.
    device
        st_dev of the files that were read.
    """

    mount_point: str
    kind: str
    source: str
    device: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSettings:
    """Limits of a calibration, and the reads that it measures.

    Attributes
    ----------
    space_bytes
        Size of the file that is written.
    budget_s
        No read is begun after this; each shape is read again until then, at most `max_rounds`
        times.
    processes
        How many read at one time; at least two counts, to separate P from a constant.
    vias
        Ways of reading to measure.
    without_processes
        Whether to fit without P, which allows one process count.
    stripes, raid
        Of the file, for its features; striping None: as the file system says.
    max_rounds, seed
        Positions per shape at most; of what they are drawn from.
    """

    space_bytes: int = 256 << 20
    budget_s: float = 60.0
    processes: tuple[int, ...] = (1, 2, 4)
    vias: tuple[Via, ...] = tuple(Via)
    without_processes: bool = False
    stripes: StripeLayout | None = None
    raid: RaidLayout = LOCAL_DISK_RAID
    max_rounds: int = 8
    seed: int = 1

    def __post_init__(self) -> None:
        # Said so that a budget that is no number is refused: no comparison with it holds.
        if not self.budget_s > 0 or self.max_rounds <= 0:
            raise SdsValueError(
                "the time budget and the rounds must be positive, not "
                f"{self.budget_s} s and {self.max_rounds}"
            )
        if not self.processes or min(self.processes) <= 0:
            raise SdsValueError(
                f"process counts must be positive, not {self.processes}: e.g. 1, 2, 4"
            )
        if not self.vias:
            raise SdsValueError("name at least one way of reading: hdf5 or engine")


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Reads made in one way from one cache state, and the models fitted to them.

    Attributes
    ----------
    via, cache
        Which way, and state.
    samples
        All reads, those of traces last. Fitted is the median of each shape's.
    choice
        The models, the best first.
    n_disturbed
        Reads that took over three times the median of their like, and count for nothing.
    n_traced
        Reads of programs among the samples; see `sds.calibration.trace_fit.refit`.
    repeats
        By how much reads of one shape differ among themselves; None where none was repeated, and in
        calibrations from before that was kept.
    """

    via: Via
    cache: CacheState
    samples: Samples
    choice: ModelChoice
    n_disturbed: int = 0
    n_traced: int = 0
    repeats: RepeatError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMeasurement:
    """Measured costs of requests and bytes in the read engine.

    Attributes
    ----------
    kind
        f_type of statfs(2): programs elsewhere may have another file system mounted there.
    parameters
        By which the engine plans; of what could not be measured, the built-in ones.
    queue
        (requests in flight, seconds per cold request of 4 KiB); empty without cold reads.
    n_reads
        Timed.
    median_log_error, p95_log_error
        Of |log(predicted / measured)| over the reads that the parameters were fitted to.
    """

    kind: int
    parameters: IoParameters
    queue: tuple[tuple[int, float], ...]
    n_reads: int
    median_log_error: float
    p95_log_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Calibration of a file system: measurements, and the models fitted to them.

    Attributes
    ----------
    path
        Directory that was measured in.
    file_system
        That it holds for.
    created
        UTC, ISO 8601.
    settings
        Its limits, and the reads requested.
    elapsed_s
        Time that it took, fits included.
    n_reads
        Timed operations.
    cold_method
        How the cache was emptied before cold reads, or why there are none.
    complete
        Whether every shape was read at least once within the budget.
    measurements
        One per way of reading and cache state.
    engine
        What requests cost; None in calibrations from before that was measured.
    """

    path: str
    file_system: FileSystem
    created: str
    settings: CalibrationSettings
    elapsed_s: float
    n_reads: int
    cold_method: str
    complete: bool
    measurements: tuple[Measurement, ...]
    engine: EngineMeasurement | None = None

    def measurement(self, *, via: Via, cache: CacheState) -> Measurement | None:
        """Return what was measured in one way from one cache state; None where it was not."""
        for found in self.measurements:
            if (found.via, found.cache) == (via, cache):
                return found
        return None

    def chosen_model(self, *, via: Via, cache: CacheState | None = None) -> CostModel | None:
        """Return the equation with the least held-out error; None where none was fitted.

        cache None: cold, or warm where the file system always caches (there is no colder).
        """
        found = self._measurement(via, cache)
        return None if found is None else found.choice.chosen

    def _measurement(self, via: Via, cache: CacheState | None) -> Measurement | None:
        for state in (CacheState.COLD, CacheState.WARM) if cache is None else (cache,):
            found = self.measurement(via=via, cache=state)
            if found is not None:
                return found
        return None

    def to_json(self) -> str:
        """Return the calibration as JSON, whole."""
        from pydantic import TypeAdapter  # noqa: PLC0415 - 50 ms that reading a model need not pay

        return TypeAdapter(Calibration).dump_json(self).decode()

    @classmethod
    def from_json(cls, text: str) -> Calibration:
        """Return the calibration that `to_json` wrote."""
        from pydantic import TypeAdapter  # noqa: PLC0415 - see to_json

        return TypeAdapter(cls).validate_json(text)
