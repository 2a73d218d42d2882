"""A service with a browser, next to a site that the test writes; and the process ids of a browser."""

from __future__ import annotations

import os
import shutil
import threading
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import loopback_site as loopback

from weblake_service.config import ServiceKey
from weblake_service.server import LocalService

KEYS = [ServiceKey("red-key", "one", "red"), ServiceKey("blue-key", "two", "blue")]


@dataclass
class BrowserLab:
    """The service, the site, and the calls that tests make."""

    service: LocalService
    site: Any
    http: httpx.Client

    def post(self, url: str, key: str = "red-key", **options: object) -> httpx.Response:
        body = {"url": url, **options}
        return self.http.post("/v2/scrape", json=body, headers={"Authorization": f"Bearer {key}"})

    def scrape(self, url: str, key: str = "red-key", **options: object) -> dict[str, Any]:
        reply = self.post(url, key, **options)
        assert reply.status_code == 200, reply.text
        return dict(reply.json()["data"])

    def run_actions(self, url: str, *actions: dict[str, object], **options: object) -> dict[str, Any]:
        """Return the results of the actions."""
        return dict(self.scrape(url, actions=list(actions), **options)["actions"])

    def requests_for(self, path: str) -> list[dict[str, str]]:
        """Return the headers of every request for a path."""
        return [headers for asked, headers in self.site.requests if asked.partition("?")[0] == path]


def require_chromium() -> None:
    """Fail with a message if Chromium is missing: these tests prove promises about a browser."""
    assert shutil.which("chromium"), "there is no chromium; install it: apt-get install -y chromium"


def open_site() -> Any:
    site = loopback.Site()
    threading.Thread(target=site.serve_forever, args=(0.01,), daemon=True).start()
    return site


def open_lab(allow_private: bool = True, **how: Any) -> Iterator[BrowserLab]:
    require_chromium()
    site = open_site()
    with (
        LocalService(keys=KEYS, allow_private=allow_private, **how) as service,
        httpx.Client(base_url=service.url, timeout=120, trust_env=False, verify=False) as http,
    ):
        yield BrowserLab(service, site, http)
    site.stop.set()
    site.shutdown()
    site.server_close()


def picture(uri: str) -> tuple[str, int, int]:
    """Return the kind of a picture, its width and its height."""
    head, _, data = uri.partition(",")
    body = b64decode(data, validate=True)
    if head == "data:image/png;base64":
        assert body.startswith(b"\x89PNG")
        return "png", int.from_bytes(body[16:20]), int.from_bytes(body[20:24])
    assert head == "data:image/jpeg;base64", head
    assert body.startswith(b"\xff\xd8")
    at = 2
    while body[at + 1] not in (0xC0, 0xC2):
        at += 2 + int.from_bytes(body[at + 2 : at + 4])
    return "jpeg", int.from_bytes(body[at + 7 : at + 9]), int.from_bytes(body[at + 5 : at + 7])


def children(pid: int) -> set[int]:
    """Return all descendants of a process."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(text.rpartition(")")[2].split()[1])
    found, new = set(), {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return found


def running(pids: set[int]) -> set[int]:
    """Return the processes that exist and are no zombies."""
    alive = set()
    for pid in pids:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                alive.add(pid)
        except OSError:
            continue
    return alive


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def browsers() -> set[int]:
    """Return the main processes of the browsers that this process started."""
    found = running({pid for pid in children(os.getpid()) if "--remote-debugging-pipe" in command(pid)})
    found = {pid for pid in found if "--type=" not in command(pid)}
    # A process that a browser has just forked still has the command line of the browser.
    return found.difference(*map(children, found))
