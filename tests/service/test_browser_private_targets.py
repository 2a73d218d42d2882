"""S7 in a browser: no page, script or redirect reaches a private address."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import browser_lab
import pytest
from browser_lab import BrowserLab
from private_sites import PRIVATE, PUBLIC, PublicAndPrivateSites, public_and_private_sites

pytestmark = pytest.mark.system


@dataclass
class BrowserSites(PublicAndPrivateSites):
    """The two sites, a service with a browser, and a UDP port."""

    lab: BrowserLab = field(kw_only=True)
    datagrams: socket.socket = field(kw_only=True)

    def untouched(self) -> None:
        """Assert that nothing private was reached: no request, no connection, no datagram."""
        assert self.private.requests == []
        assert self.private.connections == 0
        with pytest.raises(BlockingIOError):
            self.datagrams.recvfrom(100)


@pytest.fixture(scope="module")
def sites() -> Iterator[BrowserSites]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams, public_and_private_sites() as made:
        datagrams.bind((PRIVATE, 0))
        datagrams.setblocking(False)
        for lab in browser_lab.open_lab(allow_private=False):
            yield BrowserSites(made.public, made.private, made.answers, lab=lab, datagrams=datagrams)


ATTACK = """<!doctype html><title>Attack</title><main><p id=out></p></main>
<img src="{inside}/img"><img src="/redirect"><link rel=stylesheet href="{inside}/css">
<link rel=preconnect href="{inside}"><link rel=dns-prefetch href="//inside.example">
<link rel=prefetch href="{inside}/pre"><iframe id=named src="{inside}/frame"></iframe>
<iframe src="{literal}/frame"></iframe><iframe src="file:///etc/passwd"></iframe>
<iframe src="chrome://version"></iframe><iframe src="http://[::1]:{port}/six"></iframe>
<iframe src="http://2130706433:{port}/number"></iframe>
<form id=form action="{inside}/form" method=post target=named><input name=a value=b></form>
<script>
const tried = [];
const say = (name, how) => tried.push(name + ' ' + how);
const reach = (name, url, options = {{mode: 'no-cors'}}) =>
    fetch(url, options).then(r => say(name, 'reached ' + r.type), () => say(name, 'failed'));
