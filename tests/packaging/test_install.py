"""The wheel and the editable install both work, from the repository's root and from elsewhere.

In the root the source folder ``sds/`` shadows an installed wheel, which alone holds the compiled
parts.
"""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

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


@pytest.fixture(scope="session")
def wheel_python(wheel, tmp_path_factory):
    """Return the python of a venv that has the wheel, and the dependencies of this one."""
    directory = tmp_path_factory.mktemp("venv")
    made = run(sys.executable, "-m", "venv", "--without-pip", directory, cwd=directory)
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


@pytest.mark.parametrize("where", ["root", "elsewhere"])
@pytest.mark.parametrize("install", ["wheel", "editable"])
def test_native_parts_and_plugin_are_found(install, where, request, tmp_path):
    python = request.getfixturevalue("wheel_python") if install == "wheel" else sys.executable
    result = run(python, "-c", PROBE, cwd=ROOT if where == "root" else tmp_path)
    assert result.returncode == 0, result.stderr
    if install == "wheel":
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
    assert "sds/py.typed" in names
    assert not [name for name in names if name.endswith((".c", ".cpp", ".h"))]
    assert not [name for name in names if name.startswith(("tests/", "native/"))]


def test_plugin_depends_on_libc_alone(wheel, tmp_path):
    zipfile.ZipFile(wheel).extract("sds/redirect/plugin/libh5sds_vol.so", tmp_path)
    result = run("readelf", "-d", tmp_path / "sds/redirect/plugin/libh5sds_vol.so", cwd=tmp_path)
    needed = {
        line.split("[")[1].rstrip("]") for line in result.stdout.splitlines() if "NEEDED" in line
    }
    assert needed <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}, needed
