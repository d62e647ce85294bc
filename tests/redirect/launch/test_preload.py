"""Programs under `sds run` and `sds env` do what they do natively, and are served.

Whatever they or their shells do to the variables of HDF5: wherever it would use its own connector.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import pytest

from sds.redirect.launch import connector
from tests.hdf5_builds import hdf5_build
from tests.robustness.conftest import compile_c, needs_root
from tests.under_connector import (
    connector_environment,
    decisions,
    native_environment,
    run_python,
)

HERE = Path(__file__).parent
VERSIONS = ["1.14.6", "2.0.0", "2.2.0"]
SEED, N_PROGRAMS = 20261123, 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("launched")


@pytest.fixture(scope="module")
def file(folder):
    path = folder / "x.h5"
    with h5py.File(path, "w") as handle:
        handle.create_dataset("x", data=[1, 2, 3, 4], dtype="i4")
    return path


@pytest.fixture(scope="module")
def programs(folder):
    """The program of launched.c with each HDF5, linked as a library and into it."""
    return {
        (version, static): hdf5_build(version).compile(
            HERE / "launched.c", folder / f"launched-{version}-{static}", static=static,
            export_dynamic=False,
        )
        for version in VERSIONS
        for static in (False, True)
    }  # fmt: skip


def outcome(command, env, timeout=300):
    result = subprocess.run(
        [str(word) for word in command], env=env, capture_output=True, check=False, timeout=timeout
    )
    return result.returncode, result.stdout, result.stderr


def compare(command, home, **variables):
    """Run a command natively and under SDS; return what it did, and the HDF5 that were served."""
    log = home.root / f"log{len(list(home.root.glob('log*')))}"
    native = outcome(command, native_environment(**variables))
    served = outcome(command, connector_environment(home.root, SDS_DEBUG=log, **variables))
    assert served == native, command
    return native, [line[3] for line in decisions(log) if line[0] == "bound"]


# ---- the laws, one by one

PYTHON = """
    import os, sys
    os.environ["HDF5_PLUGIN_PATH"] = "/opt/site/filters"
    import {package}
    if "{package}" == "netCDF4":
        print(netCDF4.Dataset(sys.argv[1])["x"][:].sum())
    elif "{package}" == "tables":
        with tables.open_file(sys.argv[1]) as file:
            print(file.root.x[:].sum())
    else:
        print(h5py.File(sys.argv[1])["x"][:].sum())
    print(os.environ["HDF5_PLUGIN_PATH"])
"""


@pytest.mark.parametrize(
    ("package", "version"), [("h5py", "2.0.0"), ("netCDF4", "2.2.0"), ("tables", "1.14.6")]
)
def test_a_plugin_path_of_the_programs_own(package, version, file, home, tmp_path):
    program = tmp_path / "program.py"
    lines = PYTHON.format(package=package).splitlines()
    program.write_text("\n".join(line[4:] for line in lines))
    native, served = compare([sys.executable, program, file], home)
    assert native == (0, b"10\n/opt/site/filters\n", b"")
    assert served == [version]


@pytest.mark.parametrize("quoted", [True, False])
def test_a_plugin_path_set_in_the_shell_after_sds_env(quoted, file, home, tmp_path):
    log = tmp_path / "log"
    lines = (
        f'eval "$({sys.executable} -m sds.cli env)"'
        if quoted
        else (f"eval $({sys.executable} -m sds.cli env)")
    )
    read = f"{sys.executable} -c \"import h5py; print(h5py.File('{file}')['x'][3])\""
    script = f"{lines}; export HDF5_PLUGIN_PATH=/opt/site/filters; {read}"
    env = native_environment(SDS_HOME=home.root, SDS_DEBUG=log, XDG_DATA_HOME=tmp_path / "data")
    assert outcome(["sh", "-c", script], env) == (0, b"4\n", b"")
    assert [line[0] for line in decisions(log)][:1] == ["bound"]


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_libraries_start_and_end_as_often_as_a_program_likes(version, static, programs, file, home):
    """No identifier is kept that would outlive HDF5's own connectors."""
    steps = ["read", "end"] * 20
    native, served = compare([programs[version, static], file, *steps], home)
    assert native[0] == 7
    assert b"ended: -1" not in native[1]
    assert served == [version]


