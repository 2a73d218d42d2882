"""For any value of `next`, only chunks of the same job are read, from the configured base URL."""

from __future__ import annotations

import pytest
from catalogue import proves
from landing_commands import Lake
from scripted_job import JOB, OTHER, Job, pages
from scripted_service import ScriptedService

PATH = f"/v2/batch/scrape/{JOB}"

#: HOST is the host and port of the other origin.
OURS = {
    "another port": f"http://HOST{PATH}?skip=2",
    "another scheme": f"https://HOST{PATH}?skip=2",
    "user info": f"http://test-user:test-password@HOST{PATH}?skip=2",
    "a path only": f"{PATH}?skip=2",
    "a proxy's prefix": f"http://HOST/inner{PATH}?skip=2",
}

ELSEWHERE = {
    "another job": f"http://HOST/v2/batch/scrape/{OTHER}?skip=2",
    "its errors": f"http://HOST{PATH}/errors?skip=2",
    "a script": "javascript:fetch('http://HOST/')",
    "an escaped slash": f"http://HOST/v2/batch%2Fscrape/{JOB}?skip=2",
    "a line break": f"http://HOST{PATH}?skip=2\r\nHost: HOST",
    "2 MB": f"http://HOST{PATH}?skip=2&x=" + "x" * 2_000_000,
    "a list": [f"{PATH}?skip=2"],
}


# A naive reader would follow the path; the host cannot change, because the transport determines the origin.
@proves(
    "H16",
    at="src/weblake/jobs/result_pages.py",
    line="operation = replace(self._read, request=replace(self._read.request, query=asked))",
    becomes="operation = replace(self._read, request=replace(self._read.request, query=asked, path='/' + "
    "str(self.head['next']).partition('?')[0].split('/', 3)[-1] if asked else self._read.request.path))",
    case="in_turn-a proxy's prefix",
)
@proves(
    "H16",
    at="src/weblake/loads/download.py",
    line="self._next = self._start_prefetch(replace(request, query=following))",
    becomes="self._next = self._start_prefetch(replace(request, query=following, path='/' + "
    "str(head['next']).partition('?')[0].split('/', 3)[-1]))",
    case="ahead-a proxy's prefix",
)
@pytest.mark.usefixtures("with_and_without_prefetch")
@pytest.mark.parametrize("link", OURS.values(), ids=OURS)
def test_h16_only_the_query_of_a_next_link_is_used(
    service: ScriptedService, other_origin: ScriptedService, lake: Lake, link: str
) -> None:
    job = Job(service, pages(6), cut=2)
    for at in (0, 2):
        following = link.replace("HOST", f"127.0.0.1:{other_origin.port}").replace("skip=2", f"skip={at + 2}")
        job.chunks[at]["next"] = following.replace("SKIP=2", f"SKIP={at + 2}")
    lake.land(job=JOB).landed(pages(6))
    assert [len(service.requests_for(job.at(at))) for at in (2, 4)] == [1, 1]


@proves(
    "H16",
    at="src/weblake/api/next_link.py",
    line='if not parts.path.lower().endswith(path.removeprefix("/v2").lower()):',
    becomes="if False:",
    case="another job",
)
@proves(
    "H16",
    at="src/weblake/api/next_link.py",
    line="MAX_LINK_CHARS = 4096",
    becomes="MAX_LINK_CHARS = 1 << 30",
    case="2 MB",
)
@pytest.mark.parametrize("link", ELSEWHERE.values(), ids=ELSEWHERE)
def test_h16_a_next_link_to_another_path_is_refused(
    service: ScriptedService, other_origin: ScriptedService, lake: Lake, link: object
) -> None:
    job = Job(service, pages(4), cut=2)
    host = f"127.0.0.1:{other_origin.port}"
    job.chunks[0]["next"] = link.replace("HOST", host) if isinstance(link, str) else link
    printed = lake.land(job=JOB).expect_error("MalformedReply", "does not lead to another chunk")
    assert len(printed["error"]["message"]) < 300
    assert {seen.path for seen in service.seen} == {job.path}


def test_a_next_link_to_another_path_is_refused_while_the_job_runs(
    service: ScriptedService, other_origin: ScriptedService, lake: Lake
) -> None:
    job = Job(service, pages(4), cut=2)
    elsewhere = f"{other_origin.url}/v2/batch/scrape/{OTHER}?skip=2"
    service.first(job.read, job.before(data=pages(2), next=elsewhere))
    lake.land(job=JOB).expect_error("MalformedReply", "does not lead to another chunk")


def test_chunks_are_read_below_the_path_of_the_base_url(
    service: ScriptedService, other_origin: ScriptedService, lake: Lake
) -> None:
    job = Job(service, pages(4), cut=2)
    job.chunks[0]["next"] = f"{other_origin.url}{job.path}?skip=2"
    for name in (job.at(0), job.at(2), f"{job.read}/errors"):
        service._script[name.replace("GET /", "GET /team/a/")] = service._script.pop(name)
    lake.env["WEBLAKE_BASE_URL"] = f"{service.url}/team/a/"
    lake.land(job=JOB).landed(pages(4))
