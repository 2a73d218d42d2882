"""Web addresses of jobs, for the links that integrations show."""

from __future__ import annotations

from urllib.parse import quote

from weblake.api.job_kinds import JOB_KINDS, job_kind
from weblake.errors import InvalidOption

#: Path of the status of each kind of job or page. A parse has none.
STATUS_PATHS = {name: kind.path for name, kind in JOB_KINDS.items()} | {"scrape": "/v2/scrape"}


def job_page(base_url: str, kind: str, job_id: str, *, template: str = "", has_console: bool = False) -> str:
    """Return the address of a job's page; empty for a kind that has none, such as `parse`.

    Args:
        base_url: The service.
        kind: `batch_scrape` (or `batch`), `crawl`, `scrape` or `parse`.
        job_id: The job's id.
        template: The address of the service's own pages, with `{kind}` and `{job_id}`; it takes precedence.
        has_console: Whether the service is the embedded one, whose console has a page for each job. Otherwise the
            result is the job's status address, which needs the API key.

    Raises:
        InvalidOption: The job id is empty, or the template is not an http address.
    """
    if not job_id:
        raise InvalidOption("There is no job id to make a link from.", hint="Start the job first.")
    kind, quoted = job_kind(kind).name if kind == "batch" else kind, quote(job_id, safe="")
    if template:
        check_template(template)
        # Not str.format: a template could read attributes of the arguments.
        return template.replace("{kind}", quote(kind, safe="")).replace("{job_id}", quoted)
    path = "/console/jobs" if has_console and kind in JOB_KINDS else STATUS_PATHS.get(kind)
    return "" if path is None else f"{base_url.rstrip('/')}{path}/{quoted}"


def check_template(template: str) -> None:
    """Raise InvalidOption if a template is not an http address, because a link must not run code."""
    if not template.startswith(("https://", "http://")):
        raise InvalidOption(
            "The address of a job's page does not begin with https:// or http://.",
            hint="Write such as https://app.example.com/jobs/{kind}/{job_id}, or leave it empty.",
        )
