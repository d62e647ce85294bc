"""Accounts that a test may become."""

import os
from pathlib import Path

import pytest

NOBODY = 65534


def may_become(account):
    """Return whether this process may take on another account: root, where there is that account.

    In a user namespace root may be all there is.
    """
    if os.geteuid() != 0:
        return False
    ranges = [
        map(int, line.split()) for line in Path("/proc/self/uid_map").read_text().splitlines()
    ]
    return any(first <= account < first + n for first, _, n in ranges)


becomes_nobody = pytest.mark.skipif(
    not may_become(NOBODY), reason="only root becomes another account, where there is one"
)
