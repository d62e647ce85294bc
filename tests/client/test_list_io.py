from __future__ import annotations

import enum
import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sds
from sds.errors import (
    FileMissingError,
    LayoutError,
    PermissionDeniedError,
    SdsValueError,
    TruncatedFileError,
)
from tests.sizes import repeated

FILE_BYTES = 600
MEMORY_BYTES = 900


@st.composite
def regions(draw, total, within):
    """Cut so many bytes into regions of any order, some of no length, some one on the other."""
    n_cuts = draw(st.integers(0, 12))
    cuts = sorted(draw(st.lists(st.integers(0, total), min_size=n_cuts, max_size=n_cuts)))
    lengths = np.diff([0, *cuts, total])
    offsets = [draw(st.integers(0, within - int(length))) for length in lengths]
    return np.array(offsets, np.int64), lengths.astype(np.int64)


@st.composite
def lists(draw):
    total = draw(st.integers(0, 400))
    in_file = draw(regions(total, FILE_BYTES))
    in_memory = draw(st.none() | regions(total, MEMORY_BYTES))
    return in_file, in_memory or (None, None)


def places(offsets, lengths):
    return np.concatenate(
        [np.arange(o, o + n) for o, n in zip(offsets, lengths, strict=True)] or [[]]
    ).astype(int)


def places_of(in_file, in_memory):
    of_file = places(*in_file)
    return of_file, np.arange(len(of_file)) if in_memory[0] is None else places(*in_memory)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("lists") / "scratch"


@settings(max_examples=repeated(40, 300))
@given(lists(), st.randoms(use_true_random=False))
def test_writing_equals_byte_by_byte(scratch, both, random):
    in_file, in_memory = both
    before = np.frombuffer(random.randbytes(FILE_BYTES), np.uint8)
    data = np.frombuffer(random.randbytes(MEMORY_BYTES), np.uint8)
    scratch.write_bytes(before.tobytes())
    expected = before.copy()
    for to, of in zip(*places_of(in_file, in_memory), strict=True):
        expected[to] = data[of]
    report = sds.write_list(scratch, *in_file, *in_memory, data)
    assert scratch.read_bytes() == expected.tobytes()
    assert report.bytes_written == len(set(places(*in_file)))
    assert report.requests <= report.pieces


STRATEGIES = ["auto", "multiple", "sieve", "list", "pmd"]


@settings(max_examples=repeated(40, 300))
@given(lists(), st.sampled_from(STRATEGIES), st.integers(1, 9), st.sampled_from([1, 50, 1 << 20]))
def test_reading_equals_byte_by_byte(scratch, both, strategy, regions_per_request, buffer_bytes):
    in_file, in_memory = both
    content = np.random.default_rng(3).integers(0, 256, FILE_BYTES, np.uint8)
    if not scratch.exists() or scratch.read_bytes() != content.tobytes():
        scratch.write_bytes(content.tobytes())
    expected = np.full(MEMORY_BYTES, 7, np.uint8)
    for of, to in zip(*places_of(in_file, in_memory), strict=True):
        expected[to] = content[of]
    out = np.full(MEMORY_BYTES, 7, np.uint8)
    report = sds.read_list(
        scratch,
        *in_file,
        *in_memory,
        out,
        strategy,
        regions_per_request=regions_per_request,
        sieve_buffer_bytes=buffer_bytes,
    )
    np.testing.assert_array_equal(out, expected)
    assert report.strategy == strategy
    n_useful = len(in_file[0]) and len(set(places_of(in_file, in_memory)[1]))
    assert report.bytes_useful == n_useful


def test_reading_past_four_tebibytes(scratch):
    far = 1 << 42
    with scratch.open("wb") as stream:
        os.pwrite(stream.fileno(), b"near", 5)
        os.pwrite(stream.fileno(), b"far", far)
    for strategy in ("auto", "multiple", "list", "pmd"):
        out = bytearray(b"........")
        sds.read_list(scratch, [far, 5], [3, 4], [5, 0], [3, 4], out, strategy)
        assert out == b"near.far"


def test_a_descriptor_may_be_any_integer(scratch):
    with scratch.open("w+b") as stream:
        os.pwrite(stream.fileno(), b"bytes", 0)
        out = bytearray(5)
        sds.read_list(
            enum.IntEnum("Files", {"READ": stream.fileno()}).READ, [0], 5, None, None, out
        )
    assert out == b"bytes"


