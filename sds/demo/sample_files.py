"""The demonstration's two files: an image cube in HDF5, a grid through time in netCDF-4."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sds.errors import SdsValueError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

_SLAB_BYTES = 32 << 20
_N_COMPOUNDS = 12
_SMALLEST_BYTES = 4 << 20
CUBE_DATASET = "/image/cube"
GRID_DATASET = "/t2m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Extents:
    """Elements per axis: the cube's x, y, energy and the grid's time, latitude, longitude."""

    cube: tuple[int, int, int]
    grid: tuple[int, int, int]

    @property
    def size_bytes(self) -> int:
        """Bytes of both together."""
        return 4 * (int(np.prod(self.cube)) + int(np.prod(self.grid)))


def extents_of(size_bytes: int) -> Extents:
    """Return extents that fill a number of bytes, three quarters of it for the cube.

    Raises
    ------
    SdsValueError
        If that is too little for axes of useful length.
    """
    if size_bytes < _SMALLEST_BYTES:
        message = f"--size of {size_bytes} bytes is too small to show anything; give at least 4M"
        raise SdsValueError(message)
    cube_elements, grid_elements = 3 * size_bytes // 16, size_bytes // 16
    edge = 512
    while cube_elements // edge**2 < min(64, edge):
        edge //= 2
    n_lat, n_lon = 181, 360
    while grid_elements // (n_lat * n_lon) < min(128, n_lat):
        n_lat, n_lon = n_lat // 2, n_lon // 2
    return Extents(
        cube=(edge, edge, cube_elements // edge**2),
        grid=(grid_elements // (n_lat * n_lon), n_lat, n_lon),
    )


def make_cube(
    path: Path, extent: tuple[int, int, int], *, seed: int, progress: Callable[[float], None]
) -> None:
    """Write an image cube: the spectra of a few compounds, smeared over the pixels, and noise."""
    import h5py

    n_x, n_y, n_energies = extent
    random = np.random.default_rng(seed)
    maps = _blobs(random, n_x, n_y)
    spectra = _peaks(random, n_energies)
    with h5py.File(path, "w") as file:
        energy = file.create_dataset("image/energy", data=np.linspace(50, 2000, n_energies))
        energy.attrs["units"] = "eV"
        energy.make_scale("energy")
        cube = file.create_dataset(CUBE_DATASET, extent, "f4", fill_time="never")
        cube.attrs["units"] = "counts"
        cube.dims[2].attach_scale(energy)
        n_rows = max(1, _SLAB_BYTES // (4 * n_y * n_energies))
        counts = np.empty((n_rows * n_y, n_energies), np.float32)
        noise = np.empty_like(counts)
        for start in range(0, n_x, n_rows):
            stop = min(start + n_rows, n_x)
            part = counts[: (stop - start) * n_y]
            np.matmul(maps[start:stop].reshape(-1, _N_COMPOUNDS), spectra, out=part)
            random.random(out=noise, dtype=np.float32)
            part += noise[: len(part)]
            cube[start:stop] = part.reshape(-1, n_y, n_energies)
            progress(stop / n_x)


def make_grid(
    path: Path, extent: tuple[int, int, int], *, seed: int, progress: Callable[[float], None]
) -> None:
    """Write temperatures through time: warm tropics, seasons, travelling waves, and noise."""
    import netCDF4

    n_times, n_lat, n_lon = extent
    random = np.random.default_rng(seed)
    lat = np.linspace(-90, 90, n_lat, dtype=np.float32)
    lon = np.linspace(0, 360, n_lon, endpoint=False, dtype=np.float32)
    climate = (300 - 45 * np.sin(np.radians(lat)) ** 2)[:, None] + 0 * lon[None, :]
    season = (15 * np.sin(np.radians(lat)))[:, None] + 0 * lon[None, :]
    wave = 4 * np.cos(np.radians(lat))[:, None] * np.sin(np.radians(3 * lon))[None, :]
    shapes = np.stack([climate, season, wave]).astype(np.float32).reshape(3, -1)
    with netCDF4.Dataset(path, "w") as file:
        file.set_fill_off()
        for name, values, units in (
            ("time", np.arange(n_times) / 4, "days since 2000-01-01"),
            ("lat", lat, "degrees_north"),
            ("lon", lon, "degrees_east"),
        ):
            file.createDimension(name, len(values))
            axis = file.createVariable(name, "f8", (name,))
            axis.units = units
            axis[:] = values
        grid = file.createVariable("t2m", "f4", ("time", "lat", "lon"), contiguous=True)
        grid.units = "K"
        n_slab = max(1, _SLAB_BYTES // (4 * n_lat * n_lon))
        kelvin = np.empty((n_slab, n_lat * n_lon), np.float32)
        noise = np.empty_like(kelvin)
        for start in range(0, n_times, n_slab):
            stop = min(start + n_slab, n_times)
            days = np.arange(start, stop, dtype=np.float32) / 4
            weights = np.stack(
                [np.ones_like(days), np.cos(days * (2 * np.pi / 365)), np.cos(days * 1.5)], axis=1
            )
            part = kelvin[: stop - start]
            np.matmul(weights.astype(np.float32), shapes, out=part)
            random.random(out=noise, dtype=np.float32)
            part += noise[: len(part)]
            grid[start:stop] = part.reshape(-1, n_lat, n_lon)
            progress(stop / n_times)


def _blobs(random: np.random.Generator, n_x: int, n_y: int) -> NDArray[np.float32]:
    """Return where each compound lies, shape (n_x, n_y, compounds)."""
    x, y = np.linspace(0, 1, n_x)[:, None], np.linspace(0, 1, n_y)[None, :]
    maps = [
        np.exp(-((x - random.random()) ** 2 + (y - random.random()) ** 2) / width**2)
        for width in random.uniform(0.05, 0.4, _N_COMPOUNDS)
    ]
    return np.stack(maps, axis=-1).astype(np.float32)


def _peaks(random: np.random.Generator, n_energies: int) -> NDArray[np.float32]:
    """Return the spectrum of each compound: a few peaks, shape (compounds, n_energies)."""
    energy = np.linspace(0, 1, n_energies)[None, :]
    spectra = np.zeros((_N_COMPOUNDS, n_energies))
    for _ in range(4):
        centre = random.random((_N_COMPOUNDS, 1))
        height = random.gamma(2.0, 20.0, (_N_COMPOUNDS, 1))
        spectra += height * np.exp(-(((energy - centre) / 0.004) ** 2))
    return spectra.astype(np.float32)
