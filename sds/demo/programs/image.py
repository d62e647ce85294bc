"""Look at a mass-spectrometry image: ion images (all pixels at one energy) and pixels' spectra.

Prints how long each read took, in seconds after the file was opened, and a checksum of what was
read, as JSON.
"""

import argparse
import hashlib
import json
import random
import sys
import time

import h5py


def main() -> None:
    """Read spectra of random pixels, then ion images at random energies."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--planes", type=int, default=4)
    parser.add_argument("--spectra", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    chooser = random.Random(wanted.seed)  # noqa: S311  (a sample, not a secret)

    spectra_s, planes_s = [], []
    spectra_bytes, planes_bytes = hashlib.sha256(), hashlib.sha256()
    with h5py.File(wanted.file, "r") as file:
        cube = file["image/cube"]
        n_x, n_y, n_energies = cube.shape
        for _ in range(wanted.spectra):
            x, y = chooser.randrange(n_x), chooser.randrange(n_y)
            began = time.perf_counter()
            spectrum = cube[x, y, :]
            spectra_s.append(time.perf_counter() - began)
            spectra_bytes.update(spectrum.tobytes())
        for energy in chooser.sample(range(n_energies), wanted.planes):
            began = time.perf_counter()
            plane = cube[:, :, energy]
            planes_s.append(time.perf_counter() - began)
            planes_bytes.update(plane.tobytes())

    found = {
        "spectra": {"seconds": spectra_s, "sha256": spectra_bytes.hexdigest()},
        "planes": {"seconds": planes_s, "sha256": planes_bytes.hexdigest()},
    }
    json.dump(found, sys.stdout)


main()
