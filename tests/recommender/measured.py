"""Reads whose times follow a known law, for fits to find."""

from __future__ import annotations

import numpy as np

from sds.geometry import BlockFeatures
from sds.recommender.models.samples import Samples


def features(*, depth=1, gap=0, runs=1, n_bytes=4096, osts=1, paper=None):
    return BlockFeatures(
        runs=runs,
        block_depth=depth,
        block_gap_count=gap,
        block_gap_distance=gap * 7,
        block_gap_paper=gap * 3 if paper is None else paper,
        bytes_useful=n_bytes,
        bytes_touched=n_bytes,
        osts_touched=osts,
        disks_touched=osts,
        exact=True,
    )


def samples(law, *, n_patterns=12, processes=(1.0, 2.0, 4.0), noise=0.0, seed=1):
    """Return reads of n patterns x processes, of `law(depth, gap, p)` seconds."""
    random = np.random.default_rng(seed)
    rows = []
    for i in range(n_patterns):
        depth = int(10 ** random.uniform(0, 6))
        gap = int(10 ** random.uniform(0, 8.5))
        for p in processes:
            for turn in range(2):
                wide = features(depth=depth + turn, gap=gap + 3 * turn, n_bytes=4096 * depth)
                seconds = law(depth + turn, gap + 3 * turn, p) * np.exp(noise * random.normal())
                rows.append((f"pattern {i}", wide, p, float(seconds)))
    names, feats, p, seconds = zip(*rows, strict=True)
    return Samples(patterns=names, features=feats, processes_per_ost=p, seconds=seconds)
