"""Long work: submitted, watched, cancelled."""

from http import HTTPStatus

from fastapi import APIRouter

from sds.catalog.records import Id, JobRecord, JobRequest, JobState
from sds.server.dependencies import BackgroundOf, ServiceOf, require_absolute
from sds.server.reports import Jobs

router = APIRouter(prefix="/jobs", tags=["jobs"])


@router.post("", status_code=HTTPStatus.ACCEPTED)
def submit(service: ServiceOf, background: BackgroundOf, request: JobRequest) -> JobRecord:
    """Put work into the queue; ask for the job to see how far it is."""
    require_absolute(request)
    job = service.submit(request)
    background.wake()
    return job


@router.get("")
def jobs(service: ServiceOf, state: JobState | None = None) -> Jobs:
    """Return jobs, newest first."""
    return Jobs(jobs=service.jobs(state))


@router.get("/{job_id}")
def job(service: ServiceOf, job_id: Id) -> JobRecord:
    """Return one job."""
    return service.job(job_id)


@router.post("/{job_id}/cancel")
def cancel(service: ServiceOf, job_id: Id) -> JobRecord:
    """Cancel a job: at once where it waits, at its next step where it runs."""
    return service.cancel(job_id)
