# Types of the values that the native core takes and returns. For type checkers alone: there is no
# such module when a program runs.

from collections.abc import Sequence
from typing import NotRequired, TypeAlias, TypedDict

import numpy as np
from numpy.typing import NDArray

class ExtentFeatures(TypedDict):
    runs: int
    bytes_useful: int
    block_depth: tuple[int, int]
    block_gap_count: tuple[int, int]
    block_gap_distance: tuple[int, int]
    bytes_touched: tuple[int, int]
    osts_touched: tuple[int, int]
    disks_touched: tuple[int, int]
    sieve: tuple[int, int, int]
    exact: bool

class Features(ExtentFeatures):
    block_gap_paper: int

class OstLoads(TypedDict):
    ost: NDArray[np.int64]
    bytes: NDArray[np.int64]
    blocks: NDArray[np.int64]
    segments: NDArray[np.int64]
    processes: NDArray[np.int64]

class ReadReport(TypedDict):
    strategy: str
    executor: str
    queue: str
    cache: str
    runs: int
    requests: int
    bytes_useful: int
    bytes_read: int
    memory_bytes: int
    predicted_s: float

# Kind, gap, whether it is calibrated, coefficients, floor, margin.
LayoutModel: TypeAlias = tuple[int, int, bool, Sequence[float], float, float]

class LayoutCandidate(TypedDict):
    order: Sequence[int]
    region: tuple[Sequence[int], Sequence[int]] | None
    tile_shape: Sequence[int] | None
    chunk_shape: Sequence[int] | None
    stored_bytes: int
    decode_s_per_byte: float
    data_offset_bytes: int
    layout: tuple[int, int, int, int, int]
    model: LayoutModel

class DatasetLayouts(TypedDict):
    extent: Sequence[int]
    element_bytes: int
    chunk_shape: Sequence[int] | None
    stored_bytes: int
    decode_s_per_byte: float
    data_offset_bytes: int
    layout: tuple[int, int, int, int, int]
    model: LayoutModel
    engine_model: LayoutModel | None
    candidates: list[LayoutCandidate]

class WriteListReport(TypedDict):
    pieces: int
    requests: int
    bytes_written: int
    memory_bytes: int

class ReadPlan(TypedDict):
    strategy: str
    executor: str
    cache: str
    runs: int
    requests: int
    bytes_useful: int
    bytes_read: int
    memory_bytes: int
    max_hole_bytes: int
    group_bytes: int
    queue_depth: int
    regions_per_request: int
    predicted_s: float

class TableIdentity(TypedDict):
    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int

class TableLayout(TypedDict):
    stripe_size_bytes: int
    stripe_count: int
    unit_bytes: int
    data_disks: int
    min_request_bytes: int

class TableModel(TypedDict):
    kind: int
    gap: int
    calibrated: bool
    coefficients: list[float]
    floor_s: float

class TableSegments(TypedDict):
    tile_shape: list[int]
    tiles: list[int]
    lengths: list[int]

class TableCandidate(TypedDict):
    replica_id: int
    path: str
    identity: TableIdentity
    storage: str
    data_offset_bytes: int
    metadata_crc32c: int
    chunk: list[int]
    stored_bytes: int
    decode_s_per_byte: float
    order: list[int]
    region_start: list[int]
    region_extent: list[int]
    segments: TableSegments | None
    layout: TableLayout
    model: TableModel
    shadow_permille: int

class TableDataset(TypedDict):
    path: str
    extent: list[int]
    element_bytes: int
    type_crc32c: int
    type_class: int
    storage: str
    data_offset_bytes: int
    chunk: list[int]
    stored_bytes: int
    decode_s_per_byte: float
    layout: TableLayout
    model: TableModel
    candidates: list[TableCandidate]

class Table(TypedDict):
    version: NotRequired[int]
    source_path: str
    source_identity: TableIdentity
    source_instance: int
    datasets: list[TableDataset]

class SpoolProcess(TypedDict):
    pid: int
    rank: int
    n_ranks: int
    start_ns: int
    host: str
    executable: str
    job_id: str
    user: str

class SpoolDataset(TypedDict):
    id: int
    file: str
    path: str
    identity: tuple[int, int, int, int]
    extent: tuple[int, ...]
    chunk: tuple[int, ...] | None
    element_bytes: int
    type_class: int
    storage: int
    n_filters: int
    data_offset_bytes: int
    hdf5_version: str

class SpoolRecords(TypedDict):
    dataset: NDArray[np.int64]
    kind: NDArray[np.int64]
    collective: NDArray[np.int64]
    served_by: NDArray[np.int64]
    thread: NDArray[np.int64]
    rank: NDArray[np.int64]
    n_elements: NDArray[np.int64]
    n_reads: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    last_start_ns: NDArray[np.int64]
    elapsed_ns: NDArray[np.int64]
    elapsed_min_ns: NDArray[np.int64]
    elapsed_max_ns: NDArray[np.int64]
    start: NDArray[np.int64]
    stride: NDArray[np.int64]
    count: NDArray[np.int64]
    block: NDArray[np.int64]
    repeat: NDArray[np.int64]
    advance: NDArray[np.int64]
    latency: NDArray[np.uint32]

class Spool(TypedDict):
    version: int
    process: SpoolProcess
    datasets: list[SpoolDataset]
    records: SpoolRecords
    offset: int
    is_complete: bool
    torn_bytes: int
    skipped_bytes: int
    dropped_reads: int

class Simulated(TypedDict):
    elapsed_ns: int
    io_ns: int
    shuffle_ns: int
    bytes_useful: int
    requests: int
    messages: int
    bytes_sent: int
    disk_accesses: int
    disk_seeks: int
    bytes_from_disk: int
    positioning_ns: int
    events: int
    clients: int
    link_busy_ns: list[int]
    disk_busy_ns: list[int]
