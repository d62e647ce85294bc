"""Simulated times of patterns, and what they ask of the storage."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.table1.evaluation import Observed
from benchmarks.table1.operation_features import LUSTRE_CLIENT, ClientReads, measure_operation
from benchmarks.table1.protocol import Experiment, Pattern
from sds import _native
from sds.geometry import ContiguousLayout
from sds.simulator import Operation, SimulatorParameters, hopper, simulate_many

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sds.recommender.models.feature_matrix import FeatureRow


@dataclass(slots=True)
class Simulator:
    """Simulated times of patterns, each simulated once and kept in a file."""

    experiment: Experiment
    parameters: SimulatorParameters
    store: Path
    seconds: dict[str, tuple[float, ...]] = field(default_factory=dict)
    observed: dict[Pattern, Observed] = field(default_factory=dict)

    @classmethod
    def opened(cls, experiment: Experiment, directory: Path) -> Simulator:
        """Return a simulator with what was simulated before with the same parameters."""
        parameters = hopper()
        key = hashlib.sha256(f"{parameters}{experiment.orders}{experiment.extent}".encode())
        # Another build may simulate otherwise.
        key.update(Path(_native.__file__).read_bytes())
        store = directory / f"table1-{key.hexdigest()[:16]}.json"
        known = json.loads(store.read_text()) if store.exists() else {}
        return cls(experiment, parameters, store, {k: tuple(v) for k, v in known.items()})

    def simulate(self, patterns: Iterable[Pattern]) -> None:
        """Simulate what is not known yet, on all processors; keep it."""
        missing = [p for p in dict.fromkeys(patterns) if p.name not in self.seconds]
        n = len(self.experiment.orders)
        begin = time.monotonic()
        for at in range(0, len(missing), 8):
            some = missing[at : at + 8]
            runs = simulate_many(
                [self._operation(p, i) for p in some for i in range(n)],
                self.parameters,
                n_threads=os.cpu_count() or 1,
            )
            for j, pattern in enumerate(some):
                self.seconds[pattern.name] = tuple(r.seconds for r in runs[j * n : j * n + n])
            self._keep()
            _tell(f"simulated {at + len(some)} of {len(missing)} patterns")
        if len(missing) > 1:
            print(
                f"simulated {len(missing)} patterns x {n} layouts in "
                f"{time.monotonic() - begin:.0f} s"
            )

    def _keep(self) -> None:
        self.store.parent.mkdir(parents=True, exist_ok=True)
        written = self.store.with_suffix(f".{os.getpid()}")
        written.write_text(json.dumps(self.seconds))
        written.replace(self.store)

    def _operation(self, pattern: Pattern, layout: int) -> Operation:
        reads = pattern.reads().permuted(self.experiment.orders[layout])
        return Operation(
            extent=tuple(self.experiment.extent[a] for a in self.experiment.orders[layout]),
            slabs=np.ascontiguousarray(
                np.stack([reads.start, reads.stride, reads.count, reads.block], axis=1)
            ),
            element_size_bytes=self.experiment.element_size_bytes,
        )

    def times(self, pattern: Pattern) -> tuple[float, ...]:
        """Return the simulated seconds of a pattern in each layout."""
        if pattern.name not in self.seconds:
            self.simulate([pattern])
        return self.seconds[pattern.name]

    def observe(self, pattern: Pattern) -> Observed:
        """Return the times of a pattern, and what it touches."""
        if pattern not in self.observed:
            self.observed[pattern] = Observed(
                seconds=self.times(pattern),
                operations=tuple(
                    measure(pattern, self.experiment, order) for order in self.experiment.orders
                ),
            )
        return self.observed[pattern]


def measure(
    pattern: Pattern,
    experiment: Experiment,
    order: tuple[int, ...],
    client: ClientReads = LUSTRE_CLIENT,
) -> FeatureRow:
    """Return what a pattern asks of the storage in a layout, read by such a client."""
    return measure_operation(
        experiment.extent,
        pattern.reads(),
        ContiguousLayout(element_size_bytes=experiment.element_size_bytes, order=order),
        experiment.stripes,
        experiment.raid,
        client=client,
    )


def _tell(text: str) -> None:
    """Say how far it is, where someone watches."""
    if sys.stderr.isatty():
        print(f"\r{text}   ", end="", file=sys.stderr, flush=True)
