"""Slabs of a plan as the steps of a copy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sds.organizer.copy.slabs import permute_slab

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from sds.organizer.copy.source_reader import SourceReader
    from sds.organizer.copy.targets import SlabWriter
    from sds.organizer.plans.reorganization_plan import ReorganizationPlan


class SlabSteps:
    """The slabs of a plan as steps."""

    def __init__(self, plan: ReorganizationPlan, reader: SourceReader, target: SlabWriter) -> None:
        self._plan = plan
        self._reader = reader
        self._target = target

    @property
    def n_steps(self) -> int:
        """Number of slabs."""
        return self._plan.n_slabs

    @property
    def total_bytes(self) -> int:
        """Bytes of the replica's elements."""
        return self._plan.size_bytes

    @property
    def n_buffers(self) -> int:
        """Number of slabs that are read, and that are written, at the same time."""
        return self._plan.n_buffers

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the largest slab."""
        return self._plan.slab_elements * self._plan.element_size_bytes

    def step_bytes(self, index: int) -> int:
        """Return the bytes of a slab."""
        return math.prod(self._plan.slab(index).shape) * self._plan.element_size_bytes

    def read(self, index: int, out: NDArray[np.uint8]) -> None:
        """Read a slab."""
        self._reader.read(self._plan.slab(index), out)

    def arrange(
        self, index: int, elements: NDArray[np.uint8], out: NDArray[np.uint8]
    ) -> Callable[[], None]:
        """Permute a slab; return the function that writes it."""
        plan = self._plan
        slab = plan.slab(index)
        permute_slab(slab, plan.order, plan.element_size_bytes, elements, out)
        arranged = out[: self.step_bytes(index)]
        return lambda: self._target.write(plan.in_replica(slab), arranged)
