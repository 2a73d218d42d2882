"""The life of browser sessions: what they expose, who may connect, when they end, and what they cost."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import browser_lab
import httpx
import pytest
from browser_lab import BrowserLab, children, command, running
from catalogue import proves
from polling import until
from session_lab import CLICKS, Sessions, Wire, wire
from websockets.exceptions import ConnectionClosed, InvalidStatus

from weblake.errors import InvalidOption
from weblake_service.config import ServiceConfig
from weblake_service.routes import session_connections
from weblake_service.server import LocalService
from weblake_service.sessions import external_client, session_records
from weblake_service.sessions.cdp_multiplexer import Message
from weblake_service.sessions.external_client import Backlog, OutgoingMessages


@pytest.fixture(scope="module")
def lab() -> Iterator[BrowserLab]:
    config = ServiceConfig(max_browser_sessions=2)
    for lab in browser_lab.open_lab(allow_code_execution=True, config=config):
        lab.site.page("/clicks", CLICKS)
        yield lab


@pytest.fixture
def red(lab: BrowserLab) -> Iterator[Sessions]:
    yield Sessions(lab)
    lab.service.reset()


@pytest.mark.parametrize(
    ("seconds", "credits"), [(0, 0), (0.4, 1), (30, 1), (30.0004, 1), (31, 2), (60, 2), (90, 3), (3600, 120), (-1, 0)]
)
def test_a_session_is_billed_by_the_second_at_two_credits_a_minute(seconds: float, credits: int) -> None:
    assert session_records.price(seconds) == credits


@proves(
    "S8",
    at="src/weblake_service/server.py",
    line="if code_execution and host not in",
    becomes="if False and host not in",
)
def test_s8_code_runs_on_loopback_only() -> None:
    with pytest.raises(InvalidOption, match="everybody who reaches"):
        LocalService(host="0.0.0.0", allow_code_execution=True)


@pytest.mark.system
def test_a_session_is_created_used_listed_and_billed_once(red: Sessions) -> None:
    made = red.create(ttl=60)
    assert set(made) == {"success", "id", "cdpUrl", "liveViewUrl", "interactiveLiveViewUrl", "expiresAt"}
    assert red.listed("active")[0].items() >= {"id": made["id"], "status": "active", "streamWebView": True}.items()
    ran = red.execute(made, f"await page.goto('{red.lab.site.url('/clicks')}'); console.log(await page.title())")
    assert ran == {
        "success": True, "stdout": "Start\n", "result": "Start\n", "stderr": "", "exitCode": 0, "killed": False,
        "error": None,
    }  # fmt: skip
    # The next call finds the page as it was left.
    assert red.execute(made, "print(await page.title())", language="python")["stdout"] == "Start\n"
    assert red.execute(made, "agent-browser get title", language="bash")["stdout"] == "Start\n"
    failed = red.execute(made, "await page.click('#nobody', {timeout: 50})")
    assert failed["success"] is True
    assert "Timeout" in failed["error"]
    red.lab.service.advance(30)
    ended = red.close(made)
    assert ended["sessionDurationMs"] >= 30_000
    # At least two: the calls take longer on a busy machine.
    credits = session_records.price(ended["sessionDurationMs"] / 1000)
    assert ended["creditsBilled"] == credits == red.credits_used()
    assert credits >= 2
    assert red.listed("active") == []
    assert red.listed("destroyed")[0]["id"] == made["id"]
    activity = red.ok("GET", "/v2/team/activity?endpoint=browser")["data"]
    assert [one["id"] for one in activity] == [made["id"]]
    assert red.call("DELETE", f"/v2/browser/{made['id']}").status_code == 404
    again = red.call("POST", f"/v2/browser/{made['id']}/execute", {"code": "1"})
    assert (again.status_code, again.json()["code"]) == (410, "SESSION_DESTROYED")
    assert red.credits_used() == credits
    with pytest.raises(InvalidStatus, match="403"), wire(made["cdpUrl"]):
        pass


@pytest.mark.system
def test_external_clients_are_isolated_from_each_other(red: Sessions) -> None:
    from playwright.sync_api import sync_playwright

    made = red.create()
    with sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(made["cdpUrl"])
        page = browser.contexts[0].pages[0]
        page.goto(red.lab.site.url("/clicks"))
        page.get_by_role("button").click()
        assert page.title() == "clicked 1"
        assert page.viewport_size is None or page.viewport_size["width"] == 1280
        assert page.evaluate("innerWidth + 'x' + innerHeight") == "1280x800"
        own = browser.new_context()
        other = own.new_page()
        other.goto(red.lab.site.url("/clicks"))
        assert other.title() == "Start"
        with wire(made["cdpUrl"]) as client:
            session = client.page()
            assert client.title(session) in ("clicked 1", "Start")
            # A session of another client does not exist for this client.
            with wire(made["cdpUrl"]) as stranger:
                assert "not found" in stranger.say("Runtime.evaluate", {"expression": "1"}, session)["error"]["message"]
        # The state that a client set up ends with its connection, and no other state does.
        own.close()
        assert page.title() == "clicked 1"
        browser.close()
    assert red.status(made) == "active"


@proves(
    "S8",
    at="src/weblake_service/sessions/external_client.py",
    line="elif why := refusal_reason(message):",
    becomes="elif why := '':",
)
@pytest.mark.system
def test_s8_the_protocol_gives_access_to_pages_only(red: Sessions, tmp_path: Path) -> None:
    made = red.create()
    secret = tmp_path / "secret.txt"
    secret.write_text("hidden")
    with wire(made["cdpUrl"]) as client:
        page = client.page()
        refused = [
            client.say("Page.navigate", {"url": secret.as_uri()}, page),
            client.say("Page.navigate", {"url": f"  {secret.as_uri()}".upper()}, page),
            client.say("Page.navigate", {"url": f"view-source:{secret.as_uri()}"}, page),
            client.say("Target.createTarget", {"url": "chrome://version"}),
            client.say("Target.createTarget", {"url": "about:inducebrowsercrashforrealz"}),
            client.say("DOM.setFileInputFiles", {"files": [str(secret)]}, page),
            client.say("Target.createBrowserContext", {"proxyServer": "http://127.0.0.1:1"}),
            client.say("Target.createBrowserContext", {"proxyBypassList": "*"}),
            client.say("Input.dispatchDragEvent", _dropping(secret), page),
            client.say("Target.exposeDevToolsProtocol", {"targetId": "x"}),
            client.say("Target.openDevTools", {"targetId": client.target()}),
            client.say("Target.attachToTarget", {"targetId": "x"}),
            client.say("Tethering.bind", {"port": 9999}),
            client.say("SystemInfo.getProcessInfo"),
            client.say("Nonsense"),
        ]
        assert all("error" in one for one in refused), [one for one in refused if "error" not in one]
        # Chromium itself refuses the requests of a script, also in a privileged world.
        for start in ("about:blank", "data:text/html,<p>x", red.lab.site.url("/clicks")):
            client.say("Page.navigate", {"url": start}, page)
            tree = client.say("Page.getFrameTree", {}, page)["result"]["frameTree"]["frame"]
            world = client.say("Page.createIsolatedWorld", {"frameId": tree["id"], "grantUniveralAccess": True}, page)
            scripts = [
                f"fetch('{secret.as_uri()}').then(r => r.text()).catch(() => 'refused')",
                f"open('{secret.as_uri()}'); location.href = '{secret.as_uri()}'; 'refused'",
            ]
            for script in scripts:
                how = {"expression": script, "awaitPromise": True, "userGesture": True}
                found = client.say("Runtime.evaluate", how | {"contextId": _world(world)}, page)
                assert found["result"]["result"].get("value") == "refused", found
            targets = client.say("Target.getTargets")["result"]["targetInfos"]
            assert not [one["url"] for one in targets if one["url"].startswith("file:")]
        # Settings that clients send when they connect get a response and have no effect.
        folder = {"behavior": "allow", "downloadPath": str(tmp_path)}
        assert "error" not in client.say("Browser.setDownloadBehavior", folder)
        red.lab.site.page("/file", b"data", content_type="application/octet-stream")
        client.say("Page.navigate", {"url": red.lab.site.url("/file")}, page)
        red.lab.site.page("/framed", f"<iframe src='{secret.as_uri()}'></iframe>".encode())
        client.say("Page.navigate", {"url": red.lab.site.url("/framed")}, page)
        until(
            lambda: client.say("Runtime.evaluate", {"expression": "frames.length"}, page)["result"]["result"]["value"]
        )
        text = client.say("Runtime.evaluate", {"expression": "document.documentElement.outerHTML"}, page)
        assert "hidden" not in json.dumps(text)
        assert [one.name for one in tmp_path.iterdir()] == ["secret.txt"]
        client._socket.send("no json")
        assert json.loads(client._socket.recv(10))["error"]["code"] == -32700


def _dropping(path: Path) -> dict[str, object]:
    return {"type": "drop", "x": 1, "y": 1, "data": {"items": [], "files": [str(path)], "dragOperationsMask": 1}}


def _world(reply: dict[str, Any]) -> int:
    return int(reply["result"]["executionContextId"])


@proves(
    "S8",
    at="src/weblake_service/sessions/session.py",
    line="return hmac.compare_digest(word",
    becomes="return True or hmac.compare_digest(word",
)
@proves(
    "S8",
    at="src/weblake_service/routes/session_connections.py",
    line="if origin is not None and",
    becomes="if False and",
)
@pytest.mark.system
def test_s8_a_connection_needs_the_token_and_an_allowed_origin(red: Sessions, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    made, other = red.create(), red.create(streamWebView=False)
    word = made["cdpUrl"].partition("word=")[2]
    wrong = [
        made["cdpUrl"].partition("?")[0],
        made["cdpUrl"][:-4] + "0000",
        other["cdpUrl"].replace(other["id"], made["id"]),
        # A viewer may not send commands.
        made["cdpUrl"].replace(word, made["liveViewUrl"].partition("word=")[2]),
    ]
    for url in wrong:
        with pytest.raises(InvalidStatus, match="403"), wire(url):
            pass
        address = url.replace("ws", "http", 1).replace("/cdp", "/agent")
        assert httpx.post(address, json={"command": "reload"}, trust_env=False).status_code == 404
    address = made["cdpUrl"].replace("ws", "http", 1).replace("/cdp", "/agent")
    assert httpx.post(address, content=b"[", trust_env=False).status_code == 400
    assert "none of agent-browser" in httpx.post(address, json={"command": "nonsense"}, trust_env=False).json()["error"]
    port = urlsplit(made["cdpUrl"]).port
    assert port is not None
    with pytest.raises(InvalidStatus, match="403"):
        wire(made["cdpUrl"], additional_headers={"Origin": "https://evil.example"}).__enter__()
    # A page's host name may resolve to this address.
    renamed = made["cdpUrl"].replace("127.0.0.1", "evil.example")
    with socket.create_connection(("127.0.0.1", port)) as sock, pytest.raises(InvalidStatus, match="403"):
        wire(renamed, sock=sock).__enter__()
    assert httpx.get(made["liveViewUrl"], trust_env=False, verify=False).status_code == 200
    interactive = made["liveViewUrl"].replace("/view?", "/control?")
    assert httpx.get(interactive, trust_env=False, verify=False).status_code == 404
    assert httpx.get(other["liveViewUrl"], trust_env=False, verify=False).status_code == 404
    with wire(made["cdpUrl"]) as client:
        assert client.page()
    # Neither the list of requests nor a log of the service contains the code.
    ours = ("uvicorn", "weblake", "starlette", "websockets.server")
    logged = "".join(one.getMessage() for one in caplog.records if one.name.startswith(ours))
    assert "word=" not in logged
    assert word not in json.dumps(red.lab.service.requests())


@pytest.mark.system
def test_a_session_belongs_to_its_team(red: Sessions) -> None:
    made, blue = red.create(), Sessions(red.lab, "blue-key")
    assert blue.listed() == []
    for reply in (
        blue.call("DELETE", f"/v2/browser/{made['id']}"),
        blue.call("POST", f"/v2/browser/{made['id']}/execute", {"code": "1"}),
    ):
        assert reply.status_code == 403
    for path in ("/v2/browser/nobody", "/v2/browser/1b671a64-40d5-491e-99b0-da01ff1f3341"):
        assert blue.call("DELETE", path).status_code == 404
        assert blue.call("POST", f"{path}/execute", {"code": "1"}).status_code == 404
    assert red.status(made) == "active"
    for body in ({"ttl": 29}, {"ttl": 3601}, {"activityTtl": 9}, {"profile": {"name": ""}}):
        assert red.call("POST", "/v2/browser", body).status_code == 400
    for body in (
        {},
        {"code": ""},
        {"code": "1", "timeout": 0},
        {"code": "1", "timeout": 301},
        {"code": "1", "language": "r"},
    ):
        assert red.call("POST", f"/v2/browser/{made['id']}/execute", body).status_code == 400


@pytest.mark.system
def test_sessions_are_limited_in_number_and_by_credits(red: Sessions) -> None:
    red.create()
    assert red.call("POST", "/v2/browser").status_code == 200, "no body is needed"
    full = red.call("POST", "/v2/browser", {})
    assert (full.status_code, full.json()["code"]) == (429, "SESSION_LIMIT_REACHED")
    assert int(full.headers["Retry-After"]) > 0
    with LocalService(allow_private=True, config=ServiceConfig(plan_credits=1)) as poor:
        headers = {"Authorization": f"Bearer {poor.key}"}
        reply = httpx.post(f"{poor.url}/v2/browser", json={}, headers=headers, trust_env=False, verify=False)
        assert reply.status_code == 402


@pytest.mark.system
def test_a_repeated_start_creates_one_session(red: Sessions) -> None:
    key = {"x-idempotency-key": "6c1f6f0e-3f3b-4c0a-9a51-8d5a9f0f7b11"}
    first = red.call("POST", "/v2/browser", {"ttl": 60}, headers=key).json()
    again = red.call("POST", "/v2/browser", {"ttl": 60}, headers=key).json()
    assert first == again
    assert len(red.listed()) == 1
    count = {"code": "await page.evaluate('window.n = (window.n || 0) + 1')"}
    other = {"x-idempotency-key": "6c1f6f0e-3f3b-4c0a-9a51-8d5a9f0f7b12"}
    for _ in range(2):
        assert red.call("POST", f"/v2/browser/{first['id']}/execute", count, headers=other).status_code == 200
    assert red.execute(first, "console.log(await page.evaluate('window.n'))")["stdout"] == "1\n"


@pytest.mark.system
def test_a_session_ends_after_its_ttl_or_when_idle(red: Sessions) -> None:
    # The service's clock also advances while a browser starts, so a difference of half a minute is allowed.
    began = time.monotonic()
    long, idle = red.create(ttl=1000, activityTtl=3600), red.create(ttl=3600, activityTtl=500)
    red.lab.service.advance(400)
    red.execute(idle, "1")
    took = time.monotonic() - began
    red.lab.service.advance(400)
    # Used after 400 s, so that it ends at 900 s.
    assert (red.status(long), red.status(idle)) == ("active", "active")
    red.lab.service.advance(150)
    until(lambda: red.status(idle) == "destroyed")
    assert red.status(long) == "active"
    red.lab.service.advance(100)
    until(lambda: red.status(long) == "destroyed")
    # Each is billed until its time was over, not until that was noticed: 900 s and what the use took, and 1000 s.
    whole = session_records.price(1000)
    until(lambda: session_records.price(930) <= red.credits_used() - whole <= session_records.price(900 + took))


@pytest.mark.system
def test_viewers_do_not_keep_a_session_alive_but_running_code_does(red: Sessions) -> None:
    made = red.create(ttl=3600, activityTtl=10)
    ran: list[dict[str, object]] = []
    arrived, go = threading.Event(), threading.Event()

    def held(handler: Any) -> None:
        arrived.set()
        go.wait(120)
        handler.reply(200, b"x", {})

    red.lab.site.pages["/held"] = held
    code = f"await page.goto('{red.lab.site.url('/held')}')"
    running_code = threading.Thread(target=lambda: ran.append(red.execute(made, code)))
    running_code.start()
    assert arrived.wait(120)
    with wire(made["cdpUrl"]) as client:
        red.lab.service.advance(60)
        assert client.say("Browser.getVersion")["result"]
        go.set()
        running_code.join(120)
        assert ran[0]["exitCode"] == 0, ran
        # An idle client does not count as use.
        red.lab.service.advance(11)
        with pytest.raises(ConnectionClosed):
            client._socket.recv(30)
    until(lambda: red.status(made) == "destroyed")


@pytest.mark.system
def test_running_code_ends_with_its_session(red: Sessions) -> None:
    made = red.create(ttl=60)
    replies: list[httpx.Response] = []
    arrived = threading.Event()
    red.lab.site.pages["/arrived"] = lambda handler: (arrived.set(), handler.reply(200, b"x", {}))[1]
    body: dict[str, object] = {
        "code": f"await page.goto('{red.lab.site.url('/arrived')}'); while (true) {{}}",
        "timeout": 300,
    }
    path = f"/v2/browser/{made['id']}/execute"
    asking = threading.Thread(target=lambda: replies.append(red.call("POST", path, body)))
    asking.start()
    assert arrived.wait(120)
    red.lab.service.advance(61)
    asking.join(120)
    assert replies[0].status_code == 410
    until(lambda: not [pid for pid in running(children(os.getpid())) if "harness" in command(pid)])


@pytest.mark.system
def test_a_crashed_browser_ends_its_session(red: Sessions) -> None:
    before, began = browser_lab.browsers(), time.monotonic()
    made = red.create()
    (browser,) = browser_lab.browsers() - before
    os.kill(browser, signal.SIGKILL)
    until(lambda: red.status(made) == "destroyed")
    until(lambda: 1 <= red.credits_used() <= session_records.price(time.monotonic() - began))
    again = red.create()
    with wire(again["cdpUrl"]) as client:
        # Closing the browser through the protocol closes the session.
        client.say("Browser.close")
    until(lambda: red.status(again) == "destroyed")


@pytest.mark.system
def test_a_profile_is_saved_by_one_session_at_a_time(red: Sessions) -> None:
    site = red.lab.site.url("/clicks")
    first = red.create(profile={"name": "shop"})
    red.execute(first, f"await page.goto('{site}'); await page.evaluate(() => localStorage.setItem('cart', 'full'))")
    red.execute(first, "await context.addCookies([{name: 'who', value: 'me', url: page.url(), expires: 4e9}])")
    second = red.call("POST", "/v2/browser", {"profile": {"name": "shop"}})
    assert (second.status_code, second.json()["code"]) == (429, "PROFILE_IN_USE")
    assert red.status(first) == "active"
    red.close(first)
    look = f"await page.goto('{site}'); console.log(await page.evaluate(() => localStorage.cart + document.cookie))"
    reader = red.create(profile={"name": "shop", "saveChanges": False})
    assert red.execute(reader, look)["stdout"] == "fullwho=me\n"
    red.execute(reader, "await page.evaluate(() => localStorage.clear())")
    red.close(reader)
    # A scrape uses the profile as well, and a profile that was only loaded was not saved.
    red.lab.site.page("/cart", b"<main id=m></main><script>m.textContent = 'cart: ' + localStorage.cart</script>")
    found = red.lab.scrape(red.lab.site.url("/cart"), profile={"name": "shop", "saveChanges": False})
    assert found["markdown"] == "cart: full"
    # Another team's profile of that name is separate.
    blue = Sessions(red.lab, "blue-key")
    theirs = blue.create(profile={"name": "shop"})
    assert blue.execute(theirs, look)["stdout"] == "undefined\n"


@pytest.mark.system
def test_a_session_reaches_the_same_addresses_as_the_service(red: Sessions) -> None:
    for lab in browser_lab.open_lab(allow_private=False, allow_code_execution=True):
        public, made = Sessions(lab), Sessions(lab).create()
        lab.site.page("/clicks", CLICKS)
        with wire(made["cdpUrl"]) as client:
            page = client.page()
            for host in ("127.0.0.1", "localhost", "[::1]", "169.254.169.254"):
                url = f"http://{host}:{lab.site.server_port}/clicks"
                assert client.say("Page.navigate", {"url": url}, page)["result"].get("errorText"), url
        assert lab.site.requests == []
        assert public.status(made) == "active"


def _fill(client: Wire, megabytes: int, times: int) -> None:
    """Let a client that does not read request long strings."""
    page = client.page()
    for _ in range(times):
        script = f"'x'.repeat({megabytes << 20})"
        client.tell("Runtime.evaluate", {"expression": script, "returnByValue": True}, page)


def _open_connections(red: Sessions) -> int:
    server = red.lab.service._server
    assert server is not None
    return len(server.server_state.tasks)


def test_the_backlog_limit_is_for_all_clients_of_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_client, "_MAX_BUFFERED_BYTES", 1000)
    backlog = Backlog()
    one, other = OutgoingMessages(backlog), OutgoingMessages(backlog)
    one.put(Message(method="x" * 400))
    assert not one.full.is_set()
    other.put(Message(method="x" * 700))
    assert other.full.is_set()
    other.discard()
    one.put(Message(method="x" * 400))
    assert not one.full.is_set()


@pytest.mark.system
def test_a_client_that_does_not_read_is_disconnected_at_the_limit(
    red: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_client, "_MAX_BUFFERED_BYTES", 20 << 20)
    made = red.create()
    with suppress(ConnectionClosed), wire(made["cdpUrl"]) as reader:
        page = reader.page()
        with suppress(ConnectionClosed), wire(made["cdpUrl"], max_queue=1) as silent:
            _fill(silent, megabytes=8, times=10)
            until(lambda: _open_connections(red) == 1)
        assert reader.title(page) == ""


@pytest.mark.system
def test_a_client_that_does_not_read_is_disconnected_after_its_session(
    red: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_connections, "_CLOSE_TIMEOUT_S", 0.2)
    made = red.create()
    with suppress(ConnectionClosed), wire(made["cdpUrl"], max_queue=1) as silent:
        _fill(silent, megabytes=8, times=4)
        until(lambda: _open_connections(red) == 1)
        red.close(made)
        until(lambda: _open_connections(red) == 0)


@proves(
    "S8",
    at="src/weblake_service/sessions/cdp_multiplexer.py",
    line="self._mux.require_web_page(message.method, session)",
    becomes="pass",
)
@pytest.mark.system
def test_s8_pages_of_the_browser_itself_take_no_commands(red: Sessions) -> None:
    def evaluate(session: str) -> dict[str, Any]:
        return client.say("Runtime.evaluate", {"expression": "location.href"}, session)

    with wire(red.create()["cdpUrl"]) as client:
        for one in client.say("Target.getTargets")["result"]["targetInfos"]:
            if one["url"].startswith("chrome:"):
                assert "pages of the web" in evaluate(client.attach(one["targetId"]))["error"]["message"]
        client.say("Target.setDiscoverTargets", {"discover": True})
        # Chromium executes shortcuts that no page has handled. F12 opens the developer tools, which read files.
        page = client.attach(client.say("Target.createTarget", {"url": "about:blank"})["result"]["targetId"])
        client.press(page, "F12", 123)
        attached = client.say("Target.attachToTarget", {"targetId": client.arrived("devtools:"), "flatten": True})
        assert "error" in attached or "error" in evaluate(attached["result"]["sessionId"])
        until(lambda: not [one for one in _urls(client) if one.startswith("devtools:")])
        # Ctrl+H turns the page of an open session into the history.
        assert evaluate(page)["result"]["result"]["value"] == "about:blank"
        client.press(page, "h", 72, modifiers=2)
        history = client.arrived("chrome://history")
        assert "pages of the web" in evaluate(page)["error"]["message"]
        assert "error" in client.say("Page.navigate", {"url": "javascript:alert(1)"}, page)
        assert "error" not in client.say("Target.createTarget", {"url": "about:blank"})
        assert client.say("Target.closeTarget", {"targetId": history})["result"]["success"]


def _urls(client: Wire) -> list[str]:
    return [str(one["url"]) for one in client.say("Target.getTargets")["result"]["targetInfos"]]


@proves(
    "S8",
    at="src/weblake_service/routes/code_execution.py",
    line="if not parts.config.code_execution:",
    becomes="if False:",
)
@pytest.mark.system
def test_s8_code_runs_only_if_enabled(tmp_path: Path) -> None:
    for lab in browser_lab.open_lab():
        sessions = Sessions(lab)
        made = sessions.create()
        refused = [
            sessions.call("POST", f"/v2/browser/{made['id']}/execute", {"code": "1"}),
            sessions.call("POST", "/v2/scrape/1b671a64-40d5-491e-99b0-da01ff1f3341/interact", {"code": "1"}),
        ]
        for reply in refused:
            assert (reply.status_code, reply.json()["code"]) == (503, "CODE_EXECUTION_DISABLED")
            assert "--allow-code-execution" in reply.json()["error"]
        # The browser itself is available to the client that drives it.
        with wire(made["cdpUrl"]) as client:
            assert client.title(client.page()) == ""


@pytest.mark.system
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_no_chromium_outlives_the_service_and_the_session_is_billed_once(tmp_path: Path, how: int) -> None:
    browser_lab.require_chromium()
    # Not below pytest's directory: Chromium has a socket there, and the paths of sockets have a short limit.
    temporary = Path(tempfile.mkdtemp(prefix="wl-"))
    headers = {"Authorization": "Bearer k"}

    def serve() -> tuple[subprocess.Popen[bytes], httpx.Client]:
        command_line = [sys.executable, "-m", "weblake", "serve", "--port", "0", "--data", str(tmp_path / "data")]
        service = subprocess.Popen(
            [*command_line, "--allow-private", "--allow-code-execution"],
            env={**os.environ, "WEBLAKE_API_KEY": "k", "TMPDIR": str(temporary)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert service.stdout is not None
        url = json.loads(service.stdout.readline())["url"]
        return service, httpx.Client(base_url=url, headers=headers, timeout=240, trust_env=False, verify=False)

    service, http = serve()
    family: set[int] = set()
    try:
        made = [http.post("/v2/browser", json={"ttl": 600}).json() for _ in range(2)]
        body = {"code": "while (true) {}", "timeout": 300}
        looping = threading.Thread(target=_ignoring, args=(http, f"/v2/browser/{made[0]['id']}/execute", body))
        looping.start()
        until(lambda: [pid for pid in children(service.pid) if "harness" in command(pid)])
        family = children(service.pid)
        os.kill(service.pid, how)
        service.wait(120)
        until(lambda: not running(family))
        looping.join(120)
        if how == signal.SIGTERM:
            assert not list(temporary.glob("weblake-browser-*"))
        service, http = serve()
        sessions = http.get("/v2/browser").json()["sessions"]
        assert {(one["id"], one["status"]) for one in sessions} == {(one["id"], "destroyed") for one in made}
        periods = http.get("/v2/team/credit-usage/historical").json()["periods"]
        used = sum(one["totalCredits"] for one in periods)
        # Seconds of two sessions; one that was killed at once may not have been recorded as alive.
        assert used >= (0 if how == signal.SIGKILL else 2)
        # The next browser removes the files that the killed service left.
        before = set(temporary.glob("weblake-browser-*"))
        assert bool(before) == (how == signal.SIGKILL)
        assert http.post("/v2/browser", json={"ttl": 600}).status_code == 200
        assert not before & set(temporary.glob("weblake-browser-*"))
        family = children(service.pid)
    finally:
        service.kill()
        service.wait(120)
        until(lambda: not running(family))
        shutil.rmtree(temporary, ignore_errors=True)


def _ignoring(http: httpx.Client, path: str, body: dict[str, object]) -> None:
    with suppress(httpx.HTTPError):
        http.post(path, json=body)
