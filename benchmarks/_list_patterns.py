"""The access patterns of Ching 2002, Sec. 4, and requests from files, as lists of regions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import h5py
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pathlib import Path

Offsets = NDArray[np.int64]

FLASH_BLOCKS = 80
FLASH_CELLS = 8  # along each axis of a block, guard cells left out
FLASH_GUARD_CELLS = 4  # on each side
FLASH_VARIABLES = 24

TILE = (1024, 768)  # pixels: along x, along y
TILE_OVERLAP = (270, 128)
TILES = (3, 2)
PIXEL_BYTES = 3


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """What one process reads of a file.

    Attributes
    ----------
    file_offsets, file_lengths
        Bytes; shape (n,).
    mem_offsets, mem_lengths
        Bytes; None: packed.
    file_bytes, memory_bytes
        Sizes of both.
    """

    name: str
    file_offsets: Offsets
    file_lengths: Offsets | int
    file_bytes: int
    memory_bytes: int
    mem_offsets: Offsets | None = None
    mem_lengths: Offsets | int | None = None

    @property
    def lists(self) -> tuple[Offsets, Offsets | int, Offsets | None, Offsets | int | None]:
        """As `sds.read_list` takes them."""
        return self.file_offsets, self.file_lengths, self.mem_offsets, self.mem_lengths

    def expected(self, content: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return what memory of zeros holds after the read, found byte by byte."""
        memory = np.zeros(self.memory_bytes, np.uint8)
        of_file = places(self.file_offsets, self.file_lengths)
        if self.mem_offsets is None or self.mem_lengths is None:
            memory[: len(of_file)] = content[of_file]
        else:
            memory[places(self.mem_offsets, self.mem_lengths)] = content[of_file]
        return memory


def places(offsets: Offsets, lengths: Offsets | int) -> Offsets:
    """Return the place of every byte of regions."""
    each = np.broadcast_to(np.asarray(lengths, np.int64), offsets.shape)
    within = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)
    return np.repeat(offsets, each) + within


def flash_checkpoint(process: int, n_processes: int) -> Pattern:
    """Return FLASH I/O: numbers that lie apart in memory, in regions of 4 KiB of the file.

    In the file, each variable has all blocks, and each block that of every process. In memory, a
    cell's variables are neighbours, and each block has guard cells around it.
    """
    cells = FLASH_CELLS + 2 * FLASH_GUARD_CELLS
    region_bytes = FLASH_CELLS**3 * 8
    variable, block = np.mgrid[:FLASH_VARIABLES, :FLASH_BLOCKS]
    file_offsets = ((variable * FLASH_BLOCKS + block) * n_processes + process) * region_bytes
    inner = slice(FLASH_GUARD_CELLS, FLASH_GUARD_CELLS + FLASH_CELLS)
    v, b, z, y, x = np.mgrid[:FLASH_VARIABLES, :FLASH_BLOCKS, inner, inner, inner]
    cell = ((b * cells + z) * cells + y) * cells + x
    return Pattern(
        name=f"FLASH checkpoint, {n_processes} processes",
        file_offsets=file_offsets.reshape(-1),
        file_lengths=region_bytes,
        mem_offsets=((cell * FLASH_VARIABLES + v) * 8).reshape(-1),
        mem_lengths=8,
        file_bytes=FLASH_VARIABLES * FLASH_BLOCKS * n_processes * region_bytes,
        memory_bytes=FLASH_BLOCKS * cells**3 * FLASH_VARIABLES * 8,
    )


def display_tile(x: int, y: int) -> Pattern:
    """Return tiled visualization: what one of 3 x 2 overlapping displays shows of a frame."""
    width, height = (
        n * size - (n - 1) * overlap
        for n, size, overlap in zip(TILES, TILE, TILE_OVERLAP, strict=True)
    )
    left, top = x * (TILE[0] - TILE_OVERLAP[0]), y * (TILE[1] - TILE_OVERLAP[1])
    rows = top + np.arange(TILE[1])
    return Pattern(
        name=f"tile {x}, {y} of the display",
        file_offsets=(rows * width + left) * PIXEL_BYTES,
        file_lengths=TILE[0] * PIXEL_BYTES,
        file_bytes=width * height * PIXEL_BYTES,
        memory_bytes=TILE[0] * TILE[1] * PIXEL_BYTES,
    )


def cyclic(file_bytes: int, n_clients: int, n_accesses: int) -> Pattern:
    """Return one-dimensional cyclic: every n-th block of the file, for the first of n clients."""
    block_bytes = file_bytes // (n_clients * n_accesses)
    return Pattern(
        name=f"cyclic, {n_clients} clients",
        file_offsets=np.arange(n_accesses) * n_clients * block_bytes,
        file_lengths=block_bytes,
        file_bytes=file_bytes,
        memory_bytes=n_accesses * block_bytes,
    )


def block_block(file_bytes: int, n_clients: int, n_accesses: int) -> Pattern:
    """Return block-block: a piece of each row of one block of a grid of as many as clients."""
    n_across = math.isqrt(n_clients)
    row_bytes = file_bytes // (n_accesses * n_across)
    piece_bytes = row_bytes // n_across
    return Pattern(
        name=f"block-block, {n_clients} clients",
        file_offsets=np.arange(n_accesses) * row_bytes,
        file_lengths=piece_bytes,
        file_bytes=file_bytes,
        memory_bytes=n_accesses * piece_bytes,
    )


def decomposition(path: Path, *, element_bytes: int = 8, n_variables: int = 1) -> list[Pattern]:
    """Return the requests of each process for each decomposition in a map file of E3SM-IO.

    ``D<i>.nreqs`` has the number of requests of each process, ``D<i>.offsets`` and
    ``D<i>.lengths`` those of all processes, in elements of one variable.

    Parameters
    ----------
    n_variables
        So many variables of the decomposition, one behind the other, are read at once.
    """
    with h5py.File(path) as handle:
        names = sorted(name.split(".")[0] for name in handle if name.endswith(".nreqs"))
        return [
            _variables_of(
                f"{name} of all processes",
                handle[f"{name}.offsets"][...].astype(np.int64),
                handle[f"{name}.lengths"][...].astype(np.int64),
                element_bytes,
                n_variables,
            )
            for name in names
        ] + [
            _variables_of(
                f"{name} of process 0",
                handle[f"{name}.offsets"][: handle[f"{name}.nreqs"][0]].astype(np.int64),
                handle[f"{name}.lengths"][: handle[f"{name}.nreqs"][0]].astype(np.int64),
                element_bytes,
                n_variables,
            )
            for name in names
        ]


def _variables_of(
    name: str, offsets: Offsets, lengths: Offsets, element_bytes: int, n_variables: int
) -> Pattern:
    variable_elements = int((offsets + lengths).max())
    starts = np.arange(n_variables)[:, None] * variable_elements
    return Pattern(
        name=f"{name}, {n_variables} variables",
        file_offsets=((starts + offsets) * element_bytes).reshape(-1),
        file_lengths=np.tile(lengths * element_bytes, n_variables),
        file_bytes=n_variables * variable_elements * element_bytes,
        memory_bytes=int(lengths.sum()) * n_variables * element_bytes,
    )
