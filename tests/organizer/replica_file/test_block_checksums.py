"""Checksums of files are right in whichever process and thread they are computed."""

import os

import numpy as np
import pytest

from sds import _native
from sds.errors import TruncatedFileError
from sds.organizer.replica_file.block_checksums import (
    block_checksums,
    file_checksums,
    range_checksum,
)

BLOCK = 1 << 20


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    content = np.random.default_rng(3).bytes(5 * BLOCK + 12345)
    path.write_bytes(content)
    descriptor = os.open(path, os.O_RDONLY)
    yield descriptor, content
    os.close(descriptor)


@pytest.mark.parametrize("offset", [0, 1, 4096, 70001])
@pytest.mark.parametrize("size", [1, 4096, 3 * BLOCK, 4 * BLOCK + 7])
def test_each_block_has_its_checksum_and_is_counted_once(file, offset, size):
    descriptor, content = file
    counted = []
    found = block_checksums(descriptor, offset, size, BLOCK, advance=counted.append)
    held = content[offset : offset + size]
    blocks = [held[at : at + BLOCK] for at in range(0, size, BLOCK)]
    assert found.tolist() == [_native.crc32c(block) for block in blocks]
    assert counted == [len(block) for block in blocks]


def test_a_hole_counts_as_zeros(file):
    descriptor, content = file
    first, end = BLOCK - 100, 2 * BLOCK + 100
    found = file_checksums(descriptor, BLOCK, hole=(first, end))
    zeroed = content[:first] + bytes(end - first) + content[end:]
    blocks = [zeroed[at : at + BLOCK] for at in range(0, len(zeroed), BLOCK)]
    assert found.tolist() == [_native.crc32c(block) for block in blocks]


def test_a_file_that_ends_before_its_blocks_is_refused(file):
    descriptor, content = file
    with pytest.raises(TruncatedFileError):
        block_checksums(descriptor, 0, len(content) + 1, BLOCK)


def test_children_of_fork_compute_their_own(tmp_path):
    """What the parent read into before the fork must not be theirs in common."""
    contents = [np.random.default_rng(seed).bytes(3 * BLOCK) for seed in range(3)]
    paths = [tmp_path / str(seed) for seed in range(3)]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    descriptors = [os.open(path, os.O_RDONLY) for path in paths]
    range_checksum(descriptors[0], 0, BLOCK)  # in this thread

    def all_right(descriptor, content):
        expected = _native.crc32c(content)
        return all(range_checksum(descriptor, 0, len(content)) == expected for _ in range(50))

    children = []
    for descriptor, content in zip(descriptors[1:], contents[1:], strict=True):
        child = os.fork()
        if child == 0:
            os._exit(0 if all_right(descriptor, content) else 1)
        children.append(child)
    here = all_right(descriptors[0], contents[0])
    ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    for descriptor in descriptors:
        os.close(descriptor)
    assert here
    assert ended == [0, 0]
