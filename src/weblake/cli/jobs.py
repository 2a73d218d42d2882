"""status, cancel, errors: one job."""

from __future__ import annotations

from typing import Annotated

import typer

from weblake import output
from weblake.cli.tree import BaseUrl, Insecure, Json, connect

Kind = Annotated[str, typer.Argument(metavar="batch|crawl")]
JobId = Annotated[str, typer.Argument(metavar="JOB_ID")]


def status(
    kind: Kind, job_id: JobId, as_json: Json = False, base_url: BaseUrl = None, insecure: Insecure = False
) -> None:
    """Says how far a job is, without reading its documents."""
    from weblake.jobs.polling import JobRef, get_status
    from weblake.loads.load_request import existing_job

    request = existing_job(kind, job_id)
    with connect(base_url, insecure) as client:
        head = client.run(get_status(JobRef(request.kind, str(request.job_id)), client.retry))
    if as_json:
        output.show_json({"id": request.job_id, "kind": request.kind} | head)
        return
    names = ("status", "total", "completed", "creditsUsed", "createdAt", "completedAt", "expiresAt", "error", "warning")
    output.show_table(
        f"{kind} {request.job_id}", ("", ""), [(name, head[name]) for name in names if head.get(name) is not None]
    )


def cancel(
    kind: Kind, job_id: JobId, as_json: Json = False, base_url: BaseUrl = None, insecure: Insecure = False
) -> None:
    """Cancels a job; what was scraped stays readable until it expires."""
    from weblake.api.job_kinds import JOB_KINDS
    from weblake.loads.load_request import existing_job

    request = existing_job(kind, job_id)
    with connect(base_url, insecure) as client:
        answer = client.call(JOB_KINDS[request.kind].cancel(str(request.job_id)))
    if as_json:
        output.show_json(answer.raw)
    else:
        output.out.print(output.harmless(f"{kind} {request.job_id} is {answer.status or 'cancelled'}"), markup=False)


def errors(
    kind: Kind, job_id: JobId, as_json: Json = False, base_url: BaseUrl = None, insecure: Insecure = False
) -> None:
    """Lists the pages of a job that failed or were blocked by robots.txt."""
    from weblake.api.job_kinds import JOB_KINDS
    from weblake.loads.load_request import existing_job

    request = existing_job(kind, job_id)
    with connect(base_url, insecure) as client:
        found = client.call(JOB_KINDS[request.kind].errors(str(request.job_id)))
    if as_json:
        output.show_json(found.raw)
        return
    rows = [("failed", e.url, e.code, e.error) for e in found.errors]
    rows += [("robots blocked", url, None, None) for url in found.robots_blocked]
    output.show_table(f"Errors of {kind} {request.job_id}", ("outcome", "url", "code", "error"), rows)


def register(app: typer.Typer) -> None:
    """Register the commands of this module."""
    for command in (status, cancel, errors):
        app.command()(command)
