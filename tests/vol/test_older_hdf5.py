"""HDF5 libraries of other wheels: older ones go on as without the connector, and none crashes."""

import fcntl
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sds.home import Home
from sds.redirect.doctor.diagnosis import diagnose
from sds.redirect.launch.untraced import UNTRACED_NAME, drop_old_notes, read_untraced
from tests.hdf5_builds import cache_directory, leave_out
from tests.robustness.conftest import compile_c
from tests.under_connector import connector_environment, decisions, native_environment, run_python

# h5py: (Python, platform, HDF5 in it, what the connector does with that)
WHEELS = {
    "2.10.0": ("3.8", "manylinux1_x86_64", "1.10.4", None),
    "3.1.0": ("3.8", "manylinux1_x86_64", "1.12.0", "native"),
    "3.8.0": ("3.11", "manylinux2014_x86_64", "1.12.2", "native"),
    "3.11.0": ("3.11", "manylinux2014_x86_64", "1.14.2", "bound"),
}
PROGRAM = """
    import ctypes, sys
    hdf5 = ctypes.CDLL(sys.argv[1])
    hid_t = ctypes.c_int64
    for name in ("H5Fopen", "H5Fcreate", "H5Dcreate2", "H5Dopen2", "H5Screate_simple"):
        getattr(hdf5, name).restype = hid_t
    version = [ctypes.c_uint() for _ in range(3)]
    status = hdf5.H5get_libversion(*map(ctypes.byref, version))
    print("version:", status, *[part.value for part in version])
    print("missing:", hdf5.H5Fopen(b"/missing.h5", 0, hid_t(0)))
    double = hid_t.in_dll(hdf5, "H5T_NATIVE_DOUBLE_g")
    extent = (ctypes.c_uint64 * 2)(30, 40)
    values = (ctypes.c_double * 1200)(*range(1200))
    file = hid_t(hdf5.H5Fcreate(sys.argv[2].encode(), 2, hid_t(0), hid_t(0)))
    space = hid_t(hdf5.H5Screate_simple(2, extent, None))
    dataset = hid_t(hdf5.H5Dcreate2(file, b"x", double, space, hid_t(0), hid_t(0), hid_t(0)))
    print("write:", hdf5.H5Dwrite(dataset, double, hid_t(0), hid_t(0), hid_t(0), values))
    print("closed:", hdf5.H5Dclose(dataset), hdf5.H5Fclose(file))
    file = hid_t(hdf5.H5Fopen(sys.argv[2].encode(), 0, hid_t(0)))
    dataset = hid_t(hdf5.H5Dopen2(file, b"x", hid_t(0)))
    found = (ctypes.c_double * 1200)()
    print("read:", hdf5.H5Dread(dataset, double, hid_t(0), hid_t(0), hid_t(0), found))
    print("sum:", sum(found), hdf5.H5Dclose(dataset), hdf5.H5Fclose(file), hdf5.H5close())
"""


def library_of_wheel(h5py):
    """Return the HDF5 library that a wheel of h5py brings, unpacked once."""
    python, platform, _, _ = WHEELS[h5py]
    folder = cache_directory() / "h5py-wheels" / h5py
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{h5py}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unpack(h5py, python, platform, folder)
    (library,) = folder.rglob("libhdf5-*.so*")
    return library