@pytest.mark.parametrize(
    ("steps", "is_served"),
    [
        (["clear", "read"], False),  # as natively: of SDS nothing is left
        (["set:HDF5_VOL_CONNECTOR=native", "read"], False),
        (["set:HDF5_VOL_CONNECTOR=", "read"], True),
        (["put:HDF5_PLUGIN_PATH=/none", "read"], True),
        (["unset:HDF5_PLUGIN_PATH", "read"], True),
        (["set:HDF5_PLUGIN_PRELOAD=::", "read"], False),
        (["set:HDF5_PLUGIN_PATH=", "exec", "set:HDF5_PLUGIN_PATH=/none", "read"], True),
    ],
)
def test_variables_of_a_program_in_c(steps, is_served, programs, file, home):
    for version in VERSIONS:
        command = [programs[version, False], file, *steps]
        native, served = compare(command, home, HDF5_PLUGIN_PATH="/some/where")
        assert native[0] == 7
        assert served == ([version] if is_served else [])


def test_a_variable_that_names_sds_never_crashes(programs, file, home, tmp_path):
    """Of a notebook's children, or set by hand: no plugin path holds the connector."""
    for version in VERSIONS:
        log = tmp_path / f"log-{version}"
        env = connector_environment(
            home.root, HDF5_VOL_CONNECTOR=connector.CONNECTOR, HDF5_PLUGIN_PATH="/none",
            SDS_DEBUG=log,
        )  # fmt: skip
        command = [programs[version, False], file, "read"]
        assert outcome(command, env)[0] == 7
        assert decisions(log)[0][0] == "bound"
        status, output, errors = outcome(command, env | {"SDS_CONNECTOR": "/none"})
        assert (status, b"read: 0 4" in output, errors) == (7, True, b"")


@pytest.mark.parametrize("what", ["missing", "text", "another library"])
def test_without_the_connector_programs_run_natively(what, programs, file, home, tmp_path):
    plugin = tmp_path / "plugin.so"
    if what == "text":
        plugin.write_text("none")
    elif what == "another library":
        (tmp_path / "none.c").write_text("int none(void) { return 0; }")
        compile_c(tmp_path / "none.c", plugin, "-shared", "-fPIC")
    command = [programs["2.0.0", False], file, "read"]
    native = outcome(command, native_environment())
    env = connector_environment(home.root, SDS_CONNECTOR=plugin)
    assert outcome(command, env) == native


# ---- programs of other kinds


def test_a_static_program_is_not_touched(file, home, tmp_path):
    program = hdf5_build("2.2.0").compile(
        HERE / "launched.c", tmp_path / "static", "-static", static=True, export_dynamic=False
    )
    assert compare([program, file, "read"], home)[1] == []


def test_a_program_without_symbols_runs_natively(file, home, tmp_path):
    program = hdf5_build("2.2.0").compile(
        HERE / "launched.c", tmp_path / "stripped", "-s", static=True, export_dynamic=False
    )
    assert compare([program, file, "read"], home)[1] == []


@pytest.mark.parametrize("static", [False, True])
def test_a_program_that_asks_for_the_variable_itself(static, programs, file, home):
    """With HDF5 inside it, and before HDF5 does: that starts, natively, while it is looked at."""
    native, _ = compare([programs["2.0.0", static], file, "ask", "read", "ask"], home)
    assert native[1].count(b"connector: none") == 2


@needs_root("gives programs to others")
def test_a_set_user_id_program_is_not_touched(programs, file, home, tmp_path):
    program = tmp_path / "program"
    shutil.copy(programs["2.0.0", True], program)
    os.chown(program, 65534, 65534)
    program.chmod(0o4755)
    for path in (file.parent, *list(file.parents)[:3], *list(tmp_path.parents)[:2], tmp_path):
        path.chmod(path.stat().st_mode | 0o055)
    assert compare([program, file, "read"], home)[1] == []


