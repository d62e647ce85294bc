import dataclasses
import json
import os
import re
import shutil
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from sds.errors import SelectionError
from sds.geometry import SegmentList
from sds.home import Home
from sds.redirect.doctor.dataset_checks import datasets_of_run
from sds.redirect.doctor.decisions import Decision, remedy_for
from sds.redirect.doctor.diagnosis import diagnose
from sds.redirect.launch import connector
from sds.redirect.tables import publish_table, table_path
from tests.hdf5_builds import hdf5_build
from tests.redirected import publish_candidates, redirect, settle, write_replica
from tests.under_connector import ROOT, native_environment

SHAPE = (40, 50, 60)


@pytest.fixture
def cube(tmp_path):
    path = tmp_path / "cube.h5"
    with h5py.File(path, "w") as file:
        file["cube"] = np.zeros(SHAPE)
        file["other"] = np.zeros(SHAPE)
    settle(path)
    return path


def examine(home, cube, dataset=None):
    return diagnose(file=cube, dataset=dataset, home=home, environ=native_environment())


def test_a_healthy_installation(home):
    diagnosis = diagnose(home=home, environ=native_environment())
    assert diagnosis.is_healthy
    assert not diagnosis.disabled
    assert diagnosis.plugin.endswith("libh5sds_vol.so")
    assert {(host.package, host.detail) for host in diagnosis.hosts} == {
        ("h5py", "HDF5 2.0.0"), ("netCDF4", "HDF5 2.2.0"), ("tables", "HDF5 1.14.6"),
    }  # fmt: skip
    assert all(host.loads for host in diagnosis.hosts)
    json.dumps(dataclasses.asdict(diagnosis))


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"HDF5_VOL_CONNECTOR": "missing"}, "'missing' names another connector"),
        ({"HDF5_VOL_CONNECTOR": "sds under_vol=0;under_info={}"}, "HDF5_PLUGIN_PATH (not set)"),
        ({"HDF5_VOL_CONNECTOR": "sds", "HDF5_PLUGIN_PATH": "/nowhere"}, "(/nowhere) holds"),
    ],
)
def test_variables_under_which_programs_crash(home, cube, variables, said):
    redirect(cube, [("/cube", (2, 0, 1))], home)
    diagnosis = diagnose(file=cube, home=home, environ=native_environment() | variables)
    assert [host.loads for host in diagnosis.hosts] == [True, True, True]
    assert [report.served for report in diagnosis.datasets] == [True]
    (problem,) = diagnosis.problems
    assert said in problem.what
    assert "unset HDF5_VOL_CONNECTOR" in problem.remedy


def test_a_preloaded_library_that_is_not_there_is_a_problem(home):
    """As in a container that inherited the variable."""
    variables = connector.environment(home, native_environment())
    elsewhere = "/nowhere/" + variables["LD_PRELOAD"].rpartition("/")[2]
    diagnosis = diagnose(home=home, environ=native_environment(LD_PRELOAD=elsewhere))
    (problem,) = diagnosis.problems
    assert f"LD_PRELOAD names {elsewhere}, which is not here" in problem.what
    assert "sds env --unset" in problem.remedy


@pytest.mark.parametrize("named", [{}, {"HDF5_VOL_CONNECTOR": connector.CONNECTOR}])
def test_variables_that_switch_sds_on_are_no_problem(named, home):
    variables = connector.environment(home, native_environment()) | named
    assert diagnose(home=home, environ=native_environment() | variables).is_healthy


def test_h5py_of_debian_is_found(home, tool):
    """It keeps what is compiled in a folder of its own, and its HDF5 1.10 knows no connectors."""
    tool("/usr/lib/python3/dist-packages/h5py/__init__.py")
    diagnosis = diagnose(home=home, python="/usr/bin/python3", environ=native_environment())
    hosts = [host for host in diagnosis.hosts if host.package == "h5py"]
    assert [Path(host.library).name.split(".so")[0] for host in hosts] == ["libhdf5_serial"]
    assert not hosts[0].loads
    assert f"HDF5 {hosts[0].version} is older than 1.14" in hosts[0].detail


