"""The key is sent only to the origin given to the client, whatever other origin a response or setting names."""

from __future__ import annotations

import asyncio

import pytest
from both_clients import READ, REMOTE_HOST, Read, with_both_clients
from catalogue import proves
from landing_commands import KEY, Lake
from scripted_job import JOB, Job, pages
from scripted_service import ScriptedService, reply

from weblake.api.steps import Request
from weblake.credentials import ApiKey, BaseUrl
from weblake.errors import InvalidOption, MalformedReply
from weblake.http.transport import AsyncHttpTransport, HttpTransport


# An HTTP library that follows redirects would send the headers along.
@proves(
    "S2",
    at="src/weblake/http/transport.py",
    line="async for part in response.stream:",
    becomes="async for part in ((httpx.get(response.headers['location'], headers=self._headers) "
    "if response.status_code // 100 == 3 else 1) and response).stream:",
    case="absolute-307-awaited_read",
)
@with_both_clients
@pytest.mark.parametrize("status", [301, 307])
@pytest.mark.parametrize("to", ["http://HOST/v2/team/credit-usage", "//HOST/"], ids=["absolute", "no scheme"])
def test_s2_a_redirect_to_another_origin_is_not_followed(
    service: ScriptedService, other_origin: ScriptedService, read: Read, status: int, to: str
) -> None:
    service.on(READ, reply("", status, location=to.replace("HOST", f"127.0.0.1:{other_origin.port}")))
    with pytest.raises(MalformedReply, match="redirect"):
        read(service.url)
    assert [seen.name for seen in service.seen] == [READ]
    assert other_origin.seen == []


def test_s2_no_url_in_a_response_is_requested(
    service: ScriptedService, other_origin: ScriptedService, lake: Lake
) -> None:
    """Put another origin into a start's `url`, a chunk's `next`, and every header that redirects a client."""
    job = Job(service, pages(4), cut=2)
    there = f"{other_origin.url}{job.path}?skip=2"
    host = f"127.0.0.1:{other_origin.port}"
    elsewhere = {
        "location": there,
        "content_location": there,
        "refresh": f"0; url={there}",
        "link": f'<{there}>; rel="next"',
        "alt_svc": f'h2="{host}", http/1.1="{host}"; ma=3600',
        "set_cookie": "session=test; Domain=127.0.0.1; Path=/",
    }
    service.on("POST /v2/batch/scrape", reply({"success": True, "id": JOB, "url": there}, **elsewhere))
    for skip in (0, 2):
        job.chunks[skip]["url"] = there
    job.chunks[0]["next"] = there
    service.first(job.at(2), reply(job.chunks[2], **elsewhere))
    lake.run("batch", *(f"https://site.test/page/{n}" for n in range(4))).landed(pages(4))
    assert other_origin.seen == []
    assert not [seen for seen in service.seen if "cookie" in seen.headers]


@proves(
    "S2",
    at="src/weblake/credentials.py",
    line="if parts.username is not None or parts.password is not None:",
    becomes="if False:",
    case="the service as user-blocking_read",
)
@with_both_clients
@pytest.mark.parametrize(
    "url",
    ["http://SERVICE@STRANGER", "http://SERVICE:443@STRANGER", "http://user:KEY@STRANGER/", "http://KEY@STRANGER"],
    ids=["the service as user", "and its port as password", "the key as password", "the key as user"],
)
def test_s2_a_base_url_with_user_info_is_refused(other_origin: ScriptedService, read: Read, url: str) -> None:
    url = url.replace("STRANGER", f"127.0.0.1:{other_origin.port}").replace("SERVICE", REMOTE_HOST)
    with pytest.raises(InvalidOption, match="user name or password") as caught:
        read(url.replace("KEY", "test-key"))
    assert "test-key" not in str(caught.value)
    assert other_origin.seen == []


@proves("S2", at="src/weblake/credentials.py", line='if not path.startswith("/"):', becomes="if False:", case="@HOST/")
@pytest.mark.parametrize("path", ["@HOST/", ":80@HOST/", "", "v2/x", ".HOST/"])
def test_s2_no_path_changes_the_host_of_the_base_url(other_origin: ScriptedService, path: str) -> None:
    request = Request("GET", path.replace("HOST", f"127.0.0.1:{other_origin.port}"))
    base, key = BaseUrl.parse("http://127.0.0.1:9"), ApiKey(KEY)
    with pytest.raises(InvalidOption, match="not stay at"):
        HttpTransport(base, key).send(request)
    with pytest.raises(InvalidOption, match="not stay at"):
        asyncio.run(AsyncHttpTransport(base, key).send(request))
    assert other_origin.seen == []


#: Redirect targets: the other origin, the service itself, and URLs that are invalid for a service.
PLACES = {
    "another origin": "http://{other_origin}/v2/crawl?skip=0",
    "https": "https://{service}{path}",
    "no scheme": "//{other_origin}{path}",
    "user info": "http://{service}@{other_origin}{path}",
    "itself": "http://{service}{path}",
    "its own path": "{path}?skip=0",
    "another path": "/v2/team/activity",
    "a file": "file:///etc/passwd",
    "a script": "javascript:alert(1)",
    "nowhere": "",
    "a secret": "http://{other_origin}/?token=canary",
}


@proves(
    "H15",
    at="src/weblake/http/transport.py",
    line="                for part in response.stream:",
    becomes="                for part in [httpx.get(response.headers['location'], headers=self._headers).content]:",
    case="302-another origin",
)
@proves(
    "H15",
    at="src/weblake/jobs/retry.py",
    line="reply = yield from send(request)",
    becomes="yield from send(request); reply = yield from send(request)",
    case="302-itself",
)
@proves(
    "H15", at="src/weblake/api/responses.py", line="if 300 <= status < 400:", becomes="if False:", case="302-itself"
)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("status", [302, 307])
def test_h15_no_redirect_is_followed_wherever_it_points(
    service: ScriptedService, other_origin: ScriptedService, lake: Lake, status: int, place: str
) -> None:
    job = Job(service, pages(2))
    names = {"service": service.url[7:], "other_origin": other_origin.url[7:], "path": job.path}
    job.always(0, reply("", status, location=PLACES[place].format(**names)))
    outcome = lake.land(job=JOB)
    outcome.expect_error("MalformedReply", "redirect", "WEBLAKE_BASE_URL")
    assert len(service.seen) == 1
    assert other_origin.url not in outcome.out + outcome.err
    assert "canary" not in (outcome.out + outcome.err).replace(KEY, "")
