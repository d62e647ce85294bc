# The native core, as Python sees it. Sizes and offsets are bytes, times nanoseconds.

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from sds._native_types import *

# geometry.cpp

MAX_RANK: int

def runs(
    extent: Sequence[int],
    element_bytes: int,
    offset_bytes: int,
    start: Sequence[int],
    stride: Sequence[int],
    count: Sequence[int],
    block: Sequence[int],
) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]: ...
def elements_at(
    points: NDArray[np.int64], extent: Sequence[int]
) -> tuple[NDArray[np.int64], int]: ...
def extents(
    extent: Sequence[int],
    element_bytes: int,
    offset_bytes: int,
    start: Sequence[int],
    stride: Sequence[int],
    count: Sequence[int],
    block: Sequence[int],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...
def features(
    extent: Sequence[int],
    element_bytes: int,
    offset_bytes: int,
    start: Sequence[int],
    stride: Sequence[int],
    count: Sequence[int],
    block: Sequence[int],
    stripe_bytes: int,
    stripe_count: int,
    unit_bytes: int,
    data_disks: int,
    min_request_bytes: int,
    budget_ns: int,
) -> Features: ...
def features_of_extents(
    offsets: NDArray[np.int64],
    lengths: NDArray[np.int64],
    stripe_bytes: int,
    stripe_count: int,
    unit_bytes: int,
    data_disks: int,
    min_request_bytes: int,
    budget_ns: int,
) -> ExtentFeatures: ...

# cost.cpp

MODEL_INPUTS: tuple[str, ...]

def predict(
    kind: int,
    gap: int,
    coefficients: Sequence[float],
    floor_s: float,
    features: Features,
    processes_per_ost: float,
) -> float: ...
def model_inputs_of_read(features: Features, processes_per_ost: float) -> tuple[float, ...]: ...
def predict_many(
    kind: int,
    gap: int,
    coefficients: Sequence[float],
    floor_s: float,
    inputs: NDArray[np.float64],
) -> NDArray[np.float64]: ...
def terms(kind: int, gap: int, inputs: NDArray[np.float64]) -> NDArray[np.float64]: ...
def builtin_model() -> tuple[int, int, tuple[float, ...], float]: ...

# operation.cpp

# The fields of sds.geometry.OperationFeatures; of its mode, and P, it knows nothing.
OperationFeatures: TypeAlias = dict[str, Any]

def operation_of_slabs(
    extent: Sequence[int],
    element_bytes: int,
    offset_bytes: int,
    start: NDArray[np.int64],
    stride: NDArray[np.int64],
    count: NDArray[np.int64],
    block: NDArray[np.int64],
    collective: bool,
    components: NDArray[np.int64],
    osts: NDArray[np.int64],
    unit_bytes: int,
    data_disks: int,
    min_request_bytes: int,
    budget_ns: int,
) -> tuple[OperationFeatures, OstLoads]: ...
def operation_of_extents(
    first: NDArray[np.int64],
    offsets: NDArray[np.int64],
    lengths: NDArray[np.int64],
    collective: bool,
    components: NDArray[np.int64],
    osts: NDArray[np.int64],
    unit_bytes: int,
    data_disks: int,
    min_request_bytes: int,
    budget_ns: int,
) -> tuple[OperationFeatures, OstLoads]: ...

# checksum.cpp

def crc32c(buffer: Buffer, crc: int = 0) -> int: ...

# trailer.cpp

def read_trailer(descriptor: int) -> dict[str, tuple[int, int]]: ...
def block_bytes(n_bytes: int) -> int: ...

# io_priority.cpp: of the calling thread

IDLE_IO_PRIORITY: int

def io_priority() -> int: ...
def set_io_priority(priority: int) -> None: ...

# library_imports.cpp: of libraries that are loaded, if need be, and stay

def replace_import(library: bytes, function: str, by: bytes) -> int: ...

# read_file.cpp

STRATEGIES: tuple[str, ...]

class ReadFile:
    def __init__(
        self,
        path_or_descriptor: str | bytes | PathLike[str] | int,
        may_map: bool = True,
        measured: Measured | None = None,
        follow_links: bool = True,
        replica_data: tuple[int, int] | None = None,
        checks_all: bool = False,
        checks_soon: bool = False,
    ) -> None: ...
    def fileno(self) -> int: ...
    def is_open(self) -> bool: ...
    # Open, and the path that was opened leads to the file as it was then.
    def is_current(self) -> bool: ...
    # Right after it was opened: device, inode, size, mtime and ctime in ns.
    @property
    def stamp(self) -> tuple[int, int, int, int, int]: ...
    def is_linked(self) -> bool: ...
    @property
    def is_damaged(self) -> bool: ...
    @property
    def is_remote(self) -> bool: ...
    @property
    def file_system_type(self) -> int: ...
    # One range that is about to be read: the device may begin. Only a hint.
    def announce(self, offset: int, n_bytes: int) -> None: ...
    def read_runs(
        self,
        first_offset: int,
        run_bytes: int,
        counts: Sequence[int],
        strides_bytes: Sequence[int],
        out: Buffer,
        strategy: str = "auto",
        *,
        executor: str = "any",
        cache: str = "unknown",
        queue_depth: int = 0,
        sieve_buffer_bytes: int = 0,
        max_memory_bytes: int = 0,
    ) -> ReadReport: ...

# repeated_reads.cpp

class Uses:
    def __init__(self, n_left: int) -> None: ...
    n_left: int

# Stamps: device, inode, size, mtime and ctime in ns.
class RepeatedReads:
    def __init__(
        self,
        source: str,
        source_stamp: tuple[int, int, int, int, int],
        table: str,
        table_stamp: tuple[int, int, int, int, int],
        absent: str,
        variables: Sequence[str],
        extent: Sequence[int],
        dtype: np.dtype[Any],
        entry: TableEntry | None,
        source_file: ReadFile | None,
    ) -> None: ...
    def holds(self, count: Sequence[int], stride: Sequence[int]) -> bool: ...
    def add(
        self,
        count: Sequence[int],
        stride: Sequence[int],
        uses: Uses,
        base_offset: int,
        index_bytes: Sequence[int],
        run_bytes: int,
        run_counts: Sequence[int],
        run_strides_bytes: Sequence[int],
        file: ReadFile,
        file_stamp: tuple[int, int, int, int, int],
    ) -> None: ...
    # None: all has to be found out anew; out may then be partly filled.
    # open_replica: of a candidate, by its index, of which a single run is about to be read: its
    # offset and bytes, or no bytes. None where it is not good. find_file: the same to look at what
    # is in memory of it.
    def read(
        self,
        index: object,
        out: NDArray[Any] | None,
        open_replica: Callable[
            [int, int, int], tuple[ReadFile, tuple[int, int, int, int, int]] | None
        ],
        find_file: Callable[[int], ReadFile | None] | None = None,
    ) -> NDArray[Any] | None: ...

# layouts.cpp

HDF5_CHUNK_S: float
MAX_METADATA_BYTES: int
MAX_CHUNK_BYTES: int
REPLICA_SHIFT_BYTES: int
REPLICA_LEAST_SHIFTED_BYTES: int

# Whether a contiguous array holds all that is selected in one run.
def is_one_run(
    extent: Sequence[int],
    start: Sequence[int],
    stride: Sequence[int],
    count: Sequence[int],
    block: Sequence[int],
) -> bool: ...

# Where the elements of a contiguous replica begin that is not built yet.
def replica_data_offset(size_bytes: int) -> int: ...

class Layouts:
    def __init__(
        self, layouts: DatasetLayouts, parameters: Mapping[str, object] | None = None
    ) -> None: ...
    # Of n reads, shapes (n, rank), and the processes that read at one time, shape (n,): seconds of
    # the original as it would be read, and through HDF5, shape (n, 2); of each candidate, infinite
    # where it does not hold the read, and the same with its margin, infinite where it would not
    # serve, shapes (n, candidates). Then seconds of reads from memory: of the original, shape
    # (n, 1), and of each candidate, shape (n, candidates); as cold where that is not known.
    def choose(
        self,
        start: NDArray[np.int64],
        stride: NDArray[np.int64],
        count: NDArray[np.int64],
        block: NDArray[np.int64],
        n_processes: NDArray[np.int64],
    ) -> tuple[
        NDArray[np.float64],
        NDArray[np.float64],
        NDArray[np.float64],
        NDArray[np.float64],
        NDArray[np.float64],
    ]: ...

# lists.cpp

class ListReport:
    @property
    def strategy(self) -> str: ...
    @property
    def executor(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def cache(self) -> str: ...
    @property
    def runs(self) -> int: ...
    @property
    def requests(self) -> int: ...
    @property
    def bytes_useful(self) -> int: ...
    @property
    def bytes_read(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def predicted_s(self) -> float: ...

# TypeError where an argument is to be converted first: offsets and lengths to int64 in one
# dimension, memory to a buffer of bytes. Lengths: of all regions, or of each. Memory offsets None:
# packed.
def read_list(
    file: ReadFile | int,
    file_offsets: object,
    file_lengths: object,
    memory_offsets: object,
    memory_lengths: object,
    memory: object,
    strategy: str = "auto",
    regions_per_request: int = 0,
    sieve_buffer_bytes: int = 0,
) -> ListReport: ...

# Lengths: of all regions, or of each. Memory offsets None: packed. 0: the default.
def plan_list(
    file_offsets: NDArray[np.int64],
    file_lengths: int | NDArray[np.int64],
    memory_offsets: NDArray[np.int64] | None,
    memory_lengths: int | NDArray[np.int64],
    memory_bytes: int,
    strategy: str = "auto",
    cache: str = "cold",
    regions_per_request: int = 0,
    sieve_buffer_bytes: int = 0,
) -> ReadPlan: ...
def write_list(
    fd: int,
    file_offsets: NDArray[np.int64],
    file_lengths: int | NDArray[np.int64],
    memory_offsets: NDArray[np.int64] | None,
    memory_lengths: int | NDArray[np.int64],
    memory: Buffer,
) -> WriteListReport: ...

# engine.cpp

def permute(
    src: NDArray[Any], order: Sequence[int], out: NDArray[Any] | None = None
) -> NDArray[Any]: ...
def copy_strided(src: NDArray[Any], out: NDArray[Any]) -> None: ...
def identity(path: str | bytes | PathLike[str]) -> tuple[int, int, int, int]: ...
def file_system(descriptor: int) -> tuple[int, int, int]: ...
def instance(path: str | bytes | PathLike[str]) -> tuple[int, int]: ...

# plan.cpp

# sds.engine.PmdCosts and IoParameters say which keys there are.
PmdCosts: TypeAlias = dict[str, float]

IoParameters: TypeAlias = dict[str, Any]

def io_parameters() -> IoParameters: ...
def chen_2014() -> tuple[PmdCosts, PmdCosts]: ...
def plan_runs(
    first_offset: int,
    run_bytes: int,
    counts: Sequence[int],
    strides_bytes: Sequence[int],
    *,
    parameters: IoParameters | None = None,
    strategy: str = "auto",
    cache: str = "unknown",
    executor: str = "any",
    queue_depth: int = 0,
    regions_per_request: int = 0,
    sieve_buffer_bytes: int = 0,
    max_memory_bytes: int = 0,
    may_map: bool = False,
    is_mapped: bool = False,
    may_queue: bool = False,
    may_read_directly: bool = False,
    cache_room_bytes: int = 0,
) -> ReadPlan: ...
def plan_pieces(
    offsets: NDArray[np.int64],
    lengths: NDArray[np.int64],
    *,
    parameters: IoParameters | None = None,
    strategy: str = "auto",
    cache: str = "unknown",
    executor: str = "any",
    queue_depth: int = 0,
    regions_per_request: int = 0,
    sieve_buffer_bytes: int = 0,
    max_memory_bytes: int = 0,
    may_map: bool = False,
    is_mapped: bool = False,
    may_queue: bool = False,
    may_read_directly: bool = False,
    cache_room_bytes: int = 0,
) -> ReadPlan: ...
def pmd_time_s(costs: PmdCosts, clients: float, nodes: float, n_bytes: float) -> float: ...
def pmd_break_even_bytes(costs: PmdCosts, clients: float, nodes: float) -> float: ...
def pmd_merges(costs: PmdCosts, clients: float, nodes: float, hole_bytes: int) -> bool: ...
def ratio_rule_sieves(bytes_useful: int, bytes_of_holes: int) -> bool: ...

# chunks.cpp

def codec_functions() -> dict[str, tuple[int, list[str]]]: ...
def fletcher32(content: Buffer) -> int: ...
def undo_filter(
    step: tuple[int, tuple[int, ...], tuple[int, ...]], stored: Buffer, capacity: int
) -> bytes: ...
def fill_chunk_table(
    h5dchunk_iter: int,
    dataset: int,
    grid: Sequence[int],
    chunk: Sequence[int],
    offset: NDArray[np.int64],
    size: NDArray[np.int64],
    skipped: NDArray[np.uint32],
) -> bool: ...
def read_chunks(
    file: ReadFile,
    extent: Sequence[int],
    chunk: Sequence[int],
    element_bytes: int,
    filters: list[tuple[int, tuple[int, ...], tuple[int, ...]]],
    edges_unfiltered: bool,
    axes: Sequence[tuple[int, int, int, int] | NDArray[np.int64]],
    result_shape: Sequence[int],
    points: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None,
    index: NDArray[np.int64],
    offset: NDArray[np.int64],
    size: NDArray[np.int64],
    skipped: NDArray[np.uint32],
    out: Buffer,
    n_threads: int,
    window_bytes: int = 0,
    kept: Sequence[NDArray[np.uint8]] = ...,
) -> dict[str, int]: ...
def copy_chunks(
    extent: Sequence[int],
    chunk: Sequence[int],
    element_bytes: int,
    axes: Sequence[tuple[int, int, int, int] | NDArray[np.int64]],
    result_shape: Sequence[int],
    points: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None,
    index: NDArray[np.int64],
    out: Buffer,
    kept: Sequence[NDArray[np.uint8]],
) -> None: ...

# table.cpp

def encode_table(table: Table) -> bytes: ...
def decode_table(table: Buffer) -> Table: ...
def table_name(canonical_path: str | bytes | PathLike[str]) -> str: ...

# table_entry.cpp

class TableEntry:
    # encoded: a table of one dataset.
    def __init__(self, encoded: Buffer) -> None: ...
    @property
    def is_plain(self) -> bool: ...
    # The candidate that serves, by index, None for the original, and how many reads alike are
    # served so. source: the original as the engine reads it, find_file: of a candidate, by its
    # index; None: not looked at in the page cache.
    def choose(
        self,
        start: Sequence[int],
        stride: Sequence[int],
        count: Sequence[int],
        block: Sequence[int],
        source: ReadFile | None,
        find_file: Callable[[int], ReadFile | None] | None,
    ) -> tuple[int | None, int]: ...
    # Cold, as they are compared: of the original through HDF5, by the engine, of each candidate;
    # negative where that cannot serve.
    def seconds(
        self,
        start: Sequence[int],
        stride: Sequence[int],
        count: Sequence[int],
        block: Sequence[int],
    ) -> list[float]: ...
    # Of each candidate: how many pieces what is selected is read in, 0 where it does not hold it.
    def pieces(
        self,
        start: Sequence[int],
        stride: Sequence[int],
        count: Sequence[int],
        block: Sequence[int],
    ) -> tuple[int, ...]: ...
    def announced_bytes(self, candidate: int) -> int: ...
    # Into out, in the order of the source. announced: of announced_bytes(), zeros at first.
    def read_tiles(
        self,
        candidate: int,
        start: Sequence[int],
        stride: Sequence[int],
        count: Sequence[int],
        block: Sequence[int],
        file: ReadFile,
        announced: bytearray,
        out: Buffer,
    ) -> None: ...
    # Offset of a read that starts at index 0 of every axis, and what one index further along each
    # adds; bytes of a run, counts and strides as of runs(); whether elements keep their order.
    def stored_read(
        self,
        candidate: int,
        start: Sequence[int],
        stride: Sequence[int],
        count: Sequence[int],
        block: Sequence[int],
    ) -> tuple[int, tuple[int, ...], int, tuple[int, ...], tuple[int, ...], bool]: ...

# trace.cpp

TRACE_SUFFIX: str
TRACE_MAX_FILE_BYTES: int

def read_spool(
    path: str | bytes | PathLike[str], start_offset: int = 0, max_records: int = 0
) -> Spool: ...

# measured.cpp

MEASURED_NAME: str

class Measured:
    def __init__(self, encoded: Buffer) -> None: ...
    def file_systems(self) -> list[tuple[str, int, IoParameters]]: ...
    def find(
        self, canonical_path: str | bytes | PathLike[str], kind: int
    ) -> IoParameters | None: ...

def encode_measured(file_systems: list[tuple[str, int, IoParameters]]) -> bytes: ...

# simulator.cpp

SIMULATE_MULTIPLE: int
SIMULATE_SIEVE: int
SIMULATE_LIST: int

def simulate(
    extent: Sequence[int],
    element_bytes: int,
    offset_bytes: int,
    selections: NDArray[np.int64],
    is_collective: bool,
    strategy: int,
    list_depth: int,
    sieve_buffer_bytes: int,
    parameters: dict[str, int | float],
    is_request_by_request: bool,
) -> Simulated: ...

# last_end.cpp

def end_after_signal(number: int, seconds: int) -> None: ...