const sock = url => new Promise(done => {{
    const s = new WebSocket(url);
    s.onopen = () => {{ say('socket', 'reached'); done() }};
    s.onerror = () => {{ say('socket', 'failed'); done() }};
}});
const worker = new Worker(URL.createObjectURL(new Blob([
    "fetch('{inside}/worker', {{mode: 'no-cors'}}).then(() => postMessage('reached'), () => postMessage('failed'))"
])));
const peer = new RTCPeerConnection({{
    iceServers: [{{urls: 'stun:{private}:{udp}'}}, {{urls: 'stun:localhost:{udp}'}}]
}});
peer.createDataChannel('x'); peer.createOffer().then(offer => peer.setLocalDescription(offer));
const gathered = new Promise(done => {{
    peer.onicegatheringstatechange = () => peer.iceGatheringState === 'complete' && done(); setTimeout(done, 1500)
}});
navigator.sendBeacon('{inside}/beacon', 'x'); new EventSource('{inside}/events'); form.submit();
open('{inside}/popup');
Promise.all([
    reach('name', '{inside}/a'), reach('literal', '{literal}/a'), reach('redirected', '/redirect'),
    reach('cors', '{inside}/b', {{}}), reach('file', 'file:///etc/passwd'),
    reach('localhost', 'http://localhost:{port}/c'), reach('service', '{service}/health'),
    sock('ws://inside.example:{port}/ws'), gathered,
    new Promise(done => worker.onmessage = told => {{ say('worker', told.data); done() }}),
]).then(() => {{
    const p = document.createElement('p'); p.id = 'done'; p.textContent = tried.join('; '); out.after(p);
}});
</script>"""


def test_a_page_cannot_reach_private_addresses(sites: BrowserSites) -> None:
    body = ATTACK.format(
        inside=sites.url(host="inside.example").rstrip("/"),
        literal=sites.url(host=PRIVATE).rstrip("/"),
        port=sites.private.server_port,
        private=PRIVATE,
        udp=sites.datagrams.getsockname()[1],
        service=sites.lab.service.url,
    )
    sites.public.page("/attack", body.encode())
    sites.public.pages["/redirect"] = lambda handler: handler.reply(302, b"", {"Location": sites.url(host=PRIVATE)})
    data = sites.lab.scrape(
        sites.url("/attack"),
        formats=["markdown", "rawHtml", "screenshot"],
        onlyMainContent=False,
        actions=[{"type": "wait", "selector": "#done"}],
    )
    said = data["rawHtml"].partition('id="done">')[2].partition("<")[0].split("; ")
    assert sorted(said) == [
        f"{name} failed"
        for name in sorted(
            ["name", "literal", "redirected", "cors", "file", "localhost", "service", "socket", "worker"]
        )
    ]
    sites.untouched()


def test_a_page_that_its_scripts_fill_cannot_reach_private_addresses(sites: BrowserSites) -> None:
    inside = sites.url(host="inside.example").rstrip("/")
    attack = ATTACK.format(
        inside=inside, literal=inside, port=sites.private.server_port, private=PRIVATE, udp=9, service=""
    )
    shell = f"<div id=root></div><script>document.write(decodeURIComponent('{quote(attack, safe='')}'))</script>"
    sites.public.page("/shell", shell.encode())
    sites.public.pages["/redirect"] = lambda handler: handler.reply(302, b"", {"Location": sites.url(host=PRIVATE)})
    sites.public.requests.clear()
    assert sites.lab.scrape(sites.url("/shell"), maxAge=0)["metadata"]["rendered"]
    assert "/redirect" in [path for path, _ in sites.public.requests]
    sites.untouched()


@pytest.mark.parametrize("how", ["redirect", "script", "refresh", "action"])
def test_a_page_that_redirects_to_a_private_address_is_refused(sites: BrowserSites, how: str) -> None:
    inside = sites.url("/secret", host="inside.example")
    sites.public.pages["/redirect"] = lambda handler: handler.reply(302, b"", {"Location": inside})
    sites.public.page("/script", f"<p>x</p><script>location = '{inside}'</script>".encode())
    sites.public.page("/refresh", f"<meta http-equiv=refresh content='0;url={inside}'><p>x</p>".encode())
    sites.public.page("/action", f"<a href='{inside}'>in</a>".encode())
    actions = [{"type": "click", "selector": "a"}] if how == "action" else []
    for wait_ms in (300, 3_000, 10_000):  # on a busy machine the browser follows a refresh late
        formats = ["screenshot", "rawHtml"]
        reply = sites.lab.post(sites.url(f"/{how}"), formats=formats, actions=actions, waitFor=wait_ms, maxAge=0)
        if not reply.is_success:
            break
    assert (reply.status_code, reply.json()["code"]) == (403, "unsafe_domain_blocked"), reply.text
    assert "inside.example" in reply.json()["error"]
    sites.untouched()


def test_a_private_target_is_refused_without_the_browser(sites: BrowserSites) -> None:
    for url in (sites.url(host="inside.example"), sites.url(host=PRIVATE), "http://localhost/"):
        reply = sites.lab.post(url, formats=["screenshot"])
        assert (reply.status_code, reply.json()["code"]) == (403, "unsafe_domain_blocked"), reply.text
    for url in ("file:///etc/passwd", "chrome://version", "data:text/html,x"):
        assert sites.lab.post(url, formats=["screenshot"]).status_code == 400
    sites.untouched()


def test_dns_rebinding_does_not_reach_a_private_address(sites: BrowserSites) -> None:
    """The name of the page resolves to a private address once the page is loaded."""
    sites.answers["rebind.example"] = [PUBLIC, PRIVATE]
    sites.public.page(
        "/rebind",
        b"<main>x</main><script>Promise.allSettled([...Array(12)].map((_, n) => fetch('/secret?' + n)))"
        b".then(all => { const p = document.createElement('p'); p.id = p.textContent = 'done';"
        b" document.body.append(p) })</script>",
    )
    url = sites.url("/rebind", host="rebind.example")
    sites.lab.scrape(url, actions=[{"type": "wait", "selector": "#done"}], onlyMainContent=False)
    sites.untouched()


def test_a_script_of_the_request_cannot_read_local_files(sites: BrowserSites) -> None:
    sites.public.page(
        "/plain", b"<main><a href='file:///etc/passwd'>f</a><a id=v href='view-source:file:///etc/passwd'>v</a>"
    )
    script = "location = 'file:///etc/passwd'; open('file:///etc/passwd'); 1"
    data = sites.lab.scrape(
        sites.url("/plain"),
        formats=["rawHtml"],
        actions=[
            {"type": "executeJavascript", "script": script},
            {"type": "click", "selector": "a"},
            {"type": "click", "selector": "#v"},
            {"type": "scrape"},
        ],
    )
    assert "root:" not in str(data)
    assert data["metadata"]["url"] == sites.url("/plain")


def test_blocked_advertisements_are_not_requested(sites: BrowserSites) -> None:
    sites.answers["ads.doubleclick.net"] = [PUBLIC]
    sites.public.page("/advert", b"x")
    sites.public.page("/with-ads", f"<main>x</main><img src='{sites.url('/advert', 'ads.doubleclick.net')}'>".encode())

    def shown() -> int:
        return sum(1 for path, _ in sites.public.requests if path == "/advert")

    sites.lab.scrape(sites.url("/with-ads"), formats=["screenshot"])
    assert shown() == 0
    sites.lab.scrape(sites.url("/with-ads"), formats=["screenshot"], blockAds=False)
    assert shown() == 1


def test_the_egress_proxy_requires_its_password(sites: BrowserSites) -> None:
    """The egress proxy listens on loopback, which other users share: without its password it refuses."""
    held, arrived = threading.Event(), threading.Event()

    def page(handler: Any) -> None:
        arrived.set()
        held.wait(120)
        handler.reply(200, b"<main>x</main>", {})

    sites.public.pages["/held"] = page
    asking = threading.Thread(target=lambda: sites.lab.post(sites.url("/held"), formats=["screenshot"]))
    asking.start()
    try:
        assert arrived.wait(120)
        contexts = sites.lab.service._parts.web._browsers._contexts  # type: ignore[union-attr]
        (pooled,) = contexts._busy
        port = pooled.egress_proxy._server.sockets[0].getsockname()[1]
        before = len(sites.public.requests)
        for target in ("GET http://public.example/ HTTP/1.1", "CONNECT public.example:80 HTTP/1.1"):
            with socket.create_connection((PRIVATE, port), 60) as client:
                client.sendall(f"{target}\r\nHost: public.example\r\n\r\n".encode())
                assert client.recv(1000).startswith(b"HTTP/1.1 407")
        assert len(sites.public.requests) == before
    finally:
        held.set()
        asking.join(120)
