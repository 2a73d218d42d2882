"""The commands status, cancel and errors, which concern one job."""

from __future__ import annotations

from weblake import output
from weblake.cli.app import JobId, Json, Kind, ServiceOptions
from weblake.orchestration import JOB_KINDS, JobRef, existing_job_request, get_status


def status(kind: Kind, job_id: JobId, service: ServiceOptions, as_json: Json = False) -> None:
    """Shows the status and progress of a job, without reading its documents."""
    request = existing_job_request(kind, job_id)
    with service.connect() as client:
        head = client.run(get_status(JobRef(request.kind, str(request.job_id)), client.retry))
    if as_json:
        output.show_json({"id": request.job_id, "kind": request.kind} | head)
        return
    names = ("status", "total", "completed", "creditsUsed", "createdAt", "completedAt", "expiresAt", "error", "warning")
    output.show_table(
        f"{kind} {request.job_id}", ("", ""), [(name, head[name]) for name in names if head.get(name) is not None]
    )


def cancel(kind: Kind, job_id: JobId, service: ServiceOptions, as_json: Json = False) -> None:
    """Cancels a job. Its scraped pages can be read until they expire."""
    request = existing_job_request(kind, job_id)
    with service.connect() as client:
        cancelled = client.call(JOB_KINDS[request.kind].cancel(str(request.job_id)))
    if as_json:
        output.show_json(cancelled.raw)
    else:
        output.show_text(f"{kind} {request.job_id} is {cancelled.status or 'cancelled'}")


def errors(kind: Kind, job_id: JobId, service: ServiceOptions, as_json: Json = False) -> None:
    """Lists the pages of a job that failed or were blocked by robots.txt."""
    request = existing_job_request(kind, job_id)
    with service.connect() as client:
        found = client.call(JOB_KINDS[request.kind].errors(str(request.job_id)))
    if as_json:
        output.show_json(found.raw)
        return
    rows = [("failed", e.url, e.code, e.error) for e in found.errors]
    rows += [("robots blocked", url, None, None) for url in found.robots_blocked]
    output.show_table(f"Errors of {kind} {request.job_id}", ("outcome", "url", "code", "error"), rows)
