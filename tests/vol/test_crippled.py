"""The tests can see: a connector with one defect fails the test that is named beside it here."""

import os
import subprocess
import sys

import pytest

from tests.sizes import IS_ALL
from tests.under_connector import ROOT
from tests.vol.crippled_builds import ConnectorBuild, Defect, build_connector
from tests.waiting import PATIENCE_S

CLASS = ("vol_class.cpp", "fill_class", "sound_fill_class")
PASSING = "tests/vol/test_pass_through.py::"
REDIRECT = "tests/vol/test_redirect.py::"
FALLBACKS = "tests/robustness/test_fallbacks.py::"
IO_FAULTS = "tests/robustness/test_io_faults.py::"
DEFECTS = [
    Defect(
        file="terminal.cpp",
        takes_place_of=CLASS,
        caught_by=PASSING + "test_direct_chunk_access_and_references_need_the_terminal_class",
    ),
    Defect(
        file="forgets_errors.h",
        takes_place_of="ErrorStackKeeper",
        caught_by=PASSING + "test_errors_are_those_of_the_native_library",
    ),
    Defect(
        file="axes_in_wrong_order.cpp",
        takes_place_of=("transfer.cpp", "sds_copy_strided", "crippled_copy_strided"),
        caught_by=REDIRECT + "test_random_reads_are_equal[0]",
    ),
    Defect(
        file="never_stale.cpp",
        takes_place_of=("source_freshness.cpp", "is_fresh", "sound_is_fresh"),
        caught_by=REDIRECT + "test_a_source_rewritten_while_open",
    ),
    Defect(
        file="trusts_replicas.cpp",
        takes_place_of=("replica_check.cpp", "find_replica_problem", "sound_find_replica_problem"),
        caught_by=REDIRECT
        + "test_a_damaged_replica_serves_nothing_even_under_its_new_identity[header]",
    ),
    Defect(
        file="fails_with_replica.cpp",
        takes_place_of=("vol_dataset.cpp", "fill_dataset_class", "sound_fill_dataset_class"),
        caught_by=REDIRECT + "test_a_damaged_replica_serves_nothing[damage_missing]",
    ),
    Defect(
        file="speaks.cpp",
        takes_place_of=("decision_log.cpp", "log_decision", "sound_log_decision"),
        caught_by=FALLBACKS + "test_a_table_that_is_not_what_it_should_be[empty]",
    ),
    Defect(
        file="never_gives_up.cpp",
        takes_place_of=("replica.cpp", "count_failure", "sound_count_failure"),
        caught_by=IO_FAULTS + "test_a_replica_that_keeps_failing_is_left_alone[contiguous]",
    ),
    Defect(
        file="serves_the_dearer.cpp",
        takes_place_of=("layouts.cpp", "sds_choose", "crippled_choose"),
        caught_by=REDIRECT + "test_the_dearer_replica_is_not_used",
    ),
    Defect(
        file="opens_for_writing.cpp",
        takes_place_of=("vol_file.cpp", "file_open", "sound_file_open"),
        caught_by=REDIRECT + "test_reading_leaves_the_source_as_it_was",
    ),
]
# More defects of the kinds above.
MORE_DEFECTS = [
    Defect(
        file="no_capabilities.cpp",
        takes_place_of=CLASS,
        caught_by=PASSING + "test_capabilities_are_those_of_the_native_library",
    ),
    Defect(
        file="no_optional.cpp",
        takes_place_of=CLASS,
        caught_by=PASSING + "test_direct_chunk_access_and_references_need_the_terminal_class",
    ),
    Defect(
        file="optional_unsupported.cpp",
        takes_place_of=CLASS,
        caught_by=PASSING + "test_three_wheels_in_one_process",
    ),
    Defect(
        file="no_blob.cpp",
        takes_place_of=CLASS,
        caught_by=PASSING + "test_three_wheels_in_one_process",
    ),
    Defect(
        file="no_token.cpp",
        takes_place_of=CLASS,
        caught_by=PASSING + "test_tokens_are_those_of_the_native_library",
    ),
    Defect(
        file="memory_selection_ignored.cpp",
        takes_place_of=("memory_layout.cpp", "memory_layout_of", "sound_memory_layout_of"),
        caught_by=REDIRECT + "test_random_reads_are_equal[0]",
    ),
    Defect(
        file="keeps_table_at_write.cpp",
        takes_place_of=("open_file.cpp", "before_write", "sound_before_write"),
        caught_by=REDIRECT + "test_a_write_through_the_connector_drops_the_table",
    ),
]


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    return ConnectorBuild(build_connector(tmp_path_factory), tmp_path_factory.mktemp("connector"))


def run_tests(names, plugin_directory, directory):
    """Run own tests with another build of the connector; what pytest says."""
    directory.mkdir()
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
         f"--basetemp={directory / 'files'}", *names],
        cwd=ROOT, env=os.environ | {"SDS_TEST_PLUGIN_DIRECTORY": str(plugin_directory)},
        capture_output=True, text=True, check=False, timeout=(1 + len(names)) * PATIENCE_S,
    )  # fmt: skip


def test_the_sound_build_passes_what_catches_the_others(build, tmp_path):
    done = run_tests(
        dict.fromkeys(defect.caught_by for defect in DEFECTS + MORE_DEFECTS * IS_ALL),
        build.link("sound", {}),
        tmp_path / "run",
    )
    assert done.returncode == 0, done.stdout + done.stderr


def check_that_it_is_caught(defect, build, tmp_path):
    done = run_tests([defect.caught_by], build.cripple(defect), tmp_path / "run")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    assert "1 failed" in done.stdout


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.file)
def test_a_defect_is_caught(defect, build, tmp_path):
    check_that_it_is_caught(defect, build, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("defect", MORE_DEFECTS, ids=lambda defect: defect.file)
def test_more_defects_are_caught(defect, build, tmp_path):
    check_that_it_is_caught(defect, build, tmp_path)
