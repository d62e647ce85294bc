"""The C tests of the core, under AddressSanitizer and UndefinedBehaviorSanitizer."""

import os
import shutil
import subprocess
from pathlib import Path

import h5py
import hdf5plugin
import numpy as np
import pytest

from tests.page_cache import drop_from_page_cache
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
LEFT_OUT = 77  # tests/native/page_cache.h: the rest has passed
NAMES = sorted(path.stem for path in Path(__file__).parent.glob("test_*.c"))


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory):
    """Return the folder of the C tests, built with both sanitizers."""
    build = tmp_path_factory.mktemp("sanitized")
    options = [
        "-DSDS_BUILD_TESTS=ON", "-DSDS_SANITIZE=ON", "-DSDS_BUILD_PYTHON=OFF",
        "-DSDS_BUILD_CONNECTOR=OFF", "-DCMAKE_C_FLAGS_RELWITHDEBINFO=-O1 -g -DNDEBUG",
    ]  # fmt: skip
    for command in (
        [find_cmake(), "-S", ROOT, "-B", build, "-DCMAKE_BUILD_TYPE=RelWithDebInfo", *options],
        [find_cmake(), "--build", build, "--parallel", str(os.cpu_count() or 1)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return build


def find_cmake():
    """Return the cmake of this environment, else the system's."""
    import sysconfig

    beside = Path(sysconfig.get_path("scripts")) / "cmake"
    return beside if beside.exists() else shutil.which("cmake")


@pytest.mark.parametrize("name", NAMES)
def test_c(name, sanitized, tmp_path):
    done = subprocess.run(
        [sanitized / name],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=6 * PATIENCE_S,
    )  # fmt: skip
    if done.returncode == LEFT_OUT:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr


PLUGINS = Path(hdf5plugin.PLUGIN_PATH)
# LZF is in a module of h5py, which no program but Python can load.
STREAMS = {
    "LZ4": (hdf5plugin.LZ4(nbytes=4096), PLUGINS / "libh5lz4.so"),
    "ZSTD": (hdf5plugin.Zstd(), PLUGINS / "libh5zstd.so"),
    "BLOSC": (hdf5plugin.Blosc(), PLUGINS / "libh5blosc.so"),
    "BZIP2": (hdf5plugin.BZip2(), PLUGINS / "libh5bzip2.so"),
    "BITSHUFFLE_LZ4": (hdf5plugin.Bitshuffle(), PLUGINS / "libh5bshuf.so"),
    "BITSHUFFLE_ZSTD": (hdf5plugin.Bitshuffle(cname="zstd"), PLUGINS / "libh5bshuf.so"),
}


@pytest.mark.parametrize("codec", STREAMS)
def test_damaged_streams_of_plugins(codec, sanitized, tmp_path):
    how, library = STREAMS[codec]
    values = np.random.default_rng(1).integers(0, 50, 5003).astype("u4")
    with h5py.File(tmp_path / "stream.h5", "w") as file:
        data = file.create_dataset("d", data=values, chunks=values.shape, **how)
        _, stream = data.id.read_direct_chunk((0,))
    (tmp_path / "stream").write_bytes(stream)
    given = [codec, library, tmp_path / "stream", str(values.itemsize), str(values.nbytes)]
    done = subprocess.run(
        [sanitized / "test_damaged_streams", os.environ.get("SDS_TEST_ROUNDS", "5000"), *given],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=6 * PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_device_errors_are_left_to_calls(sanitized, tmp_path):
    """A file system on an image that loses its end: loads fault, calls say EIO."""
    image, folder = tmp_path / "image", tmp_path / "mounted"
    folder.mkdir()
    image.touch()
    os.truncate(image, 64 << 20)
    commands = (["mkfs.ext4", "-q", "-F", image], ["mount", "-o", "loop", image, folder])
    for command in commands:
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip(f"there is no {command[0]}")
        if done.returncode != 0:
            pytest.skip(done.stderr)
    try:
        path = folder / "failing"
        path.write_bytes(bytes(9 << 20))
        drop_from_page_cache(path)
        os.truncate(image, 4096)
        done = subprocess.run(
            [sanitized / "test_mapped", path],
            capture_output=True, text=True, check=False, timeout=6 * PATIENCE_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        subprocess.run(["umount", folder], check=True)
