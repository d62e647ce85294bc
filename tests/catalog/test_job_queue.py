import pytest

from sds.catalog.job_queue import JobQueue
from sds.catalog.records import JobState
from sds.catalog.requests import CalibrateRequest, IngestRequest, ReorganizeRequest, VerifyRequest
from sds.errors import LayoutError, NotFoundError, SdsValueError
from sds.geometry import SegmentList


@pytest.fixture
def queue(store):
    return JobQueue(store)


@pytest.mark.parametrize(
    "request_",
    [
        IngestRequest(),
        VerifyRequest(replica_id=3),
        CalibrateRequest(path="/scratch"),
        ReorganizeRequest(file="/a.h5", dataset="/d", order=(2, 0, 1), output="/b.h5"),
        ReorganizeRequest(
            file="/a.h5",
            dataset="/d",
            order=(1, 0),
            segments=SegmentList(tile_shape=(8, 64), tiles=(7, 1, 99), lengths=(1, 2)),
        ),
    ],
    ids=lambda request: request.kind,
)
def test_a_request_comes_back_as_it_was(queue, request_):
    assert queue.job(queue.submit(request_).id).request == request_


def test_jobs_run_in_the_order_in_which_they_came(queue):
    submitted = [queue.submit(VerifyRequest(replica_id=i)).id for i in range(1, 4)]
    assert [queue.claim().id for _ in submitted] == submitted
    assert queue.claim() is None


def test_what_is_less_urgent_is_left_and_put_back_as_it_was(queue):
    later = queue.submit(VerifyRequest(), priority=1)
    assert queue.claim(most_priority=0) is None
    assert not queue.is_more_urgent_waiting(1)
    assert queue.claim().id == later.id
    short = queue.submit(IngestRequest())
    assert not queue.is_more_urgent_waiting(1), "what takes moments has a worker of its own"
    assert queue.claim(short=False) is None
    assert queue.claim(short=True).id == short.id
    urgent = queue.submit(VerifyRequest())
    assert queue.is_more_urgent_waiting(1)
    assert not queue.is_more_urgent_waiting(0)
    queue.put_back(later.id, "made way")
    waits = queue.job(later.id)
    assert (waits.state, waits.attempts, waits.error) == (JobState.QUEUED, 0, "made way")
    assert [queue.claim().id for _ in range(2)] == [urgent.id, later.id]


def test_a_job_goes_from_queued_over_running_to_done(queue):
    job = queue.submit(IngestRequest())
    assert (job.state, job.attempts, job.progress) == (JobState.QUEUED, 0, 0.0)
    running = queue.claim()
    assert (running.state, running.attempts) == (JobState.RUNNING, 1)
    assert queue.report(job.id, 0.5)
    assert queue.job(job.id).progress == 0.5
    queue.finish(job.id, {"reads": 7})
    done = queue.job(job.id)
    assert (done.state, done.progress, done.result) == (JobState.DONE, 1.0, {"reads": 7})
    assert done.finished_ns >= done.started_ns >= done.created_ns


def test_a_failed_job_says_why(queue):
    job = queue.submit(IngestRequest())
    queue.claim()
    queue.fail(job.id, "NotHdf5Error: /a.h5 is no HDF5 file")
    failed = queue.job(job.id)
    assert failed.state is JobState.FAILED
    assert "NotHdf5Error" in failed.error


def test_a_waiting_job_is_cancelled_at_once_and_a_running_one_at_its_next_step(queue):
    waiting, running = queue.submit(IngestRequest()), queue.submit(IngestRequest())
    assert queue.cancel(waiting.id).state is JobState.CANCELLED
    assert queue.claim().id == running.id
    assert queue.cancel(running.id).state is JobState.RUNNING
    assert queue.report(running.id, 0.1) is False
    queue.stop(running.id)
    assert queue.job(running.id).state is JobState.CANCELLED


def test_cancelling_what_is_done_changes_nothing(queue):
    job = queue.submit(IngestRequest())
    queue.claim()
    queue.finish(job.id, {})
    assert queue.cancel(job.id).state is JobState.DONE


def test_interrupted_jobs_run_again_until_they_have_had_their_attempts(queue):
    job = queue.submit(IngestRequest())
    for attempt in (1, 2):
        assert queue.claim().attempts == attempt
        (requeued,) = queue.requeue_interrupted(3)
        assert requeued.state is JobState.QUEUED
        assert "runs again" in requeued.error
    queue.claim()
    (failed,) = queue.requeue_interrupted(3)
    assert failed.state is JobState.FAILED
    assert "3 times" in failed.error
    assert queue.requeue_interrupted(3) == ()
    assert queue.job(job.id).state is JobState.FAILED


def test_an_interrupted_job_that_was_to_be_cancelled_is(queue):
    job = queue.submit(IngestRequest())
    queue.claim()
    queue.cancel(job.id)
    (cancelled,) = queue.requeue_interrupted(3)
    assert cancelled.state is JobState.CANCELLED


def test_counts_name_every_state(queue):
    queue.submit(IngestRequest())
    assert queue.counts() == {"queued": 1, "running": 0, "done": 0, "failed": 0, "cancelled": 0}


def test_an_unknown_job_is_named(queue):
    with pytest.raises(NotFoundError, match="no job 99"):
        queue.job(99)


@pytest.mark.parametrize("order", [(), (0, 0), (1, 2), (-1, 0)])
def test_an_order_that_is_no_permutation_is_refused(order):
    with pytest.raises(LayoutError, match="no permutation"):
        ReorganizeRequest(file="/a", dataset="/d", order=order)


def test_too_little_memory_is_refused():
    with pytest.raises(SdsValueError, match="at least 1M"):
        ReorganizeRequest(file="/a", dataset="/d", order=(1, 0), memory_bytes=10)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"order": (2, 0, 1)}, "tiles of 2 axes and an order of 3"),
        ({"chunks": "auto"}, "^chunks and segments exclude each other"),
        ({"chunks": (4, 4), "compress": "gzip:4"}, "^chunks, compress and segments"),
        ({"compress": "source"}, "^compress and segments"),
        ({"region": "[0:3, :]"}, "^region and segments"),
    ],
)
def test_segments_go_with_no_other_choice_of_layout(other, said):
    segments = SegmentList(tile_shape=(8, 64), tiles=(3,), lengths=(1,))
    asked = {"file": "/a", "dataset": "/d", "order": (1, 0), "segments": segments}
    ReorganizeRequest(**asked, chunks="contiguous", compress="none")
    with pytest.raises(LayoutError, match=said):
        ReorganizeRequest(**asked | other)