def test_a_region_outside_of_the_file_is_refused_before_anything_is_read(scratch):
    scratch.write_bytes(bytes(10))
    out = bytearray(b"as it was")
    with pytest.raises(
        TruncatedFileError, match=r"file region 2 .offset 8, length 3. .* which has 10 bytes"
    ):
        sds.read_list(scratch, [0, 99, 8], [2, 0, 3], None, None, out)
    # Also where another region is read over it.
    with pytest.raises(TruncatedFileError, match="file region 0"):
        sds.read_list(scratch, [9, 0], [2, 2], [0, 0], [2, 2], out)
    assert out == b"as it was"


FAR_BYTES = 3 << 20


@pytest.fixture(scope="module")
def far(tmp_path_factory):
    """A file in which short lists lie close together and far apart."""
    path = tmp_path_factory.mktemp("far") / "far"
    path.write_bytes(np.random.default_rng(4).bytes(FAR_BYTES))
    return path


@settings(max_examples=repeated(40, 300), deadline=None)
@given(
    st.integers(0, FAR_BYTES),
    st.lists(st.tuples(st.integers(0, FAR_BYTES), st.integers(0, 200)), max_size=70),
    st.sampled_from([100, 4000, 20_000, FAR_BYTES]),
    st.booleans(),
)
def test_a_packed_list_equals_bytes_one_after_the_other(far, first, regions, spread, by_descriptor):
    """Close regions are read with their holes, far ones one by one; past the end, nothing is."""
    content = np.memmap(far, np.uint8, "r")
    offsets = np.array([first + place % spread for place, _ in regions], np.int64)
    lengths = np.array([length for _, length in regions], np.int64)
    out = np.full(int(lengths.sum()) + 3, 7, np.uint8)
    expected = out.copy()
    is_inside = all(o + n <= FAR_BYTES for o, n in zip(offsets, lengths, strict=True) if n)
    if is_inside:
        expected[: len(out) - 3] = content[places(offsets, lengths)]
    with far.open("rb") as stream:
        file = stream.fileno() if by_descriptor else far
        if is_inside:
            report = sds.read_list(file, offsets, lengths, None, None, out)
            assert report.bytes_useful == len(out) - 3
            assert report.requests <= len(regions)
        else:
            with pytest.raises(TruncatedFileError):
                sds.read_list(file, offsets, lengths, None, None, out)
    np.testing.assert_array_equal(out, expected)


