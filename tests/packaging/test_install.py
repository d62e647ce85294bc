"""The wheel and the editable install both work, from the repository's root and from elsewhere.

In the root the source folder ``sds/`` shadows an installed wheel, which alone holds the compiled
parts.
"""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.under_connector import decisions, native_environment

ROOT = Path(__file__).parents[2]

PROBE = """
import sds, sds._native
from sds.redirect.connector import plugin_path
assert sds._native.crc32c(b"123456789") == 0xE3069283
path = plugin_path()
assert path.name == "libh5sds_vol.so" and path.is_file(), path
print(sds._native.__file__)
"""


def run(*command, cwd):
    return subprocess.run(command, cwd=cwd, check=False, capture_output=True, text=True)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    directory = tmp_path_factory.mktemp("wheel")
    build = run(
        sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "--no-deps",
        "--no-build-isolation", f"--config-settings=build-dir={directory / 'build'}",
        "--wheel-dir", directory, ROOT, cwd=directory,
    )  # fmt: skip
    assert build.returncode == 0, build.stdout + build.stderr
    (path,) = directory.glob("*.whl")
    return path


def install(wheel, directory):
    """Return the python of a venv that has the wheel, and the dependencies of this one."""
    made = run(sys.executable, "-m", "venv", "--without-pip", directory, cwd=ROOT)
    assert made.returncode == 0, made.stderr
    python = directory / "bin" / "python"
    site = Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=directory)
        .stdout.strip()
    )  # fmt: skip
    installed = run(
        sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python,
        "install", "--no-deps", "--no-index", wheel, cwd=directory,
    )  # fmt: skip
    assert installed.returncode == 0, installed.stdout + installed.stderr
    # Plain path lines: the editable finder of this environment is not carried over.
    (site / "dependencies.pth").write_text(
        "".join(f"{path}\n" for path in sys.path if Path(path).name == "site-packages")
    )
    return python


@pytest.fixture(scope="session")
def wheel_python(wheel, tmp_path_factory):
    return install(wheel, tmp_path_factory.mktemp("venv"))


@pytest.mark.parametrize("where", ["root", "elsewhere"])
@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_native_parts_and_plugin_are_found(kind, where, request, tmp_path):
    python = request.getfixturevalue("wheel_python") if kind == "wheel" else sys.executable
    result = run(python, "-c", PROBE, cwd=ROOT if where == "root" else tmp_path)
    assert result.returncode == 0, result.stderr
    if kind == "wheel":
        assert str(Path(python).parents[1]) in result.stdout


@pytest.mark.parametrize("where", ["root", "elsewhere"])
def test_the_wheels_commands_start(wheel_python, where, tmp_path):
    cwd = ROOT if where == "root" else tmp_path
    for command in ("sds", "sds-server"):
        result = run(wheel_python.parent / command, "--help", cwd=cwd)
        assert result.returncode == 0, result.stderr
        assert "usage:" in result.stdout.lower()


def test_wheel_holds_what_it_needs_and_no_sources(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "sds/redirect/plugin/libh5sds_vol.so" in names
    assert f"sds/redirect/preload/{os.uname().machine}/sds_preload.so" in names
    assert "sds/py.typed" in names
    assert not [name for name in names if name.endswith((".c", ".cpp", ".h"))]
    assert not [name for name in names if name.startswith(("tests/", "native/"))]


def test_plugin_depends_on_libc_alone(wheel, tmp_path):
    zipfile.ZipFile(wheel).extract("sds/redirect/plugin/libh5sds_vol.so", tmp_path)
    result = run("readelf", "-d", tmp_path / "sds/redirect/plugin/libh5sds_vol.so", cwd=tmp_path)
    needed = {
        line.split("[")[1].rstrip("]") for line in result.stdout.splitlines() if "NEEDED" in line
    }
    libc = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2"}
    assert needed <= libc, needed


# A shell that switched SDS on, and lives on while SDS is removed. The program is another Python's.
SHELL = """
set -eu
eval "$("$1/bin/sds" env)"
test -n "$LD_PRELOAD"
"$2" -c "$3" before.h5
case "$4" in
    pip) "$2" -m pip --python "$1/bin/python" uninstall --yes --quiet sds-hdf5 ;;
    venv) rm -r "$1" ;;
esac
"$2" -c "$3" after.h5
"""
PROGRAM = """
import sys
import h5py, netCDF4, tables
with h5py.File(sys.argv[1], "w") as file:
    file["x"] = range(10)
with netCDF4.Dataset(sys.argv[1]) as two, tables.open_file(sys.argv[1]) as three:
    print(two["x"][:].sum(), three.root.x[:].sum())
"""


@pytest.mark.parametrize("removal", ["pip", "venv"])
def test_an_open_shell_outlives_the_removal(removal, wheel, tmp_path):
    venv = tmp_path / "venv"
    install(wheel, venv)
    environ = native_environment(
        SDS_HOME=tmp_path / "home", XDG_DATA_HOME=tmp_path / "data", SDS_DEBUG=tmp_path / "log"
    )
    result = subprocess.run(
        ["sh", "-c", SHELL, "sh", venv, sys.executable, PROGRAM, removal],
        cwd=tmp_path, env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (result.returncode, result.stdout) == (0, "45 45\n45 45\n"), result.stderr
    assert result.stderr == ""
    assert not list(venv.rglob("libh5sds_vol.so"))
    # Before it was removed; what runs after that runs natively.
    versions = [entry[3] for entry in decisions(tmp_path / "log") if entry[0] == "bound"]
    assert sorted(versions) == ["1.14.6", "2.0.0", "2.2.0"]
