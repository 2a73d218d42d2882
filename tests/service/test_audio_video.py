"""The formats `audio` and `video`: the recordings of a page, or a refusal."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

PLAYER = '<main><p>Hear it.</p><audio src="/sounds/a.mp3"></audio><video><source src="clip.webm"></video></main>'
PAGES = {
    "/player": (PLAYER, "/sounds/a.mp3", "/clip.webm"),
    "/og": (
        '<head><meta property="og:audio" content="/og.mp3">'
        '<meta property="og:video:secure_url" content="/og.mp4"></head>' + PLAYER,
        "/og.mp3",
        "/og.mp4",
    ),
    # The page of a player is not a recording.
    "/embed": (
        '<head><meta property="og:video:type" content="text/html"><meta property="og:video" content="/embed/1"></head>'
        + PLAYER,
        "/sounds/a.mp3",
        "/clip.webm",
    ),
    "/blob": (
        '<main><video src="blob:x"></video><video src="/late.mp4"></video><audio src="/a.ogg"></main>',
        "/a.ogg",
        "/late.mp4",
    ),
    "/large": ("<main>" + "<p>word</p>" * 40_000 + PLAYER + "</main>", "/sounds/a.mp3", "/clip.webm"),
}


@pytest.fixture
def post(weblake_service: Any, weblake_site: Any) -> Any:
    def call(path: str, formats: list[Any]) -> httpx.Response:
        return httpx.post(
            f"{weblake_service.url}/v2/scrape",
            json={"url": weblake_site.url + path, "formats": formats},
            headers={"Authorization": f"Bearer {weblake_service.key}"},
            timeout=60,
            trust_env=False,
            verify=False,
        )

    return call


@pytest.mark.parametrize("path", PAGES)
def test_the_recordings_of_a_page_are_returned(post: Any, weblake_site: Any, path: str) -> None:
    html, audio, video = PAGES[path]
    weblake_site.add(path, html)
    data = post(path, ["audio", {"type": "video"}]).json()["data"]
    assert (data["audio"], data["video"]) == (weblake_site.url + audio, weblake_site.url + video)
    assert "markdown" not in data
    assert data["metadata"]["creditsUsed"] == 1


@pytest.mark.parametrize("kind", ["audio", "video"])
@pytest.mark.parametrize("path", ["/about", "/files/notes.txt"])
def test_a_page_without_recordings_is_refused_if_nothing_else_is_asked_for(
    post: Any, weblake_service: Any, kind: str, path: str
) -> None:
    reply = post(path, [kind])
    said = reply.json()
    assert (reply.status_code, said["code"]) == (404, "SCRAPE_NO_MEDIA")
    assert f"no {kind} of its own" in said["error"]
    assert "pages_billed" not in weblake_service.counts()


@pytest.mark.parametrize("other", ["markdown", "links", {"type": "attributes", "selectors": []}])
def test_a_page_without_a_recording_keeps_its_other_formats(post: Any, weblake_site: Any, other: Any) -> None:
    weblake_site.add("/sound", '<main><p>Hear it.</p><audio src="/a.mp3"></audio></main>')
    data = post("/sound", [other, "audio", "video"]).json()["data"]
    assert (other if isinstance(other, str) else "audio") in data
    assert (data["audio"], "video" in data) == (weblake_site.url + "/a.mp3", False)
    assert data["warning"].startswith("`video` was left out: ")
    assert (data["metadata"]["creditsUsed"], "`audio`" in data["warning"]) == (1, False)