def unpack(h5py, python, platform, folder):
    work = folder.with_suffix(".part")
    work.mkdir(exist_ok=True)
    answer = subprocess.run(
        [
            sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", work,
            "--only-binary", ":all:", "--python-version", python, "--platform", platform,
            f"h5py=={h5py}",
        ],
        env=os.environ, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    if answer.returncode != 0:
        leave_out(f"the wheel of h5py {h5py} cannot be had: {answer.stderr.strip()[-200:]}")
    (wheel,) = work.glob(f"h5py-{h5py}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(work, [name for name in archive.namelist() if "libs/" in name])
    wheel.unlink()
    work.rename(folder)


@pytest.mark.parametrize("h5py", WHEELS)
def test_a_program_with_an_older_library_goes_on(h5py, tmp_path):
    library = library_of_wheel(h5py)
    _, _, version, event = WHEELS[h5py]
    log = tmp_path / "log"
    (tmp_path / "home" / "spool").mkdir(parents=True)

    def outcome(env):
        env["LD_LIBRARY_PATH"] = str(library.parent)  # of the compression libraries beside it
        result = run_python(PROGRAM, library, tmp_path / "file.h5", env=env, check=False)
        return result.returncode, result.stdout, result.stderr

    native = outcome(native_environment())
    assert native[0] == 0
    assert f"version: 0 {version.replace('.', ' ')}\n" in native[1]
    assert "sum: 719400.0 0 0 0\n" in native[1]
    env = connector_environment(tmp_path / "home", SDS_DEBUG=log)
    status, output, errors = outcome(env)
    assert (status, output) == native[:2]
    assert errors.count("HDF5-DIAG") == native[2].count("HDF5-DIAG") == 1
    events = [entry[0] for entry in decisions(log)]
    assert events[:1] == ([event] if event else [])
    noted = read_untraced(tmp_path / "home" / "spool")
    assert [(Path(each.library).resolve(), each.version) for each in noted] == (
        [] if event == "bound" else [(library, version)]
    )


@pytest.mark.parametrize("h5py", WHEELS)
def test_the_doctor_and_verbose_say_what_becomes_of_it(h5py, tmp_path):
    library = library_of_wheel(h5py)
    _, _, version, event = WHEELS[h5py]
    source = tmp_path / "program.c"
    source.write_text("int H5open(void); int main(void) { return H5open() < 0; }")
    program = tmp_path / "program"
    # What the library needs in turn is found when it is run.
    subprocess.run(
        [shutil.which("cc"), source, library, "-Wl,--unresolved-symbols=ignore-all", "-o", program],
        check=True,
    )  # fmt: skip
    home = Home(tmp_path / "home")
    home.create()
    environ = native_environment(LD_LIBRARY_PATH=library.parent)
    (host,) = diagnose(command=[str(program)], home=home, environ=environ).hosts
    assert Path(host.library).resolve() == library
    assert host.version == version
    assert host.loads is (event == "bound")
    binding = {"bound": "exported symbols", "native": "native", None: "none"}[event]
    assert host.binding == binding
    verbose = environ | {"SDS_HOME": str(home.root)}
    sds = [sys.executable, "-m", "sds.cli", "run", "--verbose", "--", program]
    result = subprocess.run(sds, env=verbose, check=False, capture_output=True, text=True)
    older = f"HDF5 {version} is older than 1.14"
    said = {
        "bound": "runs under SDS",
        "native": f"runs without SDS: {older}",
        None: "runs without SDS: it asks for no connector, as HDF5 before 1.12",
    }
    assert said[event] in result.stderr, result
    if event != "bound":
        assert older in host.detail
        assert host.remedy


STARTED_OFTEN = """
    import ctypes, sys
    hdf5 = ctypes.CDLL(sys.argv[1])
    for _ in range(5):
        print(hdf5.H5open(), hdf5.H5close())
"""


@pytest.mark.parametrize("h5py", ["2.10.0", "3.8.0"])
def test_a_library_that_is_not_served_is_noted_once_a_process(h5py, tmp_path):
    library = library_of_wheel(h5py)
    spool = tmp_path / "home" / "spool"
    spool.mkdir(parents=True)
    notes = spool / UNTRACED_NAME

    def run(**variables):
        env = connector_environment(tmp_path / "home", LD_LIBRARY_PATH=library.parent, **variables)
        result = run_python(STARTED_OFTEN, library, env=env)
        assert (result.stdout, result.stderr) == ("0 0\n" * 5, "")

    run()
    run()
    first, second = read_untraced(spool)
    assert first.pid != second.pid
    assert first.program == second.program == sys.executable
    run(SDS_DISABLE=1)
    run(PMIX_RANK=3)
    env = native_environment(LD_LIBRARY_PATH=library.parent, HDF5_VOL_CONNECTOR="native")
    switched_on = connector_environment(tmp_path / "home")
    env |= {name: switched_on[name] for name in ("LD_PRELOAD", "SDS_CONNECTOR", "SDS_HOME")}
    assert run_python(STARTED_OFTEN, library, env=env).stdout == "0 0\n" * 5
    assert len(read_untraced(spool)) == 2

    many = notes.read_text() * 1000
    notes.write_text(many)
    run()
    assert notes.read_text() == many  # it is large enough
    drop_old_notes(spool)
    run()
    assert notes.with_name(f"{UNTRACED_NAME}.old").read_text() == many
    assert len(notes.read_text().splitlines()) == 1


@pytest.mark.parametrize("obstacle", ["no spool", "a folder", "a link into nowhere"])
def test_a_library_that_cannot_be_noted_runs_on(obstacle, tmp_path):
    library = library_of_wheel("2.10.0")
    spool = tmp_path / "home" / "spool"
    spool.parent.mkdir()
    if obstacle != "no spool":
        spool.mkdir()
    if obstacle == "a folder":
        (spool / UNTRACED_NAME).mkdir()
    if obstacle == "a link into nowhere":
        (spool / UNTRACED_NAME).symlink_to(tmp_path / "missing" / "file")
    env = connector_environment(tmp_path / "home", LD_LIBRARY_PATH=library.parent)
    result = run_python(STARTED_OFTEN, library, env=env)
    assert (result.stdout, result.stderr) == ("0 0\n" * 5, "")
    assert read_untraced(spool) == ()


@pytest.mark.parametrize("h5py", ["2.10.0", "3.11.0"])
@pytest.mark.parametrize("state", ["served", "removed", "native by request"])
def test_a_library_that_starts_at_an_odd_moment_does_so_as_natively(h5py, state, tmp_path):
    """Where it asks for no connector the loader is asked nothing, which may be locked."""
    library = library_of_wheel(h5py)
    (tmp_path / "home" / "spool").mkdir(parents=True)
    source = Path(__file__).parent / "odd_starts.c"
    program = compile_c(source, tmp_path / "program", "-ldl", "-lpthread")
    shared = compile_c(source, tmp_path / "shared.so", "-DSHARED", "-shared", "-fPIC", "-lpthread")
    switched_on = connector_environment(tmp_path / "home", LD_LIBRARY_PATH=library.parent)
    if state == "removed":
        switched_on["SDS_CONNECTOR"] = "/removed.so"
    if state == "native by request" or h5py == "3.11.0":
        # One that is given the connector waits for the loader as it did before.
        switched_on["HDF5_VOL_CONNECTOR"] = "native"

    def outcome(env):
        done = subprocess.run(
            [program, shared, library], env=env, capture_output=True, text=True, check=False,
            timeout=60,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    native = outcome(native_environment(LD_LIBRARY_PATH=library.parent))
    assert native[0] == 0, native
    assert "in a constructor's thread: 0\nloaded: 1 without an error\n" in native[1]
    assert outcome(switched_on) == native
