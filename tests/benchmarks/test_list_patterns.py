"""The request counts of Ching 2002, and the bytes, by every strategy."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

import sds
from benchmarks._list_patterns import (
    block_block,
    cyclic,
    decomposition,
    display_tile,
    flash_checkpoint,
)
from sds import _native

STRATEGIES = ("multiple", "sieve", "list", "pmd", "auto")
# The map file of an E3SM F case, which comes with E3SM-IO, where it is at hand.
REAL_MAP = Path(__file__).parents[3] / "shared" / "data" / "e3sm_map_f_case_16p.h5"


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """Return a file and its bytes, large enough for every pattern here."""
    path = tmp_path_factory.mktemp("patterns") / "file"
    values = np.random.default_rng(4).integers(0, 256, 32 << 20, np.uint8)
    values.tofile(path)
    return path, values


def reads(pattern, content):
    """Read by every strategy, compare the bytes, and return the reports."""
    path, values = content
    expected = pattern.expected(values)
    reports = {}
    for strategy in STRATEGIES:
        out = np.zeros(pattern.memory_bytes, np.uint8)
        reports[strategy] = sds.read_list(path, *pattern.lists, out, strategy)
        np.testing.assert_array_equal(out, expected, err_msg=f"{pattern.name} by {strategy}")
    return reports


def requests_of(reports):
    return tuple(reports[strategy].requests for strategy in ("multiple", "list", "sieve"))


@pytest.mark.parametrize(("n_processes", "process"), [(2, 1), (4, 0)])
def test_flash_checkpoint_takes_the_requests_of_the_paper(content, n_processes, process):
    pattern = flash_checkpoint(process, n_processes)
    reports = reads(pattern, content)
    assert requests_of(reports) == (983_040, 30, 1)
    assert {report.bytes_useful for report in reports.values()} == {7_864_320}


def test_flash_spans_more_than_one_sieve_buffer_from_five_processes_on():
    pattern = flash_checkpoint(0, 5)
    lists = (pattern.file_offsets, pattern.file_lengths, pattern.mem_offsets, pattern.mem_lengths)
    planned = {
        strategy: _native.plan_list(*lists, pattern.memory_bytes, strategy)["requests"]
        for strategy in STRATEGIES
    }
    assert (planned["multiple"], planned["list"], planned["sieve"]) == (983_040, 30, 2)


@pytest.mark.parametrize(("x", "y"), [(0, 0), (1, 0), (2, 1)])
def test_display_tiles_take_the_requests_of_the_paper(content, x, y):
    pattern = display_tile(x, y)
    assert pattern.file_bytes == 10_695_168
    reports = reads(pattern, content)
    assert requests_of(reports) == (768, 12, 1)


@pytest.mark.parametrize("made", [cyclic, block_block])
@pytest.mark.parametrize("n_clients", [4, 9, 16])
def test_sweeps_read_the_same_bytes_by_every_strategy(content, made, n_clients):
    for n_accesses in (64, 6400):
        reports = reads(made(32 << 20, n_clients, n_accesses), content)
        assert requests_of(reports) == (n_accesses, -(-n_accesses // 64), 1)
        assert reports["auto"].bytes_read <= reports["sieve"].bytes_read


def make_map(path):
    """Write a decomposition as E3SM-IO's: cells dealt out in stretches, on several levels."""
    rng = np.random.default_rng(11)
    owner = np.repeat(rng.integers(0, 16, 300), 3)[:866]
    with h5py.File(path, "w") as handle:
        for name, n_levels in (("D1", 1), ("D2", 5), ("D3", 72)):
            cells = [np.flatnonzero(owner == process) for process in range(16)]
            offsets = [(np.arange(n_levels)[:, None] * 866 + own).reshape(-1) for own in cells]
            handle[f"{name}.nreqs"] = np.array([len(each) for each in offsets], np.int32)
            handle[f"{name}.offsets"] = np.concatenate(offsets).astype(np.int32)
            handle[f"{name}.lengths"] = np.ones(sum(map(len, offsets)), np.int32)
    return path


def test_request_lists_of_a_climate_model(content, tmp_path):
    path = REAL_MAP if REAL_MAP.exists() else make_map(tmp_path / "map.h5")
    patterns = decomposition(path)
    assert {len(pattern.file_offsets) for pattern in patterns} >= {62_352}
    for pattern in patterns:
        reads(pattern, content)
        lists = pattern.file_offsets, pattern.file_lengths, None, 0
        assert _native.plan_list(*lists, pattern.memory_bytes)["bytes_useful"] == (
            pattern.memory_bytes
        )


def test_the_generated_lists_are_like_the_real_ones(content, tmp_path):
    patterns = decomposition(make_map(tmp_path / "map.h5"), n_variables=2)
    largest = max(patterns, key=lambda pattern: len(pattern.file_offsets))
    assert largest.memory_bytes == largest.file_bytes == 2 * 72 * 866 * 8
    reads(largest, content)
