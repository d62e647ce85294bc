"""What is loaded into programs runs with glibc 2.28 (manylinux_2_28), wherever it was built."""

import re
import subprocess

import pytest

from sds.redirect.connector import plugin_path

OLDEST = (2, 28)


def libraries():
    preload = plugin_path().parents[1] / "preload"
    return [plugin_path(), *sorted(preload.glob("*/sds_preload.so"))]


def read_elf(option, library):
    return subprocess.run(
        ["readelf", "-W", option, library], check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.parametrize("library", libraries(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_version_of_a_symbol_is_newer(library):
    needed = re.findall(r"Name: GLIBC_([0-9.]+)", read_elf("--version-info", library))
    newer = [text for text in needed if tuple(map(int, text.split("."))) > OLDEST]
    assert newer == [], f"{library}: add the functions to native/src/old_glibc.h"
    assert bool(needed) == (library == plugin_path())


def test_functions_that_have_moved_are_found_where_they_were():
    """glibc before 2.34 has them in these libraries; which newer ones still bring, empty."""
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", read_elf("--dynamic", plugin_path()))
    assert {"libpthread.so.0", "libdl.so.2"} <= set(needed)


@pytest.mark.parametrize("library", libraries()[1:], ids=lambda path: path.parent.name)
def test_what_is_preloaded_needs_nothing(library):
    assert "NEEDED" not in read_elf("--dynamic", library)
    undefined = re.findall(r"(\S+) +\S+ +UND (\S+)", read_elf("--dyn-syms", library))
    assert {binding for binding, _ in undefined} <= {"WEAK"}
    assert library.stat().st_size < 8192
