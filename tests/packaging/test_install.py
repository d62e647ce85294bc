"""The wheel and the editable install both work, from the repository's root and from elsewhere.

In the root the source folder ``sds/`` shadows an installed wheel, which alone holds the compiled
parts.
"""

import email
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

from sds import _native
from tests.redirected import redirected_cube
from tests.under_connector import decisions, native_environment

ROOT = Path(__file__).parents[2]

PROBE = """
import sds, sds._native
from sds.redirect.launch.connector import plugin_path
assert sds._native.crc32c(b"123456789") == 0xE3069283
path = plugin_path()
assert path.name == "libh5sds_vol.so" and path.is_file(), path
print(sds._native.__file__)
"""


def run(*command, cwd):
    return subprocess.run(command, cwd=cwd, check=False, capture_output=True, text=True)


def copy_objects(directory):
    """Start from what the editable install compiled: only what differs is compiled again."""
    for build in (ROOT / "build").glob("*"):
        if (build / Path(_native.__file__).name).exists():
            shutil.copytree(build, directory, ignore=shutil.ignore_patterns("CMakeCache.txt"))
            return


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    directory = tmp_path_factory.mktemp("wheel")
    copy_objects(directory / "build")
    build = run(
        sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "--no-deps",
        "--no-build-isolation", f"--config-settings=build-dir={directory / 'build'}",
        "--wheel-dir", directory, ROOT, cwd=directory,
    )  # fmt: skip
    assert build.returncode == 0, build.stdout + build.stderr
    (path,) = directory.glob("*.whl")
    return path


def install(wheel, directory, packages=None):
    """Return the python of a venv that has the wheel, and these packages of this one, or all."""
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
    ours = [Path(path) for path in sys.path if Path(path).name == "site-packages"]
    if packages is None:
        # Plain path lines: the editable finder of this environment is not carried over.
        (site / "dependencies.pth").write_text("".join(f"{path}\n" for path in ours))
    else:
        for package in packages:
            for found in (place for path in ours for place in path.glob(f"{package}*")):
                (site / found.name).symlink_to(found)
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
    migrations = {path.name for path in (ROOT / "alembic" / "versions").glob("*.py")}
    assert migrations
    assert {f"sds/catalog/migrations/versions/{name}" for name in migrations} <= set(names)
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


@pytest.fixture(scope="session")
def base_python(wheel, tmp_path_factory):
    """A Python that has the wheel, NumPy and h5py, and nothing else."""
    return install(wheel, tmp_path_factory.mktemp("base"), ("numpy", "h5py"))


@pytest.fixture
def in_base(base_python, home):
    def start(*words):
        python, *words = (base_python, *words) if words[0] == "-c" else words
        program = python if python == base_python else base_python.parent / python
        return subprocess.run(
            [program, *map(str, words)], cwd=home.root, capture_output=True, text=True,
            env=native_environment(SDS_HOME=home.root, SDS_DEBUG=home.root / "log"), check=False,
        )  # fmt: skip

    return start


def requirements(wheel):
    (name,) = (n for n in zipfile.ZipFile(wheel).namelist() if n.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(zipfile.ZipFile(wheel).read(name)).get_all("Requires-Dist")


def test_the_base_requires_numpy_and_h5py_alone(wheel):
    base = [line for line in requirements(wheel) if "extra ==" not in line]
    assert {re.match(r"[\w-]+", line)[0] for line in base} == {"numpy", "h5py"}
    extras = set(re.findall(r"extra == ['\"](\w+)", " ".join(requirements(wheel))))
    assert extras == {"server", "models", "plots", "demo", "mpi", "all"}


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["env"], ["--version"]])
def test_the_base_has_its_commands(in_base, words):
    result = in_base("sds", *words)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout


def test_the_base_lists_every_command(in_base):
    from sds.cli.typer_app import app

    listed = in_base("sds", "--help").stdout
    names = [command.name for command in app.registered_commands + app.registered_groups]
    assert all(re.search(rf"\b{name}\b", listed) for name in names)
    assert in_base("sds", "nonsense").returncode == 2


@pytest.mark.parametrize(
    "words", [["sds", "status"], ["sds", "advise", "x.h5"], ["sds", "demo"], ["sds-server"]]
)
def test_what_the_base_lacks_is_said_in_one_sentence(in_base, words):
    result = in_base(*words)
    assert result.returncode == (8 if words[0] == "sds" else 1)
    assert re.fullmatch(
        r"sds(-server)?: (error: )?\w+ is not installed, which this needs; "
        r"install it with: pip install 'sds-hdf5\[server\]'\n",
        result.stderr,
    )


READ_IN_BASE = """
import sys
import h5py, numpy as np, sds
plane = np.s_[:, :, 3]
print(sds.read(sys.argv[1], "/cube", plane).sum())
with h5py.File(sys.argv[1]) as file:
    print(file["cube"][plane].sum())
"""


def test_the_base_is_served_from_replicas(in_base, home, tmp_path):
    cube = redirected_cube(tmp_path, home)
    with h5py.File(cube) as file:
        total = file["cube"][:, :, 3].sum()
    python = in_base("-c", "import sys; print(sys.executable)").stdout.strip()
    result = in_base("sds", "run", "--", python, "-c", READ_IN_BASE, cube)
    assert (result.returncode, result.stdout) == (0, f"{total}\n{total}\n"), result.stderr
    assert "served" in [entry[0] for entry in decisions(home.root / "log")]
    found = json.loads(in_base("sds", "doctor", f"{cube}:/cube", "[:, :, 3]", "--json").stdout)
    assert found["ok"]
    assert [dataset["served"] for dataset in found["datasets"]] == [True]
    assert [host["package"] for host in found["hosts"]] == ["h5py"]


def test_the_base_queries_tables(in_base, tmp_path):
    rows = np.zeros(100, [("energy", "f8"), ("id", "i4")])
    rows["energy"] = np.arange(100)
    with h5py.File(tmp_path / "t.h5", "w") as file:
        file["t"] = rows
    query = "import sds, sys; print(len(sds.query(sys.argv[1], 'energy >= 97', table='/t')))"
    result = in_base("-c", query, tmp_path / "t.h5")
    assert (result.returncode, result.stdout) == (0, "3\n"), result.stderr
