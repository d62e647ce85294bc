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
from sds.recommender.models.cost_model import serving_margin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.engine import IoParameters
    from sds.geometry import ReplicaLayout
    from sds.recommender.models.cost_model import CostModel
    from sds.recommender.models.read_cost import StoredArray


@dataclass(frozen=True, slots=True, kw_only=True)
class _Coldness:
    """Coldness of reads, by what they took in a layout and what is predicted of it.

    Attributes
    ----------
    share
        Of them that were cold, from 0 to 1, shape (n,).
    factor
        By which they were slower than predicted of cold ones, shape (n,).
    """

    share: NDArray[np.float64]
    factor: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        measured_s: NDArray[np.float64],
        cold_s: NDArray[np.float64],
        warm_s: NDArray[np.float64],
        *,
        known: NDArray[np.bool_],
    ) -> _Coldness:
        """Return how cold reads were; nothing of use where it is not known, all of shape (n,)."""
        cold = np.where(known, cold_s, 1.0)
        warm = np.where(known, np.minimum(warm_s, cold_s), 1.0)
        between = np.where(cold > warm, cold - warm, 1.0)
        return cls(
            share=np.where(cold > warm, np.clip((measured_s - warm) / between, 0, 1), 1.0),
            factor=np.maximum(measured_s / cold, np.where(cold > warm, 1.0, 0.0)),
        )

    def seconds(
        self, cold_s: NDArray[np.float64], warm_s: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return what they would take in layouts, shapes (n, m); infinite where cold reads do."""
        share, factor = self.share[:, np.newaxis], self.factor[:, np.newaxis]
        with np.errstate(invalid="ignore"):  # infinite where a replica does not hold the read
            mean = factor * (share * cold_s + (1 - share) * warm_s)
        return np.where(np.isfinite(cold_s), mean, np.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCosts:
    """Predicted seconds of n reads in m replicas.

    Attributes
    ----------
    original
        As the original is read, by HDF5 or by the engine, from cold cache, shape (n,).
    by_hdf5
        From the original through HDF5, as collective reads are, shape (n,).
    replicas
        From each replica, whether it would serve or not, shape (n, m); infinite where it does not
        hold the read.
    compared
        The same with the `serving_margin`, by which what serves is chosen, shape (n, m); infinite
        where the replica would not serve the read, for the original is no slower.
    original_warm, replicas_warm
        `original` and `replicas` where all that is read is in memory; the same where what that
        takes is not known, as of chunks.
    """

    original: NDArray[np.float64]
    by_hdf5: NDArray[np.float64]
    replicas: NDArray[np.float64]
    compared: NDArray[np.float64]
    original_warm: NDArray[np.float64]
    replicas_warm: NDArray[np.float64]

    @property
    def serving(self) -> NDArray[np.float64]:
        """Seconds from each replica taken alone, shape (n, m); inf where it would not serve."""
        return np.where(np.isfinite(self.compared), self.replicas, np.inf)

    def chosen(self) -> NDArray[np.int64]:
        """Return which replica serves each read, were all there, shape (n,); -1: the original."""
        if not self.compared.size:
            return np.full(len(self.original), -1)
        best = self.compared.argmin(axis=1)
        serves = np.isfinite(self.compared[np.arange(len(best)), best])
        return np.where(serves, best, -1)

    def seconds(self) -> NDArray[np.float64]:
        """Return what each read takes, were all replicas there, shape (n,)."""
        return self._as_chosen(self.original, self.replicas)

    def seconds_warm(self) -> NDArray[np.float64]:
        """Return `seconds` with all data in memory; what serves is chosen as for cold reads."""
        return self._as_chosen(self.original_warm, self.replicas_warm)

    def in_order(self, index: NDArray[np.intp]) -> ReadCosts:
        """Return the same of some reads, in another order."""
        return ReadCosts(
            original=self.original[index],
            by_hdf5=self.by_hdf5[index],
            replicas=self.replicas[index],
            compared=self.compared[index],
            original_warm=self.original_warm[index],
            replicas_warm=self.replicas_warm[index],
        )

    def in_some(self, n: int) -> ReadCosts:
        """Return the costs with the first n replicas only."""
        return replace(
            self,
            replicas=self.replicas[:, :n],
            compared=self.compared[:, :n],
            replicas_warm=self.replicas_warm[:, :n],
        )

    def as_traced(
        self,
        measured_s: NDArray[np.float64],
        replicas_measured_s: NDArray[np.float64] | None = None,
        factor: NDArray[np.float64] | None = None,
    ) -> ReadCosts:
        """Return the costs of reads, as cold or as warm as the traced times say they were.

        Parameters
        ----------
        measured_s
            Mean seconds of each from the original, shape (n,); nan: not known, and nothing changes.
        replicas_measured_s
            The same from each replica, shape (n, m); None: of none is it known.
        factor
            By which reads from other replicas take longer than follows, shape (n,); None: by none.

        Notes
        -----
        What was measured counts as it is. Where the original's time lies between what is predicted
        of reads from memory and of cold ones, that share of the reads was cold, and would be in
        replicas. Where it is beyond the cold ones, the device is slower than the model has it, for
        replicas by the same factor; where it is below the warm ones, replicas take what is
        predicted of them from memory. Which replica serves remains what programs choose by.
        """
        known = np.isfinite(measured_s) & np.isfinite(self.original)
        coldness = _Coldness.of(measured_s, self.original, self.original_warm, known=known)
        replicas = np.where(
            known[:, np.newaxis], coldness.seconds(self.replicas, self.replicas_warm), self.replicas
        )
        if factor is not None:
            replicas = replicas * factor[:, np.newaxis]
        original = np.where(known, measured_s, self.original)
        if replicas_measured_s is None:
            replicas_measured_s = np.full(replicas.shape, np.nan)
        is_measured = np.isfinite(replicas_measured_s)
        replicas = np.where(is_measured, replicas_measured_s, replicas)
        return replace(self, original=original, replicas=replicas)

    def original_as(self, replica: int, measured_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the times of the original, as cold or warm as reads measured from a replica.

        Parameters
        ----------
        measured_s
            Mean seconds of each read from the replica, shape (n,); nan: not known.

        Returns
        -------
        Seconds of each, shape (n,); nan where that is not known.
        """
        cold, warm = self.replicas[:, replica], self.replicas_warm[:, replica]
        known = np.isfinite(measured_s) & np.isfinite(cold) & np.isfinite(self.original)
        coldness = _Coldness.of(measured_s, cold, warm, known=known)
        seconds = coldness.seconds(self.original[:, np.newaxis], self.original_warm[:, np.newaxis])
        return np.where(known, seconds[:, 0], np.nan)

    def _as_chosen(
        self, original: NDArray[np.float64], replicas: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        by = self.chosen()
        seconds = original.copy()
        served = np.flatnonzero(by >= 0)
        seconds[served] = replicas[served, by[served]]
        return seconds


def read_costs(
    array: StoredArray,
    models: tuple[CostModel, CostModel],
    slabs: Sequence[Hyperslab],
    n_concurrent: Sequence[int],
    layouts: Sequence[ReplicaLayout] = (),
    *,
    parameters: IoParameters | None = None,
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
    parameters
        What requests and copies cost the engine; None: the built-in figures.

    Raises
    ------
    SdsValueError
        If a model predicts what is no time.
    """
    n, rank = len(slabs), len(array.extent)
    if not n:
        nothing, none = np.zeros(0), np.zeros((0, len(layouts)))
        return ReadCosts(
            original=nothing,
            by_hdf5=nothing,
            replicas=none,
            compared=none,
            original_warm=nothing,
            replicas_warm=none,
        )
    if not rank:  # a scalar is one element
        array, slabs, rank = replace(array, extent=(1,), chunks=None), [Hyperslab.all((1,))] * n, 1
    native = _native.Layouts(
        _description(array, models, layouts), None if parameters is None else parameters.native()
    )
    start, stride, count, block = (
        np.array([getattr(slab, name) for slab in slabs], dtype=np.int64).reshape(n, rank)
        for name in ("start", "stride", "count", "block")
    )
    processes = np.array(n_concurrent, dtype=np.int64)
    original, replicas, compared, original_warm, replicas_warm = native.choose(
        start, stride, count, block, processes
    )
    for seconds in (original, replicas, original_warm, replicas_warm):
        wrong = np.isnan(seconds) | (seconds <= 0)
        if wrong.any():
            i = int(np.argwhere(wrong)[0, 0])
            raise SdsValueError(
                f"a read of {slabs[i]} is predicted to take {seconds[wrong][0]} s: calibrate the "
                "file system anew"
            )
    return ReadCosts(
        original=original[:, 0],
        by_hdf5=original[:, 1],
        replicas=replicas,
        compared=compared,
        original_warm=original_warm[:, 0],
        replicas_warm=replicas_warm,
    )


def _description(
    array: StoredArray, models: tuple[CostModel, CostModel], layouts: Sequence[ReplicaLayout]
) -> _native.DatasetLayouts:
    """Return a dataset and its replicas as `_native.Layouts` takes them."""
    original, engine = models
    margin, margin_of_chunks = serving_margin(original, engine), serving_margin(original, original)
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
                "data_offset_bytes": _native.replica_data_offset(size_bytes(layout, array)),
                "layout": disks,
                # HDF5 reads chunks.
                "model": _model(original, margin_of_chunks)
                if layout.chunk_shape
                else _model(engine, margin),
            }
            for layout in layouts
        ],
    }


def _model(model: CostModel, margin: float) -> _native.LayoutModel:
    """Return a model as `_native.Layouts` takes it."""
    return (
        model.kind.code,
        model.gap.code,
        model.calibrated,
        model.coefficients,
        model.floor_s,
        margin,
    )