def test_a_32_bit_program_is_not_touched(home, tmp_path, tool):
    """The loader says on stderr what it cannot preload."""
    loader = tool("/lib/ld-linux.so.2")
    source = tmp_path / "small.c"
    source.write_text('void _start(void) { __asm__("mov $1, %eax; mov $5, %ebx; int $0x80"); }\n')
    program = compile_c(
        source,
        tmp_path / "small",
        "-m32",
        "-nostdlib",
        f"-Wl,--dynamic-linker={loader}",
        "-pie",
    )
    assert compare([program], home)[0] == (5, b"", b"")


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="left out: written for x86-64")
def test_a_program_without_a_c_library_is_not_touched(home, tmp_path):
    source = tmp_path / "small.c"
    source.write_text('void _start(void) { __asm__("mov $60, %eax; mov $5, %edi; syscall"); }\n')
    options = ("-nostdlib", "-pie", "-Wl,--dynamic-linker=/lib64/ld-linux-x86-64.so.2")
    assert compare([compile_c(source, tmp_path / "small", *options)], home)[0] == (5, b"", b"")


def test_a_program_with_address_sanitizer_runs(home, tmp_path):
    source = tmp_path / "small.c"
    source.write_text('#include <stdlib.h>\nint main(void) { return getenv("HOME") ? 5 : 6; }\n')
    program = compile_c(source, tmp_path / "small", "-fsanitize=address")
    for variables in ({}, {"ASAN_OPTIONS": "detect_leaks=0"}):
        assert compare([program], home, **variables)[0] == (5, b"", b"")


OTHER = """
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
char *getenv(const char *name)
{
    char *(*next)(const char *) = dlsym(RTLD_NEXT, "getenv");
    return strcmp(name, "OTHER") == 0 ? "there" : next(name);
}
"""


@pytest.mark.parametrize("is_first", [True, False])
def test_other_preloaded_libraries_go_on(is_first, programs, file, home, tmp_path):
    (tmp_path / "other.c").write_text(OTHER)
    other = str(compile_c(tmp_path / "other.c", tmp_path / "other.so", "-shared", "-fPIC", "-ldl"))
    log = tmp_path / "log"
    env = connector_environment(home.root, SDS_DEBUG=log, LD_PRELOAD=other)
    names = env["LD_PRELOAD"].split(":")
    assert names[1:] == [other]
    env["LD_PRELOAD"] = ":".join(reversed(names) if is_first else names)
    text = "import ctypes, h5py; get = ctypes.CDLL(None).getenv; get.restype = ctypes.c_char_p; "
    text += "print(get(b'OTHER'), get(b'NONE'))"
    assert run_python(text, env=env).stdout == "b'there' None\n"
    assert outcome([programs["2.0.0", False], file, "read"], env)[0] == 7
    served = [line[3] for line in decisions(log) if line[0] == "bound"]
    assert served == ([] if is_first else ["2.0.0", "2.0.0"])


@pytest.mark.parametrize("other", [[], ["libm.so.6"], ["libm.so.6", "libdl.so.2"]])
def test_programs_that_change_the_root_do_not_hand_it_on(other, home, tmp_path):
    """In a container the loader would complain, and HDF5 2 would look for a connector in vain."""
    show = tmp_path / "apptainer"
    (tmp_path / "show.c").write_text(
        "#include <stdio.h>\nextern char **environ;\n"
        "int main(void) { for (char **at = environ; *at; at++) puts(*at); return 0; }\n"
    )
    compile_c(tmp_path / "show.c", show)
    given = {"HDF5_VOL_CONNECTOR": connector.CONNECTOR}
    given |= {"LD_PRELOAD": ":".join(other)} if other else {}
    env = connector_environment(home.root, **given)
    seen = outcome([show], env)[1].decode().splitlines()
    kept = [line for line in seen if line.startswith(("LD_PRELOAD", "HDF5_VOL"))]
    assert kept == ([f"LD_PRELOAD={':'.join(other)}"] if other else [])
    assert len(seen) == len(env) - 2 + bool(other)
    (tmp_path / "other").symlink_to(show)
    seen = outcome([tmp_path / "other"], env)[1].decode().splitlines()
    assert len(seen) == len(env)


def test_h5repack_copies_natively(programs, file, home, tmp_path):
    program = tmp_path / "h5repack"
    program.symlink_to(programs["2.0.0", False])
    assert compare([program, file, "read"], home)[1] == []


