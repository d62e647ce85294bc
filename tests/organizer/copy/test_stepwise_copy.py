"""Steps are copied in several threads, and noted when all before them are done."""

import threading
from contextlib import contextmanager

import numpy as np
import pytest

from sds.organizer.copy import stepwise_copy
from sds.organizer.copy.stepwise_copy import copy_in_steps
from tests.waiting import PATIENCE_S

N_STEPS = 40


class Numbers:
    """Steps that copy the numbers 0 to N_STEPS - 1, a byte each; they count who works at once."""

    total_bytes = N_STEPS
    n_steps = N_STEPS
    buffer_bytes = 1

    def __init__(self, n_buffers, *, fail_at=None, n_together=1):
        self.n_buffers = n_buffers
        self.fail_at = fail_at
        self.written = []
        self.most = {"read": 0, "write": 0}
        self._now = {"read": 0, "write": 0}
        self._lock = threading.Lock()
        # The first steps wait for each other.
        self._together = threading.Barrier(n_together)

    def step_bytes(self, index):
        assert 0 <= index < N_STEPS
        return 1

    @contextmanager
    def _at(self, work):
        with self._lock:
            self._now[work] += 1
            self.most[work] = max(self.most[work], self._now[work])
        yield
        with self._lock:
            self._now[work] -= 1

    def read(self, index, out):
        with self._at("read"):
            if index < self._together.parties:
                self._together.wait(PATIENCE_S)
            out[0] = index
        if index == self.fail_at:
            message = "the disk"
            raise OSError(message)

    def arrange(self, index, elements, out):
        assert elements[0] == index
        out[0] = elements[0]

        def write():
            with self._at("write"):
                self.written.append(int(out[0]))

        return write


class Noted:
    """A target and a checkpoint: what was written when steps were noted."""

    def __init__(self, steps, steps_done=0):
        self.steps = steps
        self.steps_done = steps_done
        self.notes = []

    def note(self, checkpoint, steps_done, *, share_done):
        assert checkpoint is self
        assert share_done == steps_done / N_STEPS
        self.notes.append((steps_done, sorted(self.steps.written)))


@pytest.mark.parametrize("n_buffers", [1, 2])
def test_every_step_is_copied_once_and_as_many_at_once_as_there_are_buffers(n_buffers):
    steps = Numbers(n_buffers, n_together=n_buffers)
    told = []
    copy_in_steps(steps, Noted(steps), Noted(steps), lambda *progress: told.append(progress))
    assert sorted(steps.written) == list(range(N_STEPS))
    assert steps.most["read"] == n_buffers
    assert steps.most["write"] <= n_buffers
    assert [done for _, done, _ in told] == list(range(N_STEPS + 1))
    if n_buffers == 1:
        assert steps.written == sorted(steps.written)


def test_a_copy_goes_on_from_what_is_on_disk():
    steps = Numbers(1)
    copy_in_steps(steps, Noted(steps), Noted(steps, steps_done=30), None)
    assert steps.written == list(range(30, N_STEPS))


@pytest.mark.parametrize("n_buffers", [1, 2])
def test_steps_are_noted_when_all_before_them_are_written(n_buffers, monkeypatch):
    monkeypatch.setattr(stepwise_copy, "CHECKPOINT_S", 0.0)
    monkeypatch.setattr(stepwise_copy, "_NOTES_SHARE", 0)
    steps = Numbers(n_buffers)
    noted = Noted(steps)
    copy_in_steps(steps, noted, noted, None)
    assert len(noted.notes) > 1
    assert all(written == list(range(done)) for done, written in noted.notes)


@pytest.mark.parametrize("n_buffers", [1, 2])
def test_a_step_that_fails_ends_the_copy(n_buffers):
    steps = Numbers(n_buffers, fail_at=10)
    with pytest.raises(OSError, match="the disk"):
        copy_in_steps(steps, Noted(steps), Noted(steps), None)
    assert 10 not in steps.written
    assert max(steps.written) <= 10 + 2 * n_buffers


def test_a_copy_that_is_cut_off_leaves_no_thread_at_work():
    steps = Numbers(1)

    def cut_off(_, done, __):
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy_in_steps(steps, Noted(steps), Noted(steps), cut_off)
    assert not [one for one in threading.enumerate() if one.name.startswith("sds-copy")]
    np.testing.assert_array_equal(steps.written, range(len(steps.written)))


def test_a_second_interrupt_ends_nothing_before_all_threads_are_done(monkeypatch):
    """What they read and write is closed next."""
    steps = Numbers(2)
    interrupts = []
    real_wait = stepwise_copy.wait

    def interrupted(futures):
        if len(interrupts) < 3:
            interrupts.append(1)
            raise KeyboardInterrupt
        return real_wait(futures)

    monkeypatch.setattr(stepwise_copy, "wait", interrupted)
    writing = threading.Event()
    arrange = steps.arrange

    def slow(index, elements, out):
        writing.wait(0.2)
        return arrange(index, elements, out)

    steps.arrange = slow

    def cut_off(_, done, __):
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy_in_steps(steps, Noted(steps), Noted(steps), cut_off)
    assert len(interrupts) == 3
    assert not any(one.name.startswith("sds-copy") for one in threading.enumerate())
