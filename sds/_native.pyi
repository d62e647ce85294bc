"""The native core, as Python sees it. Sizes and offsets are bytes, times nanoseconds."""

from collections.abc import Sequence
from os import PathLike
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

STATUSES: tuple[tuple[str, int, str, str], ...]

# geometry.cpp

MAX_RANK: int

class ExtentFeatures(TypedDict):
    runs: int
    bytes_useful: int
    block_depth: tuple[int, int]
    block_gap_count: tuple[int, int]
    block_gap_distance: tuple[int, int]
    bytes_touched: tuple[int, int]
    osts_touched: tuple[int, int]
    disks_touched: tuple[int, int]
    exact: bool

class Features(ExtentFeatures):
    block_gap_paper: int

def runs(
    extent: Sequence[int],
    element_bytes: int,
    offset_bytes: int,
    start: Sequence[int],
    stride: Sequence[int],
    count: Sequence[int],
    block: Sequence[int],
) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]: ...
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
def predict(
    kind: int,
    gap: int,
    coefficients: Sequence[float],
    floor_s: float,
    features: Features,
    processes_per_ost: float,
) -> float: ...
def builtin_model() -> tuple[int, int, tuple[float, ...], float]: ...

# checksum.cpp

def crc32c(buffer: Buffer, crc: int = 0) -> int: ...

# engine.cpp

def permute(
    src: NDArray[Any], order: Sequence[int], out: NDArray[Any] | None = None
) -> NDArray[Any]: ...
def copy_strided(src: NDArray[Any], out: NDArray[Any]) -> None: ...
def read_runs(
    fd: int,
    first_offset: int,
    run_bytes: int,
    counts: Sequence[int],
    strides_bytes: Sequence[int],
    out: Buffer,
    max_gap_bytes: int = 0,
    buffer_bytes: int = 0,
) -> tuple[int, int]: ...
def identity(path: str | bytes | PathLike[str]) -> tuple[int, int, int, int]: ...