def test_a_dataset_that_is_served(home, cube):
    redirect(cube, [("/cube", (2, 0, 1))], home)
    diagnosis = examine(home, cube)
    (report,) = diagnosis.datasets
    assert (report.path, report.orders, report.served) == ("/cube", ((2, 0, 1),), True)
    assert report.remedy == ""
    assert list(home.spool.iterdir()) == []  # the doctor's own reads are no trace


def test_a_dataset_without_a_replica(home, cube):
    redirect(cube, [("/cube", (2, 0, 1))], home)
    (report,) = examine(home, cube, "/other").datasets
    assert not report.served
    assert report.reason.startswith("the table does not name it")
    assert "check its name" in report.remedy
    assert "sds reorganize" in report.remedy


def test_a_file_without_a_table(home, cube):
    diagnosis = examine(home, cube, "/cube")
    (report,) = diagnosis.datasets
    assert not report.served
    assert "no redirect table" in report.reason
    assert "sds reorganize" in report.remedy
    assert diagnosis.is_healthy
    assert examine(home, cube).is_healthy


def test_a_damaged_table(home, cube):
    redirect(cube, [("/cube", (2, 0, 1))], home)
    table = table_path(home, cube)
    content = bytearray(table.read_bytes())
    content[len(content) // 2] ^= 0xFF
    table.write_bytes(content)
    diagnosis = examine(home, cube, "/cube")
    assert "damaged" in diagnosis.problems[0].what
    assert "sds replicas verify" in diagnosis.problems[0].remedy
    assert "sds replicas verify" in diagnosis.datasets[0].remedy


def test_a_source_that_has_changed(home, cube):
    redirect(cube, [("/cube", (2, 0, 1))], home)
    os.utime(cube)
    diagnosis = examine(home, cube)
    (report,) = diagnosis.datasets
    assert report.reason == "the source has changed since its replica was made"
    assert "sds reorganize" in report.remedy
    (problem,) = diagnosis.problems
    assert f"{cube} has changed" in problem.what
    assert "sds reorganize" in problem.remedy
    assert not diagnosis.is_healthy


def test_a_damaged_replica(home, cube):
    table = redirect(cube, [("/cube", (2, 0, 1))], home)
    table.datasets[0].candidates[0].path.unlink()
    (report,) = examine(home, cube).datasets
    assert report.reason == "the replica is missing"


def test_a_table_that_never_wins(home, cube):
    table = redirect(cube, [("/cube", (2, 0, 1))], home)
    (dataset,) = table.datasets
    (candidate,) = dataset.candidates
    dear = dataclasses.replace(candidate.model, calibrated=True, floor_s=1e6)
    candidate = dataclasses.replace(candidate, model=dear)
    dataset = dataclasses.replace(dataset, candidates=(candidate,))
    publish_table(home, dataclasses.replace(table, datasets=(dataset,)))
    (report,) = examine(home, cube).datasets
    assert report.reason == "the original is predicted to be cheaper"
    assert report.remedy.startswith("nothing is wrong")


def test_what_switches_sds_off(home):
    home.disabled.touch()
    environ = native_environment(SDS_DISABLE=1)
    diagnosis = diagnose(home=home, environ=environ)
    assert diagnosis.disabled
    assert [problem.remedy for problem in diagnosis.problems] == [
        "unset SDS_DISABLE", f"remove {home.disabled}",
    ]  # fmt: skip


def test_problems_have_remedies(tmp_path):
    environ = native_environment()
    home = Home(tmp_path / "none")
    diagnosis = diagnose(
        file=tmp_path / "none.h5", python=tmp_path / "nopython", home=home, environ=environ
    )
    assert not diagnosis.is_healthy
    assert all(problem.remedy for problem in diagnosis.problems)
    assert any("no such file" in problem.what for problem in diagnosis.problems)


def test_what_is_selected_is_what_is_judged(home, cube):
    redirect(cube, [("/cube", (2, 0, 1))], home, always=False)

    def report(selection):
        environ = native_environment()
        found = diagnose(
            file=cube, dataset="/cube", selection=selection, home=home, environ=environ
        )
        return found.datasets[0]

    assert report("[:, :, 7]").served
    along = report("[3, ::2, :]")
    assert (along.served, along.reason) == (False, "the original is predicted to be cheaper")
    with pytest.raises(SelectionError, match="99"):
        report("[99]")


def test_what_replicas_do_not_hold_or_serve_is_told(home, cube):
    replicas = [("/cube", (2, 0, 1), {"region": "[:, :, :30]", "chunks": "auto"})]
    redirect(cube, replicas, home)
    report = diagnose(
        file=cube, dataset="/cube", selection="[:, :, 40]", home=home, environ=native_environment()
    ).datasets[0]
    assert (report.served, report.reason) == (False, "no replica holds all that is selected")
    assert "region" in report.remedy
    text = "import sys, h5py; d = h5py.File(sys.argv[1])['cube']; d[:, [1, 4, 9], 5]; d[:, :, 5]"
    command = [sys.executable, "-c", text, str(cube)]
    (report,) = diagnose(
        command=command, runs_command=True, home=home, environ=native_environment()
    ).datasets
    assert report.served
    assert report.reason == (
        "other reads come from the original: "
        "only replicas in chunks or of segments are there, which serve boxes alone"
    )
    assert "contiguous" in report.remedy
    # What a replica would serve, but for its cost, and what does not reach the prediction.
    redirect(cube, [("/cube", (2, 0, 1), {"region": "[:, :, :30]"})], home, always=False)
    text = text.replace("d[:, :, 5]", "d[3, [1, 4, 9], :20]; d[:, [1, 4], 20:40]; d[3, :, 40:]")
    (report,) = diagnose(
        command=[sys.executable, "-c", text, str(cube)],
        runs_command=True,
        home=home,
        environ=native_environment(SDS_ENGINE=0),
    ).datasets
    assert report.served
    assert set(report.reason.split(": ")[1].split("; ")) == {
        "the original is predicted to be cheaper", "no replica holds all that is selected",
    }  # fmt: skip


def test_a_tile_is_read_whole(home, tmp_path):
    # A series: of its slowest axis, one index would be one element, which no replica reads faster.
    source = tmp_path / "grid.h5"
    with h5py.File(source, "w") as file:
        file["t"] = np.zeros((400, 60, 60), "f4")
    series = SegmentList(tile_shape=(400, 1, 1), tiles=(70, 3), lengths=(2,))
    replica = write_replica(source, "/t", (0, 1, 2), home, segments=series)
    publish_candidates(source, {"/t": [replica]}, home, always=False)
    (report,) = diagnose(file=source, home=home, environ=native_environment()).datasets
    assert report.served, report.reason


def test_tiles_are_looked_into(home, cube):
    # Without a selection, what is read lies in a tile that is there.
    with h5py.File(cube) as file:
        extent = file["cube"].shape
    tile = tuple(-(-n // 2) for n in extent)
    replica = write_replica(
        cube,
        "/cube",
        (2, 0, 1),
        home,
        segments=SegmentList(tile_shape=tile, tiles=(6, 3), lengths=(1, 1)),
    )
    publish_candidates(cube, {"/cube": [replica]}, home)

    def report(selection):
        return diagnose(
            file=cube,
            dataset="/cube",
            selection=selection,
            home=home,
            environ=native_environment(),
        ).datasets[0]

    assert report(None).served
    elsewhere = report("[:2, :2, :2]")
    assert (elsewhere.served, elsewhere.reason) == (
        False,
        "no replica holds all that is selected",
    )


def test_replicas_in_large_chunks_are_told(home, tmp_path):
    source = tmp_path / "large.h5"
    with h5py.File(source, "w") as file:
        file["cube"] = np.zeros((64, 64, 257), "u1")
    settle(source)
    large = write_replica(source, "/cube", (2, 0, 1), home, chunks=(257, 64, 64))
    publish_candidates(source, {"/cube": [large]}, home)
    (report,) = diagnose(
        file=source, dataset="/cube", home=home, environ=native_environment()
    ).datasets
    assert not report.served
    assert "chunks are larger than 1 MiB" in report.reason
    assert "--chunks auto" in report.remedy


def test_tables_are_found(home, cube, tmp_path):
    sources = [cube]
    for name in ("other.h5", "third.h5"):
        sources.append(tmp_path / name)
        shutil.copy(cube, sources[-1])
        settle(sources[-1])
    for source in sources:
        redirect(source, [("/cube", (2, 0, 1))], home)

    def tables(file=None):
        found = diagnose(file=file, home=home, environ=native_environment())
        return {table.path: table for table in found.tables}

    places = [str(table_path(home, source)) for source in sources]
    found = tables()
    assert set(found) == set(places)
    assert [found[place].source for place in places] == [str(source) for source in sources]
    assert all((table.datasets, table.problem) == (("/cube",), "") for table in found.values())
    assert set(tables(cube)) == {places[0]}
    with h5py.File(sources[0], "r+") as file:
        file["cube"][0, 0, 0] = 1
    sources[1].unlink()
    Path(places[2]).write_bytes(b"nonsense")
    found = tables()
    assert "has changed (" in found[places[0]].problem
    assert "no such file" in found[places[1]].problem
    assert (found[places[2]].source, found[places[2]].datasets) == ("", ())
    assert found[places[2]].problem


def test_a_python_without_hdf5(home, tmp_path):
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    diagnosis = diagnose(python=python, home=home, environ=native_environment())
    assert diagnosis.hosts == ()
    assert "has none of h5py, netCDF4, tables, vtkmodules" in diagnosis.problems[0].what


def test_another_connector_in_the_environment_is_seen_through(home):
    environ = native_environment(HDF5_VOL_CONNECTOR="async under_vol=0")
    diagnosis = diagnose(home=home, environ=environ)
    assert all(host.loads for host in diagnosis.hosts)
    (problem,) = diagnosis.problems  # for `sds run` starts programs without SDS
    assert "'async under_vol=0' names another connector" in problem.what


def test_forbidden_plugins_are_told(home):
    environ = native_environment(HDF5_PLUGIN_PRELOAD="::")
    (problem,) = diagnose(home=home, environ=environ).problems
    assert "HDF5_PLUGIN_PRELOAD" in problem.what
    assert "unset" in problem.remedy


def test_a_command_of_python_is_judged_by_its_packages(home):
    command = [sys.executable, "program.py"]
    diagnosis = diagnose(command=command, home=home, environ=native_environment())
    assert {host.package for host in diagnosis.hosts} == {"h5py", "netCDF4", "tables"}
    assert (diagnosis.python, diagnosis.command) == (None, tuple(command))


def test_a_command_is_run_only_when_asked(home, cube, tmp_path):
    redirect(cube, [("/cube", (2, 0, 1))], home)
    text = (
        "import sys, h5py; open(sys.argv[2], 'w').close(); f = h5py.File(sys.argv[1]); "
        "f['cube'][:, :, 3]; f['other'][0]"
    )
    command = [sys.executable, "-c", text, str(cube), str(tmp_path / "ran")]
    diagnose(command=command, home=home, environ=native_environment())
    assert not (tmp_path / "ran").exists()
    diagnosis = diagnose(
        command=command, runs_command=True, home=home, environ=native_environment()
    )
    assert (tmp_path / "ran").exists()
    (host,) = diagnosis.hosts
    assert (host.binding, host.version, host.loads) == ("exported symbols", "2.0.0", True)
    assert {(report.path, report.served) for report in diagnosis.datasets} == {
        (f"{cube}:/cube", True), (f"{cube}:/other", False),
    }  # fmt: skip
    assert list(home.spool.iterdir()) == []


def test_a_command_that_fails_is_told(home):
    command = [sys.executable, "-c", "raise SystemExit(3)"]
    diagnosis = diagnose(
        command=command, runs_command=True, home=home, environ=native_environment()
    )
    assert ["status 3" in problem.what for problem in diagnosis.problems] == [True, False]
    assert "no HDF5 loaded the connector" in diagnosis.problems[1].what


@pytest.mark.parametrize(
    ("command", "told"), [("no-such-program", "no such program"), ("/bin/sh", "without running")]
)
def test_commands_of_which_nothing_is_known(command, told, home):
    diagnosis = diagnose(command=[command], home=home, environ=native_environment())
    assert told in diagnosis.problems[0].what


COMPILED = """
#include <hdf5.h>
int main(void) { return H5Fopen("/none", H5F_ACC_RDONLY, H5P_DEFAULT) < 0; }
"""


@pytest.mark.parametrize(
    ("options", "static", "binding"),
    [
        ((), False, "exported symbols"), ((), True, "symbol table"), (("-s",), True, "native"),
        (("-static",), True, "native"),
    ],
)  # fmt: skip
def test_a_compiled_program(options, static, binding, home, tmp_path):
    source = tmp_path / "program.c"
    source.write_text(COMPILED)
    program = str(
        hdf5_build("2.2.0").compile(
            source, tmp_path / "program", *options, static=static, export_dynamic=False
        )
    )
    told = diagnose(command=[program], home=home, environ=native_environment())
    if static:
        assert "without running" in told.problems[0].what
    run = diagnose(command=[program], runs_command=True, home=home, environ=native_environment())
    if "-static" in options:
        assert run.hosts == ()  # without a loader nothing is preloaded
        return
    seen = run.hosts[0]
    assert (seen.binding, seen.loads) == (binding, binding != "native")
    assert bool(seen.remedy) == (binding == "native")
    assert static or told.hosts[0].binding == seen.binding
    assert seen.library.endswith("libhdf5.so.320" if not static else "program")


def test_every_reason_of_the_connector_has_a_remedy_or_needs_none():
    needs_none = {
        "a replica is predicted to be cheaper",
        "the transfer is collective",
        "nothing is selected",
    }
    reasons = set()
    for name in (
        "open_file.cpp",
        "reasons.cpp",
        "redirect.cpp",
        "replica.cpp",
        "table_entry.cpp",
        "replica_check.cpp",
        "replica_dataset.cpp",
    ):
        (source,) = (ROOT / "sds" / "redirect" / "vol").rglob(name)
        code = source.read_text()
        joined = re.sub(r'"\n\s+"', "", re.sub("//.*", "", code))
        texts = re.findall(r'"([A-Za-z][^"\n]* [^"\n]*)"', joined)
        assert texts, name
        reasons.update(texts)
    assert len(reasons) > 40
    assert {reason for reason in reasons if not remedy_for(reason)} == needs_none
    # Of tiles, contiguous replicas need the memory, and chunks none.
    (of_tables,) = (reason for reason in reasons if "tables of other files" in reason)
    assert "fewer tiles" in remedy_for(of_tables)


def test_what_the_engine_reads_of_originals_is_told():
    decisions = [
        Decision(event="no-table", file="/a.h5", dataset="", reason="there is none"),
        Decision(event="engine", file="/a.h5", dataset="/cube", reason="predicted to be cheaper"),
        Decision(event="served", file="/a.h5", dataset="/both", reason="/replica.h5"),
        Decision(event="engine", file="/a.h5", dataset="/both", reason="predicted to be cheaper"),
    ]
    found = {report.path: report for report in datasets_of_run(decisions)}
    told = {path: (report.served, report.by_engine) for path, report in found.items()}
    assert told == {
        "/a.h5": (False, False),
        "/a.h5:/cube": (False, True),
        "/a.h5:/both": (True, True),
    }
    assert found["/a.h5:/cube"].remedy == ""