def test_threads_read_lists_of_one_file(scratch):
    content = np.random.default_rng(5).integers(0, 256, 1 << 20, np.uint8)
    scratch.write_bytes(content.tobytes())
    offsets = np.random.default_rng(6).permutation(len(content) // 64)[:4000] * 64
    expected = content.reshape(-1, 64)[offsets // 64].reshape(-1)

    def work(strategy):
        out = np.zeros(len(expected), np.uint8)
        sds.read_list(scratch, offsets, 64, None, None, out, strategy)
        return out

    with ThreadPoolExecutor(6) as pool:
        for out in pool.map(work, STRATEGIES * 8):
            np.testing.assert_array_equal(out, expected)


def test_reads_that_cannot_be_right_are_refused(scratch):
    scratch.write_bytes(bytes(10))
    for wrong, message in (
        ({"strategy": "fast"}, "fast.; there are auto, multiple, sieve, list, pmd"),
        ({"regions_per_request": 0}, "regions_per_request is 0"),
        ({"sieve_buffer_bytes": -1}, "sieve_buffer_bytes is -1"),
    ):
        with pytest.raises(SdsValueError, match=message):
            sds.read_list(scratch, [0], [1], None, None, bytearray(1), **wrong)
    with pytest.raises(BufferError, match="not writable"):
        sds.read_list(scratch, [0], [1], None, None, b"x")
    with pytest.raises(FileMissingError):
        sds.read_list(scratch.with_name("none"), [0], [1], None, None, bytearray(1))
    with scratch.open("rb") as stream:
        out = bytearray(2)
        sds.read_list(stream.fileno(), [3], [2], [0], [2], out)
        with pytest.raises(SdsValueError, match="as many of both"):
            sds.read_list(stream.fileno(), [3], [2, 2], [0], [2], out)


def test_writing_past_four_tebibytes_leaves_holes(scratch):
    scratch.write_bytes(b"")
    far = 1 << 42
    report = sds.write_list(scratch, [far + 10, 5], [2, 3], None, None, b"abcde")
    assert report.pieces == report.requests == 2
    assert scratch.stat().st_size == far + 12
    with scratch.open("rb") as stream:
        assert os.pread(stream.fileno(), 2, far + 10) == b"ab"
        assert os.pread(stream.fileno(), 9, 0) == b"\0\0\0\0\0cde\0"
    assert scratch.stat().st_blocks < 100


def test_lists_are_taken_in_every_common_form(scratch):
    scratch.write_bytes(bytes(16))
    with scratch.open("r+b") as stream:
        sds.write_list(stream.fileno(), (0, 8), 2, None, None, bytearray(b"abcd"))
    sds.write_list(
        scratch, np.array([2], np.uint16), [2], [2], np.int32(2), np.array([[1, 2]], "u2")
    )
    sds.write_list(str(scratch), [], [], [], [], b"")
    sds.write_list(scratch, np.arange(10, 16)[::2], np.int64(1), None, None, memoryview(b"xyz"))
    assert scratch.read_bytes() == b"ab\2\0\0\0\0\0cdx\0y\0z\0"


REFUSED = [
    ([-1], [1], None, None, "file region 0 .offset -1, length 1.: .* none that is negative"),
    ([0, 4], [1, -2], None, None, "file region 1 .offset 4, length -2."),
    ([0], [4], [0, 9], [2, 2], "memory region 1 .offset 9, length 2. reaches outside of the 10 b"),
    ([0], [11], None, None, "outside of the 10 bytes of memory; pass a larger buffer"),
    ([0], [4], [0], [5], "4 bytes in the file and 5 in memory; pass lengths of the same sum"),
    ([0, 1], [4], None, None, "2 offsets and 1 lengths of regions in the file: pass as many"),
    ([0], [4], [0, 1], [4], "2 offsets and 1 lengths of regions in memory"),
    ([0.5], [4], None, None, r"file_offsets are of type float64 and shape \(1,\)"),
    ([0], [[4]], None, None, r"file_lengths are of type int64 and shape \(1, 1\)"),
    ([2**63], [4], None, None, "file_offsets has 9223372036854775808, beyond"),
    ([0], [4], [0], None, "pass both mem_offsets and mem_lengths"),
]


@pytest.mark.parametrize(("lists", "message"), [(case[:-1], case[-1]) for case in REFUSED])
def test_lists_that_cannot_be_right_are_refused(scratch, lists, message):
    scratch.write_bytes(b"as it was")
    with pytest.raises(SdsValueError, match=message):
        sds.write_list(scratch, *lists, bytes(10))
    assert scratch.read_bytes() == b"as it was"


def test_regions_beyond_what_a_file_can_hold_are_refused(scratch):
    scratch.write_bytes(b"")
    with pytest.raises(LayoutError, match=r"file region 0 .*below 2\*\*63 bytes"):
        sds.write_list(scratch, [2**63 - 2], [4], None, None, bytes(4))


def test_memory_that_cannot_be_right_is_refused(scratch):
    scratch.write_bytes(b"")
    for memory, message in (
        (np.zeros((4, 4))[:, 1], "data is not C-contiguous; pass np.ascontiguousarray"),
        (np.array([{}]), "data is of type object: its bytes are addresses"),
        (memoryview(bytes(8))[::2], "data is no contiguous buffer"),
        ("text", "data is no contiguous buffer"),
    ):
        with pytest.raises(SdsValueError, match=message):
            sds.write_list(scratch, [0], [4], None, None, memory)
    assert scratch.read_bytes() == b""


def test_files_that_cannot_be_written_are_named(scratch, tmp_path):
    with pytest.raises(FileMissingError, match=r"no such file: .*none; create it"):
        sds.write_list(tmp_path / "none", [0], [1], None, None, b"x")
    assert not (tmp_path / "none").exists()
    if os.geteuid() != 0:
        scratch.write_bytes(b"")
        scratch.chmod(0o400)
        with pytest.raises(PermissionDeniedError, match="may not write"):
            sds.write_list(scratch, [0], [1], None, None, b"x")
        scratch.chmod(0o600)
    with Path("/dev/full").open("wb", buffering=0) as full:
        with pytest.raises(OSError, match="0 bytes written: No space left") as caught:
            sds.write_list(full.fileno(), [0], [1], None, None, b"x")
        assert caught.value.errno == errno.ENOSPC
    with scratch.open("ab") as stream, pytest.raises(SdsValueError, match="without O_APPEND"):
        sds.write_list(stream.fileno(), [0], [1], None, None, b"x")
