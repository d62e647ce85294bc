"""Timed reads as a file: one line of JSON for each time that a read by several processes took."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from sds.errors import FormatError, SdsValueError
from sds.geometry import ProcessReads, check_order, parse_selection
from sds.simulator import Operation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRead:
    """Measured time of one read of an array stored contiguously, nothing of it cached.

    Attributes
    ----------
    extent, element_size_bytes
        Of the array, in its own axis order.
    selection
        What all processes read together, as in NumPy.
    seconds
        From the common begin until the last process had everything.
    processes
        Among which the selection is divided, as by `sds simulate`.
    parts
        Into how many parts each axis is cut; then their product is the number of processes.
    order
        Stored axis i is axis order[i]; None: as it is.
    data_offset_bytes
        Of element 0 in the file.
    """

    extent: tuple[int, ...]
    element_size_bytes: int
    selection: str
    seconds: float
    processes: int = 1
    parts: tuple[int, ...] | None = None
    order: tuple[int, ...] | None = None
    data_offset_bytes: int = 0

    @property
    def pattern(self) -> str:
        """Name of the read without its layout: reads of one name are held out together."""
        by = "x".join(map(str, self.parts)) if self.parts else str(self.processes)
        return f"{self.selection} of {'x'.join(map(str, self.extent))} by {by}"

    @property
    def n_processes(self) -> int:
        """Number of processes that share the read."""
        return math.prod(self.parts) if self.parts else self.processes

    @property
    def layout(self) -> str:
        """The stored axis order in words."""
        order = tuple(range(len(self.extent))) if self.order is None else self.order
        return ",".join(map(str, order))

    def operation(self) -> Operation:
        """Return the read as the simulator takes it: each run a request of its own.

        Raises
        ------
        SdsValueError
            If the selection, its division or the order do not fit the array, or the time is no
            positive number.
        """
        if not (math.isfinite(self.seconds) and self.seconds > 0):
            raise SdsValueError(f"seconds is {self.seconds}: give a positive number")
        slab = parse_selection(self.selection, self.extent)
        if self.parts and self.processes not in {1, self.n_processes}:
            raise SdsValueError(
                f"parts {self.parts} are {self.n_processes} processes, processes is "
                f"{self.processes}"
            )
        whole = Operation.of(
            self.extent,
            ProcessReads.decomposed(slab, self.parts)
            if self.parts
            else ProcessReads.shared(slab, self.processes),
            element_size_bytes=self.element_size_bytes,
            data_offset_bytes=self.data_offset_bytes,
        )
        if self.order is None:
            return whole
        return whole.stored_as(check_order(self.order, len(self.extent)))

    def line(self) -> str:
        """Return the read as a line of a file; `parse_timed_reads` reads it."""
        said = {
            field.name: value
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default
        }
        return json.dumps(said)


def parse_timed_reads(lines: Iterable[str], *, name: str) -> list[TimedRead]:
    """Return the reads of a file, empty lines left out.

    name: what errors call the file.

    Raises
    ------
    FormatError
        If a line is no timed read; it names the line.
    """
    return list(_parsed(lines, name))


def _parsed(lines: Iterable[str], name: str) -> Iterator[TimedRead]:
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - 50 ms, for files alone

    adapter = TypeAdapter(TimedRead)
    keys = [field.name for field in fields(TimedRead)]
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
            if not isinstance(found, dict):
                raise FormatError(f"{name}, line {number} is no JSON object: {line.strip()[:80]}")
            unknown = [key for key in found if key not in keys]
            if unknown:
                raise FormatError(
                    f"{name}, line {number}: there is no {unknown[0]}; there are {', '.join(keys)}"
                )
            read = adapter.validate_python(found)
            read.operation()
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise FormatError(f"{name}, line {number}: {where}: {first['msg']}") from error
        except SdsValueError as error:
            raise FormatError(f"{name}, line {number}: {error}") from error
        except OverflowError as error:
            message = f"{name}, line {number}: a number is too large ({error})"
            raise FormatError(message) from error
        except ValueError as error:  # also of integers of thousands of digits
            raise FormatError(f"{name}, line {number} is no JSON: {error}") from error
        except RecursionError as error:
            message = f"{name}, line {number} is nested too deeply: a read is one flat object"
            raise FormatError(message) from error
        yield read


def median_times(reads: Iterable[TimedRead]) -> list[TimedRead]:
    """Return each different read once, with the median of its times."""
    times: dict[TimedRead, list[float]] = {}
    for read in reads:
        times.setdefault(replace(read, seconds=0.0), []).append(read.seconds)
    return [replace(read, seconds=statistics.median(each)) for read, each in times.items()]
