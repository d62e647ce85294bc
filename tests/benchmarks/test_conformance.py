"""The comparison of suites sees what the connector breaks."""

import dataclasses

import pytest

from benchmarks.conformance import report
from benchmarks.conformance.hdf5_suites import CtestSuite, netcdf_suites
from benchmarks.conformance.outcomes import (
    Outcome,
    SuiteRun,
    api_test_outcomes,
    compare,
    junit_outcomes,
)
from benchmarks.conformance.running import SuiteResult, native_environment

NATIVE = SuiteRun(
    outcomes={
        "passes": Outcome.PASSED,
        "fails": Outcome.FAILED,
        "skips": Outcome.SKIPPED,
    },
    exit_status=1,
    wall_s=2.0,
    cpu_s=1.0,
    outputs={"prints": "a"},
)


def changed(**outcomes):
    return dataclasses.replace(
        NATIVE, outcomes={**NATIVE.outcomes, **outcomes}, wall_s=3.0, cpu_s=1.1
    )


def test_equal_runs_have_no_new_failure():
    seen = compare([NATIVE], [changed()])
    assert (seen.new_failures, seen.differences) == ([], [])
    assert seen.native_failures == ["fails"]
    assert (seen.wall_ratio, seen.cpu_ratio) == (1.5, pytest.approx(1.1))


@pytest.mark.parametrize(
    ("connector", "failure"),
    [
        (changed(passes=Outcome.FAILED), "passes"),
        (changed(skips=Outcome.FAILED), "skips"),
        # Equal counts: one test fails, another no longer does.
        (changed(passes=Outcome.FAILED, fails=Outcome.PASSED), "passes"),
        (changed(another=Outcome.FAILED), "another"),
        (dataclasses.replace(NATIVE, outcomes={"fails": Outcome.FAILED}), "passes"),
        (dataclasses.replace(NATIVE, exit_status=-11), "exit status -11, natively [1]"),
        (dataclasses.replace(NATIVE, outputs={"prints": "b"}), "prints: another output"),
        (dataclasses.replace(NATIVE, outputs={}), "prints: another output"),
    ],
)
def test_a_new_failure_is_named(connector, failure):
    assert failure in compare([NATIVE], [changed(), connector]).new_failures


def test_a_test_that_fails_in_one_native_run_is_no_new_failure():
    flaky = changed(passes=Outcome.FAILED)
    assert compare([NATIVE, flaky], [flaky]).new_failures == []


def test_what_the_native_connector_alone_can_do_is_told_apart():
    broken = dataclasses.replace(changed(passes=Outcome.FAILED), exit_status=8)
    seen = compare([NATIVE], [broken], native_only=frozenset({"passes", "skips"}))
    assert (seen.new_failures, seen.native_only) == ([], ["passes"])
    crashed = dataclasses.replace(broken, exit_status=-11)
    assert compare([NATIVE], [crashed], native_only=frozenset({"passes"})).new_failures
    worse = dataclasses.replace(broken, outcomes={**broken.outcomes, "skips": Outcome.FAILED})
    assert compare([NATIVE], [worse], native_only=frozenset({"passes"})).new_failures == ["skips"]


def test_tests_that_are_left_out_are_told_apart():
    seen = compare([NATIVE], [changed(passes=Outcome.SKIPPED)])
    assert seen.new_failures == []
    assert seen.differences == ["passes: passed -> skipped"]


def test_api_tests_are_read_with_their_groups():
    printed = """
**********************
*   API File Tests   *
**********************

Testing H5Fcreate                                                      PASSED
Testing file permissions (invalid creation of objects in read-only file)
  Testing test setup                                                   PASSED
  Testing invalid creation of group in read-only file                  *FAILED*
   at H5_api_file_test.c:209 in test_file_permission()...
Testing H5Gcreate many groups
 1/2 2/2 PASSED
Testing H5Gget_info_by_idx by alphabetical order in decreasing order on all PASSED
Testing file flushing                                                  -SKIP-
"""
    group = "file permissions (invalid creation of objects in read-only file)"
    assert api_test_outcomes(printed) == {
        "H5Fcreate": Outcome.PASSED,
        f"{group} / test setup": Outcome.PASSED,
        f"{group} / invalid creation of group in read-only file": Outcome.FAILED,
        "H5Gcreate many groups": Outcome.PASSED,
        "H5Gget_info_by_idx by alphabetical order in decreasing order on all": Outcome.PASSED,
        "file flushing": Outcome.SKIPPED,
    }


