"""Seconds of reads in the layouts of one dataset, by the core's `sds_choose`.

The same function says in the connector and in `sds.read` which layout serves a read, so what is
advised is what will be served.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sds import _native
from sds.errors import SdsValueError
from sds.geometry import Hyperslab
from sds.recommender.candidates.replica_cost import size_bytes
from sds.recommender.models.feature_matrix import FeatureMatrix
from sds.recommender.models.models_in_use import serving_margin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.geometry import ReplicaLayout
    from sds.recommender.models.cost_model import ReadModel
    from sds.recommender.models.read_cost import StoredArray


# Column of the original through HDF5, and of the first replica (`_native.Layouts.choose`).
_HDF5, _REPLICAS = 0, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCosts:
    """Predicted seconds of n reads in m replicas.

    Attributes
    ----------
    original
        As the original is read, by HDF5 or by the engine, shape (n,).
    by_hdf5
        From the original through HDF5, as collective reads are, shape (n,).
    replicas
        From each replica, whether it would serve or not, shape (n, m); infinite where it does not
        hold the read.
    serving
        The same, infinite where the replica would not serve the read: where it is not predicted
        faster than the original by the `serving_margin`.
    """

    original: NDArray[np.float64]
    by_hdf5: NDArray[np.float64]
    replicas: NDArray[np.float64]
    serving: NDArray[np.float64]


def read_costs(
    array: StoredArray,
    models: tuple[ReadModel, ReadModel],
    slabs: Sequence[Hyperslab],
    n_concurrent: Sequence[int],
    layouts: Sequence[ReplicaLayout] = (),
) -> ReadCosts:
    """Return what reads of a dataset take as it is stored, and in each replica.

    Parameters
    ----------
    array
        The dataset.
    models
        Of the original through HDF5 and of a replica through the engine.
    slabs, n_concurrent
        Reads, and how many processes make each at one time.
    layouts
        Replicas, which need not exist. Of segments every tile counts as held.

    Raises
    ------
    SdsValueError
        If a model predicts what is no time.
    """
    n, rank = len(slabs), len(array.extent)
    if not n:
        nothing = np.zeros(0)
        return ReadCosts(
            original=nothing,
            by_hdf5=nothing,
            replicas=np.zeros((0, len(layouts))),
            serving=np.zeros((0, len(layouts))),
        )
    if not rank:  # a scalar is one element
        array, slabs, rank = replace(array, extent=(1,), chunks=None), [Hyperslab.all((1,))] * n, 1
    native = _native.Layouts(_description(array, models, layouts))
    start, stride, count, block = (
        np.array([getattr(slab, name) for slab in slabs], dtype=np.int64).reshape(n, rank)
        for name in ("start", "stride", "count", "block")
    )
    processes = np.array(n_concurrent, dtype=np.int64)
    _, seconds, compared, original = native.choose(start, stride, count, block, processes)
    wrong = np.isnan(seconds) | (seconds <= 0)
    if wrong.any():
        i = int(np.argwhere(wrong)[0, 0])
        raise SdsValueError(
            f"a read of {slabs[i]} is predicted to take {seconds[wrong][0]} s: calibrate the file "
            "system anew"
        )
    replicas = seconds[:, _REPLICAS:]
    serves = compared[:, _REPLICAS:] < original[:, 1:]
    if array.chunks is None:
        one_run = [_is_one_run(slab, array.extent) for slab in slabs]
        serves &= ~np.array(one_run, dtype=np.bool_)[:, np.newaxis]
    return ReadCosts(
        original=original[:, 0],
        by_hdf5=seconds[:, _HDF5],
        replicas=replicas,
        serving=np.where(serves, replicas, np.inf),
    )


def _is_one_run(slab: Hyperslab, extent: tuple[int, ...]) -> bool:
    """Return whether a read is one run of a contiguous dataset: the original serves it."""
    whole = True
    for (_, stride, count, block), n in zip(slab.axes()[::-1], extent[::-1], strict=True):
        length = count * block
        if length > 1 and not (whole and (count == 1 or stride == block)):
            return False
        whole = whole and length == n
    return True


def _description(
    array: StoredArray, models: tuple[ReadModel, ReadModel], layouts: Sequence[ReplicaLayout]
) -> _native.DatasetLayouts:
    """Return a dataset and its replicas as `_native.Layouts` takes them."""
    original, engine = models
    margin = serving_margin(*models)
    stripes, raid = array.stripes, array.raid
    disks = (
        stripes.stripe_size_bytes,
        stripes.stripe_count,
        raid.unit_bytes,
        raid.data_disks,
        raid.min_request_bytes,
    )
    chunked = array.chunks is not None
    return {
        "extent": array.extent,
        "element_bytes": array.element_size_bytes,
        "chunk_shape": array.chunks,
        "stored_bytes": array.stored_chunk_bytes * array.n_chunks if chunked else 0,
        "decode_s_per_byte": array.decode_s_per_byte if chunked else 0.0,
        "data_offset_bytes": 0 if chunked else array.data_offset_bytes,
        "layout": disks,
        "model": _model(original, 1.0),
        "engine_model": _model(engine, margin),
        "candidates": [
            {
                "order": layout.order,
                "region": (layout.region.start, layout.region.extent),
                "tile_shape": None if layout.segments is None else layout.segments.tile_shape,
                "chunk_shape": layout.chunk_shape,
                "stored_bytes": 0 if layout.chunk_shape is None else size_bytes(layout, array),
                "decode_s_per_byte": array.decode_s_per_byte if layout.filters else 0.0,
                "data_offset_bytes": _native.REPLICA_DATA_OFFSET_BYTES,
                "layout": disks,
                "model": _model(original if layout.chunk_shape else engine, margin),
            }
            for layout in layouts
        ],
    }


def _model(model: ReadModel, margin: float) -> _native.LayoutModel:
    """Return a model as `_native.Layouts` takes it."""
    equation = model.equation

    def learned(features: tuple[float, ...]) -> float:
        one = np.array(features).reshape(len(features), 1)
        return float(model.predict_many(FeatureMatrix(one))[0])

    return (
        equation.kind.code,
        equation.gap.code,
        equation.calibrated,
        equation.coefficients,
        equation.floor_s,
        margin,
        None if equation is model else learned,
    )
