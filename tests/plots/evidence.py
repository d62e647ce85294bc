"""Reads with predictions, and a calibration, made up for tests."""

from __future__ import annotations

import numpy as np

from sds.calibration.results import Calibration, CalibrationSettings, FileSystem
from sds.calibration.run import fit_measurement
from sds.mounts import filesystem_of
from sds.plots.heldout_reads import Evidence, Origin, Provenance
from sds.recommender.models.cost_model import CacheState, Via
from tests.recommender.measured import samples

ABOUT = Provenance(
    origin=Origin.MEASURED,
    subject="/scratch (lustre), HDF5, cold cache",
    model="eq4",
    held_out="each pattern predicted by a fit to the others",
)
SIMULATED = Provenance(
    origin=Origin.SIMULATED, subject="Table I", model="service", held_out="tests are new"
)


def evidence(rows, *, about=ABOUT, interval_log=0.49, ratio_error=None):
    """Return reads of (pattern, layout, observed, predicted)."""
    patterns, layouts, observed, predicted = zip(*rows, strict=True)
    return Evidence(
        about=about,
        patterns=patterns,
        layouts=layouts,
        observed_s=observed,
        predicted_s=predicted,
        interval_log=interval_log,
        ratio_error=ratio_error,
    )


def many(n, *, groups=3, layouts=3, about=ABOUT, long=""):
    """Return n reads, times spread over decades."""
    random = np.random.default_rng(n)
    observed = np.exp(random.normal(-3.0, 3.0, n))
    predicted = observed * np.exp(random.normal(0.0, 0.3, n))
    return evidence(
        [
            (
                f"kind{i % groups}{long} number {i // (groups * layouts)}",
                f"{i // groups % layouts},0,1",
                float(o),
                float(p),
            )
            for i, (o, p) in enumerate(zip(observed, predicted, strict=True))
        ],
        about=about,
        interval_log=0.6,
    )


def calibration(device=1, *, mount_point="/scratch"):
    """Return a calibration whose reads follow Eq. 4; of one way, cold, two stored orders."""
    measured = samples(lambda depth, gap, p: 1e-3 + 1e-6 * depth + 1e-8 * gap + 1e-4 * p, noise=0.1)
    names = [
        f"line along {int(name.split()[1]) // 2}, order_{'0_1_2' if i % 2 else '2_0_1'}"
        for name in measured.patterns
        for i in [int(name.split()[1])]
    ]
    named = type(measured)(
        patterns=tuple(names),
        features=measured.features,
        processes_per_ost=measured.processes_per_ost,
        seconds=measured.seconds,
    )
    measurement = fit_measurement(
        named, without_processes=False, via=Via.HDF5, cache=CacheState.COLD
    )
    return Calibration(
        path=mount_point,
        file_system=FileSystem(
            mount_point=mount_point, kind="lustre", source="mds:/scratch", device=device
        ),
        created="2026-11-21T12:00:00+00:00",
        settings=CalibrationSettings(),
        elapsed_s=1.0,
        n_reads=len(named),
        cold_method="posix_fadvise",
        complete=True,
        measurements=(measurement,),
    )


def keep(service, home, calibrated):
    """Keep a calibration as that of the file system of a home."""
    return service._store.add_calibration(
        mount_point=str(filesystem_of(home.root).mount_point),
        device=home.root.stat().st_dev,
        calibration=calibrated,
    )