def test_junit_reports_are_read(tmp_path):
    path = tmp_path / "junit.xml"
    assert junit_outcomes(path) == {}
    path.write_text("""<testsuites><testsuite>
        <testcase classname="m" name="good"/>
        <testcase classname="m" name="bad"><failure message="no"/></testcase>
        <testcase classname="m" name="broken"><error message="no"/></testcase>
        <testcase classname="m" name="left"><skipped/></testcase>
        <testcase name="off" status="disabled"/>
        <testcase classname="m" name="good"/>
    </testsuite></testsuites>""")
    assert junit_outcomes(path) == {
        "m::good": Outcome.PASSED,
        "m::bad": Outcome.FAILED,
        "m::broken": Outcome.FAILED,
        "m::left": Outcome.SKIPPED,
        "off": Outcome.SKIPPED,
        "m::good #2": Outcome.PASSED,
    }


def test_tests_of_a_source_tree_are_built_and_run(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(p LANGUAGES NONE)\nenable_testing()\n"
        "add_test(NAME good COMMAND ${CMAKE_COMMAND} -E true)\n"
        "add_test(NAME good_too COMMAND ${CMAKE_COMMAND} -E touch made)\n"
        "add_test(NAME bad COMMAND ${CMAKE_COMMAND} -E false)\n"
    )
    suite = CtestSuite(
        name="p", title="p", versions="p 1", source=source, build=tmp_path / "build",
        configuration=(), chosen="^good|bad",
    )  # fmt: skip
    assert suite.prepare() == "p 1"
    run = suite.run(tmp_path, native_environment())
    assert run.outcomes == {
        "good": Outcome.PASSED,
        "good_too": Outcome.PASSED,
        "bad": Outcome.FAILED,
    }
    assert run.exit_status != 0


def test_what_is_no_source_tree_of_netcdf_is_refused(tmp_path):
    (tmp_path / "CMakeLists.txt").write_text("project(other VERSION 1.0)\n")
    with pytest.raises(ValueError, match=str(tmp_path)):
        netcdf_suites(tmp_path, tmp_path)
    (tmp_path / "CMakeLists.txt").write_text("project(netCDF\n  LANGUAGES C\n  VERSION 4.10.1\n)\n")
    assert {suite.versions for suite in netcdf_suites(tmp_path, tmp_path)} == {
        "netCDF-C 4.10.1, HDF5 1.14.6",
        "netCDF-C 4.10.1, HDF5 2.2.0",
    }


@pytest.mark.parametrize("is_new", [False, True])
def test_results_are_kept_and_written_as_a_table(tmp_path, is_new):
    result = SuiteResult(
        suite="h5py",
        title="h5py: its tests",
        versions="h5py 3",
        rounds=1,
        comparison=compare([NATIVE], [changed(passes=Outcome.FAILED)]),
        reads_traced=5,
        reads_served=0,
    )
    report.save_result(result, tmp_path)
    assert report.load_results(tmp_path) == [result]
    assert "passes" in report.summary(result)
    document = tmp_path / "document.md"
    kept = "| h5py: its tests | h5py 2 | 1 passed | 1 passed | 0 | 1.00 (1.00) |"
    stale = "| h5py: its tests | h5py 3 | old | old | 0 | 1.00 (1.00) |"
    last = "| another suite | h5py 3 | 1 passed | 1 passed | 0 | 1.00 (1.00) |"
    rows = f"{kept}\n{last}\n" if is_new else f"{kept}\n{stale}\n{last}\n"
    document.write_text(f"before\n{report.BEGIN}\n{rows}{report.END}\nafter\n")
    for _ in range(2):
        report.update_document(document, report.load_results(tmp_path))
        text = document.read_text()
        assert "old" not in text
        assert text.startswith("before\n")
        assert text.endswith("after\n")
        assert text.count("| h5py: its tests | h5py 3 |") == 1
        # Beside the row of another version, which stays, and before another suite's.
        assert text.index(kept) < text.index("| h5py: its tests | h5py 3 |") < text.index(last)
    document.write_text("nothing")
    with pytest.raises(ValueError, match="lacks"):
        report.update_document(document, [result])
