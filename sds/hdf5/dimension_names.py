"""Names of the axes of a dataset, as dimension scales and labels give them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sds.errors import LayoutError
from sds.hdf5.dataset import get_dataset, open_hdf5

if TYPE_CHECKING:
    import os

    import h5py


def dimension_names(dataset: h5py.Dataset) -> tuple[tuple[str, ...], ...]:
    """Return the names of each axis of an open dataset: its label, then its scales'; maybe none.

    netCDF-4 files name dimensions by scales, as xarray and netCDF4 write them. Scales that cannot
    be read name nothing.
    """
    found = []
    for dimension in dataset.dims:
        names = [dimension.label] if dimension.label else []
        try:
            names += [scale.name.rpartition("/")[2] for scale in dimension.values() if scale.name]
        except (RuntimeError, KeyError, OSError):  # references that lead nowhere
            names = names[:1]
        found.append(tuple(dict.fromkeys(names)))
    return tuple(found)


def order_of_names(
    file: str | os.PathLike[str], dataset: str, words: tuple[str, ...]
) -> tuple[int, ...]:
    """Return the axis order that names of dimensions say.

    Raises
    ------
    LayoutError
        If they do not name each dimension of the dataset once.
    FileMissingError, DatasetNotFoundError, NotHdf5Error, PermissionDeniedError
        If there is no such dataset.
    """
    with open_hdf5(file) as handle:
        named = dimension_names(get_dataset(handle, dataset))
    order: list[int] = []
    for word in words:
        axes = [axis for axis, names in enumerate(named) if word in names]
        if len(axes) != 1:
            order = []
            break
        order += axes
    if sorted(order) != list(range(len(named))):
        shown = ", ".join("/".join(names) or f"(axis {i})" for i, names in enumerate(named))
        if not any(named):
            shown = f"the {len(named)} axes, which have no names"
        message = (
            f"axis order {','.join(words)!r}: name each dimension of {dataset} once; they are "
            f"{shown}; or write axes by number, for example 2,0,1"
        )
        raise LayoutError(message)
    return tuple(order)
