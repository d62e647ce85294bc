"""The clock that dates files, which ticks every few milliseconds."""

import os
import tempfile

from tests.waiting import wait_until


def wait_for_tick(directory):
    """Wait until what is changed from now on is dated later than all that was changed before.

    directory
        Of the file system whose clock is meant. A file is made there for as long as that takes.
    """
    with tempfile.NamedTemporaryFile(dir=directory) as probe:

        def date():
            os.utime(probe.fileno())
            return os.fstat(probe.fileno()).st_ctime_ns

        before = date()
        wait_until(lambda: date() > before, "the clock of files has ticked", interval_s=0.001)
