"""Limits of bodies: compression, bombs, large and slow pages."""

from __future__ import annotations

import asyncio
import gzip
import time
import zlib
from collections.abc import Callable
from typing import Any

import loopback_site as loopback
import pytest
from catalogue import proves
from converted_pages import scrape
from hypothesis import given
from hypothesis import strategies as st

from weblake_service.web.decompression import BodyDecoder
from weblake_service.web.fetch import Fetcher

Site, Handler, site = loopback.Site, loopback.Handler, loopback.site
fetching, get, failure = loopback.fetching, loopback.get, loopback.failure


def _raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("x-gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", _raw_deflate),
        ("gzip", lambda data: gzip.compress(data[:100_000]) + gzip.compress(data[100_000:]) + b"\0" * 20),
        ("identity", bytes),
    ],
)
def test_a_compressed_body_is_decompressed(site: Site, encoding: str, pack: Callable[[bytes], bytes]) -> None:
    data = b"<p>" + b"text " * 700_000
    assert get(site.page("/z", pack(data), Content_Encoding=encoding)).body == data


@proves("S9", at="src/weblake_service/web/decompression.py", line="if len(piece) > room:", becomes="if False:")
def test_s9_a_decompression_bomb_is_refused_without_using_memory(site: Site) -> None:
    url = site.page("/bomb", gzip.compress(b"0" * (64 << 20), 9), Content_Encoding="gzip")
    problem = failure(url, fetcher_options={"max_body": 4 << 20})
    assert problem.code == "SCRAPE_SITE_ERROR"
    assert "4 MiB" in problem.message


def test_a_bomb_is_truncated_if_only_its_beginning_is_needed(site: Site) -> None:
    url = site.page("/bomb", gzip.compress(b"0" * (50 << 20), 9), Content_Encoding="gzip")
    assert get(url, max_body=1000, cut=True).body == b"0" * 1000


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(b"x" * 5000, mtime=0)[:-9]),
        ("gzip", bytes(range(256))),
        ("gzip", b"\x1f\x8b"),
        ("gzip, gzip", gzip.compress(gzip.compress(b"x" * 5000, mtime=0)[:-9], mtime=0)),
        ("br", b"\x1b\xff\x03\x00\x00\x00\x00\x10"),
        ("aes128gcm", bytes(range(256))),
        (", ".join(["gzip"] * 1000), b"x"),
    ],
)
def test_corrupt_or_unknown_compression_is_a_failure(site: Site, coding: str, body: bytes) -> None:
    assert failure(site.page("/z", body, Content_Encoding=coding)).code == "SCRAPE_SITE_ERROR"


PDF = b"%PDF-1.4\n\x00\x01"


@pytest.mark.parametrize("content_type", ["text/html", "application/json", "text/plain; charset=utf-8", ""])
@pytest.mark.parametrize(
    "coding", ["utf-8", "none", "aws-chunked", "UTF8", "8bit, binary", "gzip", "x-gzip", "deflate", "br"]
)
def test_a_coding_that_the_body_does_not_have_is_ignored(site: Site, coding: str, content_type: str) -> None:
    for data in (b"<p>text of the page</p>", f"{'text ' * 20}, \u00e9 and a longer text".encode(), b"x"):
        if len(data) > 1 or coding != "deflate":
            assert get(site.page("/z", data, Content_Encoding=coding, content_type=content_type)).body == data
    assert get(site.page("/z", PDF, Content_Encoding="utf-8", content_type="application/pdf")).body == PDF


@pytest.mark.system
@pytest.mark.parametrize(
    ("coding", "packs"),
    [
        ("gzip, gzip", [gzip.compress, gzip.compress]),
        ("deflate, gzip", [zlib.compress, gzip.compress]),
        ("gzip, utf-8", [gzip.compress]),
        ("gzip, gzip", [gzip.compress]),
        ("deflate", [gzip.compress]),
        ("gzip", [zlib.compress]),
        ("", [gzip.compress]),
        ("gzip", [gzip.compress, gzip.compress]),
    ],
)
def test_codings_are_undone_in_order_as_far_as_the_body_has_them(
    site: Site, coding: str, packs: list[Callable[[bytes], bytes]]
) -> None:
    body = data = b"<p>" + b"text " * 700_000
    for pack in packs:
        body = pack(body)
    assert get(site.page("/z", body, Content_Encoding=coding)).body == data
    bomb = gzip.compress(gzip.compress(b"0" * (64 << 20), 9))
    url = site.page("/bomb", bomb, Content_Encoding="gzip, gzip")
    assert "4 MiB" in failure(url, fetcher_options={"max_body": 4 << 20}).message


def test_a_body_over_its_limit_is_refused(site: Site) -> None:
    assert failure(site.page("/big", b"x" * 5000), max_body=4999).code == "SCRAPE_SITE_ERROR"
    assert len(get(site.page("/big", b"x" * 5000), max_body=5000).body) == 5000


@given(st.binary(max_size=3000), st.lists(st.integers(1, 700), max_size=8), st.sampled_from(["gzip", "deflate", ""]))
def test_a_body_is_the_same_however_it_arrives(data: bytes, cuts: list[int], encoding: str) -> None:
    packed = {"gzip": gzip.compress, "deflate": zlib.compress, "": bytes}[encoding](data)
    body = BodyDecoder(encoding, 1 << 20, "http://a.b/")
    for cut in cuts:
        body.feed(packed[:cut])
        packed = packed[cut:]
    body.feed(packed)
    assert body.finish() == data


@pytest.mark.system
def test_a_large_page_does_not_block_the_event_loop(site: Site) -> None:
    row = "<tr><td>cell <a href='/x'>link</a></td><td>more text in here</td></tr>"
    url = site.page("/large", f"<table>{row * (2_000_000 // len(row))}</table>".encode())

    async def work(fetcher: Fetcher) -> tuple[float, float, Any]:
        worst, started = 0.0, time.monotonic()
        task = asyncio.create_task(scrape(url, {"formats": ["markdown", "links"]}, fetcher=fetcher))
        while not task.done():
            began = time.monotonic()
            await asyncio.sleep(0.001)
            worst = max(worst, time.monotonic() - began)
        return worst, time.monotonic() - started, await task

    worst, total, page = fetching(work)
    for _ in range(2):  # a machine that stopped does not stop each time
        if worst >= total * 0.7:
            worst, total, page = fetching(work)
    assert page.document["markdown"].count("more text in here") == 2_000_000 // len(row)
    assert page.document["links"] == [site.url("/x")]
    assert worst < total * 0.7
