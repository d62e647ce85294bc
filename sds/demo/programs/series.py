"""Follow the temperature at points of a grid through all times.

Prints how long each read took, in seconds after the file was opened, and a checksum of what was
read, as JSON.
"""

import argparse
import hashlib
import json
import random
import sys
import time

import netCDF4


def main() -> None:
    """Read the series of random grid points."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--points", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    chooser = random.Random(wanted.seed)  # noqa: S311  (a sample, not a secret)

    series_s = []
    series_bytes = hashlib.sha256()
    with netCDF4.Dataset(wanted.file) as file:
        temperature = file["t2m"]
        _, n_lat, n_lon = temperature.shape
        for _ in range(wanted.points):
            lat, lon = chooser.randrange(n_lat), chooser.randrange(n_lon)
            began = time.perf_counter()
            series = temperature[:, lat, lon]
            series_s.append(time.perf_counter() - began)
            series_bytes.update(series.tobytes())

    json.dump({"series": {"seconds": series_s, "sha256": series_bytes.hexdigest()}}, sys.stdout)


main()
