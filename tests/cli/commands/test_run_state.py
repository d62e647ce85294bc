"""A program under ``sds run`` finds all that it would find without: only variables are added."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.robustness.conftest import compile_c
from tests.sizes import repeated

SDS = (sys.executable, "-m", "sds.cli", "run", "--")
# Lines of a shell, some of which are run before the program is.
STATES = {
    "no SIGPIPE": 'trap "" PIPE',
    "no SIGXFSZ": 'trap "" XFSZ',
    "no SIGHUP": 'trap "" HUP',
    "no SIGINT, no SIGQUIT": 'trap "" INT QUIT',
    "closed input": "exec 0<&-",
    "closed output": "exec 1>&-",
    "closed errors": "exec 2>&-",
    "appended output": "exec 1>>/dev/null",
    "more descriptors": "exec 7</dev/null 9>>/dev/null",
    "a mask": "umask 0137",
    "few files": "ulimit -S -n 100",
    "small files": "ulimit -S -f 100000",
    "no core": "ulimit -c 0",
    "niceness": 'renice -n 5 -p "$$" >/dev/null',
    "a directory": "cd /usr",
    "locale C": "export LC_ALL=C",
    "no locale": "unset LANG LC_ALL LC_CTYPE",
    "character type C": "unset LC_ALL; export LC_CTYPE=C",
    "another locale": "unset LC_ALL; export LANG=C.UTF-8 LC_CTYPE=POSIX",
    "odd variables": "export EMPTY= ODD=$(printf 'a\\nb\\351')",
    "unbuffered": "export PYTHONUNBUFFERED=1 PYTHONWARNINGS=ignore",
}
# What switches the connector on (`sds env`), and what a shell changes by itself.
ADDED = ("SDS_", "LD_PRELOAD=", "ASAN_OPTIONS=", "_=", "OLDPWD=")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    source = Path(__file__).with_name("state_of_process.c")
    return compile_c(source, tmp_path_factory.mktemp("program") / "program")


def found(names, launcher, program, tmp_path):
    """Return what the program finds, and how it ends, after some lines of a shell."""
    told = tmp_path / "told"
    told.unlink(missing_ok=True)
    lines = "\n".join(STATES[name] for name in names)
    done = subprocess.run(
        ["sh", "-c", f'{lines}\n"$@"\nexit $?', "sh", *launcher, program, told, "a b", ""],
        env=os.environ | {"SDS_HOME": str(tmp_path / "home")},
        capture_output=True, check=False, timeout=300,
    )  # fmt: skip
    lines = told.read_bytes().split(b"\n")
    added = tuple(f"variable {name}".encode() for name in ADDED)
    return done.returncode, done.stderr, sorted(x for x in lines if not x.startswith(added))


@pytest.mark.parametrize("name", STATES)
def test_a_program_finds_what_it_would_find_without(name, program, tmp_path):
    native = found([name], (), program, tmp_path)
    assert native[0] == 0
    assert found([name], SDS, program, tmp_path) == native


@pytest.mark.parametrize("seed", range(repeated(4, 100)))
def test_also_where_much_is_changed(seed, program, tmp_path):
    names = random.Random(seed).sample(sorted(STATES), 7)  # noqa: S311  (repeatable)
    native = found(names, (), program, tmp_path)
    assert found(names, SDS, program, tmp_path) == native, names


def test_a_writer_whose_reader_has_gone_ends_as_without(tmp_path):
    for launcher in ((), SDS):
        done = subprocess.run(
            ["bash", "-c", '"$@" | head -1 >/dev/null; exit ${PIPESTATUS[0]}', "-", *launcher,
             "yes"],
            env=os.environ | {"SDS_HOME": str(tmp_path / "home")},
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (141, "")


def test_a_program_starts_where_proc_is_not_mounted(tmp_path):
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("left out: only root with CAP_SYS_ADMIN hides /proc")
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "-",
         *SDS, "echo", "started"],
        env=os.environ | {"SDS_HOME": str(tmp_path / "home")},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "started\n"), done.stderr