def test_the_off_switch_leaves_nothing_of_sds_in_the_way(programs, file, home, tmp_path):
    command = [programs["2.0.0", False], file, "read"]
    log = tmp_path / "log"
    for variables in ({"SDS_DISABLE": 1}, {}):
        env = connector_environment(home.root, SDS_DEBUG=log, **variables)
        assert outcome(command, env) == outcome(command, native_environment())
        home.disabled.touch()
    assert [(line[0], line[3]) for line in decisions(log)] == [
        ("native", "SDS is switched off")
    ] * 2


# ---- random programs


def random_steps(draw):
    """Return changes of HDF5's variables: (what, name, value)."""
    values = {
        "HDF5_PLUGIN_PATH": ["", "/none", "/opt/a:/opt/b"],
        "HDF5_VOL_CONNECTOR": ["", "native", "pass_through under_vol=0;under_info={}"],
        "HDF5_PLUGIN_PRELOAD": ["", "::"],
        "HDF5_USE_FILE_LOCKING": ["FALSE", "BEST_EFFORT"],
    }
    steps = []
    for _ in range(draw.randint(0, 5)):
        name = draw.choice(list(values))
        what = draw.choice(["set", "set", "put", "unset"])
        steps.append((what, name, draw.choice(values[name])))
    return steps


def after(steps, variables):
    changed = dict(variables)
    for what, name, value in steps:
        if what == "unset":
            changed.pop(name, None)
        else:
            changed[name] = value
    return changed


def in_c(steps):
    return [
        f"{what}:{name}" + ("" if what == "unset" else f"={value}") for what, name, value in steps
    ]


def is_served(variables):
    forbidden = variables.get("HDF5_PLUGIN_PRELOAD") == "::"
    return not variables.get("HDF5_VOL_CONNECTOR") and not forbidden


RANDOM_PYTHON = """
import ctypes, importlib, json, os, sys
def change(steps):
    for what, name, value in steps:
        if what == "unset":
            os.environ.pop(name, None)
        elif what == "put":
            os.putenv(name, value)
        else:
            os.environ[name] = value
path, before, package, between, rest = sys.argv[1], *map(json.loads, sys.argv[2:6])
change(before)
module = importlib.import_module(package)
change(between)
if package == "h5py":
    with module.File(path) as file:
        print(file["x"][:].sum(), [module.h5pl.get(i) for i in range(module.h5pl.size())])
elif package == "netCDF4":
    with module.Dataset(path) as file:
        print(file["x"][:].sum(), file.has_zstd_filter(), file.has_blosc_filter())
else:
    with module.open_file(path) as file:
        print(file.root.x[:].sum())
change(rest)
print(sorted(item for item in os.environ.items() if item[0].startswith("HDF5_")))
sys.exit(3)
"""


@pytest.mark.parametrize("number", range(N_PROGRAMS))
def test_random_programs_do_what_they_do_natively(number, programs, file, home):
    draw = random.Random(f"{SEED} {number}")  # noqa: S311  (no secrets)
    shell, before, between, rest = (random_steps(draw) for _ in range(4))
    if draw.random() < 0.5:
        package, version = draw.choice(
            [("h5py", "2.0.0"), ("netCDF4", "2.2.0"), ("tables", "1.14.6")]
        )
        started = [sys.executable, "-c", RANDOM_PYTHON, file]
        started += [json.dumps(each) for each in (before, package, between, rest)]
    else:
        version, static = draw.choice(list(programs))
        started = [programs[version, static], file, *in_c(before)]
        started += ["exec"] if draw.random() < 0.3 else []
        started += [*in_c(between), "read", "end", "read", *in_c(rest)]
        before = [*before, *between]
    lines = [
        f"unset {name}" if what == "unset" else f"export {name}='{value}'"
        for what, name, value in shell
    ]
    script = "; ".join([*lines, 'exec "$@"'])
    native, served = compare(["sh", "-c", script, "sh", *started], home)
    assert native[0] in {3, 7}, native
    expected = is_served(after([*shell, *before], {}))
    assert served == ([version] if expected else []), (shell, before)
