"""The file of a calibration is removed, whatever ends the calibration."""

import os
import signal

import pytest

from sds.calibration.scratch_file import work_directory


class _EndedError(BaseException):
    pass


def _end(*_):
    raise _EndedError


@pytest.mark.parametrize("is_failed", [False, True])
def test_a_signal_while_the_directory_is_removed_leaves_nothing(tmp_path, monkeypatch, is_failed):
    """A server's death closes a calibration's pipe first, and only then sends SIGTERM."""
    unlink = os.unlink
    sent = []

    def unlink_and_be_ended(*args, **kwargs):
        if not sent:
            sent.append(signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
        unlink(*args, **kwargs)

    def calibrate():
        with work_directory(tmp_path, 1) as directory:
            (directory / "array.h5").write_bytes(b"1")
            monkeypatch.setattr(os, "unlink", unlink_and_be_ended)
            if is_failed:
                raise EOFError

    before = signal.signal(signal.SIGTERM, _end)
    try:
        with pytest.raises(_EndedError):
            calibrate()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert sent
    assert not list(tmp_path.iterdir())
