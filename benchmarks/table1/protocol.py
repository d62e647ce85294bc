"""Draws the tests of Liu 2014, Table I, before anything is fitted.

Lines, planes and cubes of a three-dimensional array are read by 512 processes from three layouts,
eight tests each. From a seed:

1. training patterns are drawn;
2. tests are drawn, none of them a training pattern; where too few have their two best layouts
   close together, those that have not are drawn again (docs/reference/semantics.md, "When a
   target holds").

Every draw depends on the seed, the experiment, and on the measured times of the tests drawn by
whether they are close; on no model. Pure.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sds.errors import SdsValueError
from sds.geometry import (
    HOPPER_RAID,
    HOPPER_STRIPES,
    RaidLayout,
    StripeLayout,
)
from sds.machines.random_reads import KINDS, Pattern, draw_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# Liu 2014, Sec. VI: [x, y, z], [x, z, y] and [z, x, y], called 1, 2 and 3.
PAPER_ORDERS = ((0, 1, 2), (0, 2, 1), (2, 0, 1))
PAPER_EXTENT = (1024, 1024, 65536)
# Mean speed-ups over layout 1 that Table I prints for lines, planes and cubes.
PAPER_SPEEDUPS = (128.42, 68.46, 9.26)
# Draws after which it is said that no more close tests are to be had.
_MOST_DRAWS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """What is read from where.

    Attributes
    ----------
    extent, element_size_bytes
        Of the array; three axes.
    n_processes
        That share each read.
    orders
        Layouts: stored axis i is axis order[i]. The first is the original.
    stripes, raid
        Of every layout.
    n_tests, n_training
        Patterns of each kind (lines, planes, cubes).
    close_share, close_factor
        At least this share of the tests have their two best layouts within this factor.
    """

    extent: tuple[int, int, int] = PAPER_EXTENT
    element_size_bytes: int = 2
    n_processes: int = 512
    orders: tuple[tuple[int, ...], ...] = PAPER_ORDERS
    stripes: StripeLayout = HOPPER_STRIPES
    raid: RaidLayout = HOPPER_RAID
    n_tests: int = 8
    n_training: int = 24
    close_share: float = 1 / 3
    close_factor: float = 2.0

    def __post_init__(self) -> None:
        if len(self.extent) != 3 or min(self.extent) < 1:
            raise SdsValueError(
                f"the array needs three axes of at least 1, not extent {self.extent}"
            )
        if len(self.orders) < 2:
            raise SdsValueError(f"give at least two layouts to choose from, not {self.orders}")
        if min(self.n_tests, self.n_training, self.n_processes, self.element_size_bytes) < 1:
            raise SdsValueError(
                f"numbers of tests, patterns and processes must be positive: {self}"
            )
        if not (0.0 <= self.close_share <= 1.0 and self.close_factor >= 1.0):
            raise SdsValueError(
                f"close_share {self.close_share} must be in [0, 1] and close_factor "
                f"{self.close_factor} at least 1"
            )

    def scaled(self, share: int) -> tuple[int, int, int]:
        """Return the extent of an array of 1/share of the size: each axis divided alike.

        Raises
        ------
        SdsValueError
            If share is no cube, or does not divide the axes.
        """
        side = round(share ** (1 / 3))
        if side**3 != share or any(n % side for n in self.extent):
            raise SdsValueError(
                f"an array of 1/{share} of {self.extent} has no whole axes: give 8, 64 or 512"
            )
        x, y, z = self.extent
        return x // side, y // side, z // side

    def layout_name(self, i: int) -> str:
        """Return e.g. ``[x,z,y]``."""
        return "[" + ",".join("xyz"[axis] for axis in self.orders[i]) + "]"


def draw_library(seed: int, experiment: Experiment, n_each: int) -> tuple[Pattern, ...]:
    """Return different patterns, n of each kind, that seeds may then draw from.

    So that each is measured or simulated once, however many seeds are run.
    """
    random = np.random.default_rng([seed, 0])
    library: dict[Pattern, None] = {}
    for kind in range(3):
        wanted = len(library) + n_each
        for _ in range(_MOST_DRAWS + 10 * n_each):
            if len(library) == wanted:
                break
            library[draw_pattern(random, experiment.extent, experiment.n_processes, kind)] = None
        else:
            raise SdsValueError(
                f"an array of extent {experiment.extent} has fewer than {n_each} different "
                f"{KINDS[kind]} patterns: give a larger one, or ask for fewer"
            )
    return tuple(library)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """What one seed drew.

    Attributes
    ----------
    training, tests
        Disjoint.
    n_close
        Tests whose two best layouts are within the factor.
    n_rejected
        Tests drawn and dropped because too few would have been close.
    """

    seed: int
    training: tuple[Pattern, ...]
    tests: tuple[Pattern, ...]
    n_close: int
    n_rejected: int


def draw_training(
    seed: int, experiment: Experiment, library: Sequence[Pattern] = ()
) -> tuple[Pattern, ...]:
    """Return the training patterns of a seed: those that `draw_tests` draws with it."""
    return tuple(_begin(seed, experiment, library)[0])


def _begin(
    seed: int, experiment: Experiment, library: Sequence[Pattern]
) -> tuple[list[Pattern], list[Iterator[Pattern]]]:
    """Return the training patterns, and for each kind the patterns that follow them."""
    random = np.random.default_rng([seed, 1])
    own = random.spawn(len(KINDS))
    sources = [_source(own[kind], experiment, kind, library) for kind in range(len(KINDS))]
    training = [
        pattern for source in sources for pattern in itertools.islice(source, experiment.n_training)
    ]
    if len(training) < len(KINDS) * experiment.n_training:
        raise SdsValueError(
            f"only {len(training)} of {len(KINDS)} x {experiment.n_training} training patterns "
            + (
                f"are in a library of {len(library)}: give a larger one"
                if library
                else f"are to be had in an array of extent {experiment.extent}: give a larger one"
            )
        )
    return training, sources


def draw_tests(
    seed: int,
    experiment: Experiment,
    times: Callable[[Pattern], Sequence[float]],
    *,
    library: Sequence[Pattern] = (),
) -> Draw:
    """Return the training patterns and the tests of a seed.

    Parameters
    ----------
    seed
        Any; the same draws the same.
    experiment
        What is read.
    times
        Measured or simulated seconds of a pattern in each layout.
    library
        Patterns to draw from, without putting back; empty: new ones are drawn.

    Raises
    ------
    SdsValueError
        If the library is too small, or too few tests are close however often they are drawn.
    """
    training, sources = _begin(seed, experiment, library)
    n_wanted = math.ceil(experiment.close_share * experiment.n_tests)
    tests: list[Pattern] = []
    n_close = n_rejected = 0
    for kind, source in enumerate(sources):
        drawn: list[Pattern] = []
        close = 0
        for pattern in source:
            is_close = _is_close(times(pattern), experiment.close_factor)
            if not is_close and experiment.n_tests - len(drawn) <= n_wanted - close:
                n_rejected += 1
                continue
            close += is_close
            drawn.append(pattern)
            if len(drawn) == experiment.n_tests:
                break
        else:
            raise SdsValueError(
                f"only {len(drawn)} of {experiment.n_tests} {KINDS[kind]} tests could be drawn, "
                f"{close} of them with their two best layouts within a factor of "
                f"{experiment.close_factor}, of which {n_wanted} are needed: "
                + ("give a larger library" if library else "choose another experiment")
            )
        tests += drawn
        n_close += close
    return Draw(
        seed=seed,
        training=tuple(training),
        tests=tuple(tests),
        n_close=n_close,
        n_rejected=n_rejected,
    )


def _source(
    random: np.random.Generator, experiment: Experiment, kind: int, library: Sequence[Pattern]
) -> Iterator[Pattern]:
    """Yield different patterns of one kind: the library's in an order drawn, or new ones."""
    if library:
        mine = [pattern for pattern in library if pattern.kind == kind]
        yield from (mine[i] for i in random.permutation(len(mine)))
        return
    seen: set[Pattern] = set()
    for _ in range(_MOST_DRAWS):
        pattern = draw_pattern(random, experiment.extent, experiment.n_processes, kind)
        if pattern not in seen:
            seen.add(pattern)
            yield pattern


def _is_close(seconds: Sequence[float], factor: float) -> bool:
    """Return whether the two least of some times are within a factor."""
    for i, value in enumerate(seconds):
        if not (math.isfinite(value) and value > 0):
            raise SdsValueError(
                f"a test took {value} s in layout {i}: measure it again, or leave it out"
            )
    first, second = sorted(seconds)[:2]
    return second <= factor * first
