"""Simulate parallel reads on a parallel file system.

Every figure is simulated, none is measured. It knows nothing of block depth, block gap or any cost
model: docs/explanation/simulator.md says what is modelled and what is left out.
"""

from sds.geometry.process_reads import even_parts
from sds.simulator.operation import Operation, ReadStrategy
from sds.simulator.parameters import SimulatorParameters, hopper, striped
from sds.simulator.simulation import SimulatedTime, simulate, simulate_many

__all__ = [
    "Operation",
    "ReadStrategy",
    "SimulatedTime",
    "SimulatorParameters",
    "even_parts",
    "hopper",
    "simulate",
    "simulate_many",
    "striped",
]
