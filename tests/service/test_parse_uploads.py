"""The form of an upload: parts in any order, malformed parts are reported, everything in it is bounded."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import httpx
import parse_lab
import pytest

parsing = parse_lab.parsing

BOUNDARY = "edge-of-the-sea"
PAGE = b"<h1>Hello</h1>"
FILE = ('form-data; name="file"; filename="hello.html"', PAGE)
OPTIONS = ('form-data; name="options"', b'{"formats": ["html"]}')


def form(*parts: tuple[str, bytes], end: bytes = b"--\r\n") -> bytes:
    body = b"".join(
        b"--%s\r\nContent-Disposition: %s\r\n\r\n%s\r\n" % (BOUNDARY.encode(), head.encode(), content)
        for head, content in parts
    )
    return body + b"--" + BOUNDARY.encode() + end


def send(parsing: Any, body: bytes, content_type: str = f"multipart/form-data; boundary={BOUNDARY}") -> httpx.Response:
    reply: httpx.Response = parsing.http.post("/v2/parse", content=body, headers={"content-type": content_type})
    return reply


@pytest.mark.parametrize("parts", [[FILE, OPTIONS], [OPTIONS, FILE]])
def test_parts_may_come_in_any_order(parsing: Any, parts: list[tuple[str, bytes]]) -> None:
    reply = send(parsing, form(*parts))
    assert reply.status_code == 200, reply.text
    assert "<h1>Hello</h1>" in reply.json()["data"]["html"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (form(OPTIONS), "no file"),
        (form(), "no file"),
        (form(FILE, FILE), "two parts `file`"),
        (form(FILE, OPTIONS, OPTIONS), "two fields `options`"),
        (form(('form-data; name="file"', PAGE)), "no file name"),
        (form(('form-data; name="file"; filename=""', PAGE)), "no file name"),
        (form(('form-data; name="file"; filename="../"', PAGE)), "..' is not a kind of file"),
        (form(FILE, ('form-data; name="options"', b"{formats: 1}")), "not valid JSON"),
        (form(FILE, ('form-data; name="options"', b'["html"]')), "JSON object"),
        (form(FILE, ('form-data; name="options"', b"[" * 100_000)), "not valid JSON"),
        (form(FILE, end=b""), "breaks off"),
        (form(FILE)[:-40], "breaks off"),
        (b"", "breaks off"),
        (b"no form at all", "cannot be read"),
        (form(('form-data; name="more"', b"x"), FILE), "'more' is not a part of this form"),
        (form(FILE).replace(b"\r\n\r\n", b"\r\n" + b"X-A: b\r\n" * 40 + b"\r\n", 1), "cannot be read"),
        (form(FILE).replace(b"\r\n\r\n", b"\r\nX-A: " + b"b" * 9000 + b"\r\n\r\n", 1), "cannot be read"),
    ],
    ids=lambda value: None if isinstance(value, bytes) else value.replace(" ", "_"),
)
def test_an_invalid_form_is_refused_with_the_reason(parsing: Any, body: bytes, said: str) -> None:
    before = parsing.credits_used()
    reply = send(parsing, body)
    told = reply.json()
    assert (reply.status_code, told["success"]) == (400, False)
    assert said in told["error"]
    assert told["details"]
    assert parsing.credits_used() == before


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "",
        "multipart/form-data",
        "multipart/mixed; boundary=x",
        f"multipart/form-data; boundary={'x' * 500}",
    ],
)
def test_bodies_other_than_forms_are_refused(parsing: Any, content_type: str) -> None:
    reply = send(parsing, form(FILE), content_type)
    assert (reply.status_code, reply.json()["success"]) == (400, False)


def test_form_fields_are_limited_in_size(parsing: Any) -> None:
    reply = send(parsing, form(('form-data; name="options"', b" " * (2 << 20)), FILE))
    assert (reply.status_code, reply.json()["success"]) == (413, False)


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ('form-data; name="file"; filename="Größe und Gewicht.html"', "Größe und Gewicht.html"),
        ("form-data; name=\"file\"; filename*=UTF-8''Gr%C3%B6%C3%9Fe.html", "Größe.html"),
        ('form-data; name="file"; filename="C:\\docs\\a.html"', "a.html"),
        ('form-data; name="file"; filename="/etc/../a b.html"', "a b.html"),
        ("form-data; name=file; filename=plain.html", "plain.html"),
    ],
)
def test_s6_file_names_lose_their_path_and_keep_any_letters(parsing: Any, head: str, name: str) -> None:
    reply = send(parsing, form((head, PAGE)))
    assert reply.status_code == 200, reply.text
    metadata = reply.json()["data"]["metadata"]
    assert metadata["sourceFile"] == name
    assert metadata["sourceURL"].startswith("file:///")
    assert metadata["sourceURL"].isascii()


@pytest.mark.system
def test_a_file_of_exactly_the_limit_is_read(parsing: Any) -> None:
    def padded(length: int) -> bytes:
        padding = b"<< /Length %08d >>\nstream\n%s\nendstream" % (length, bytes(length))
        return bytes(parse_lab.pdf_of(parse_lab.text_page("Hello"), more=padding))

    body = padded(52_428_700 - len(padded(0)))
    more = 52_428_800 - len(body)
    body = body[:-1] + b" " * more + b"\n"
    assert len(body) == 52_428_800
    reply = parsing.post("full.pdf", body, timeout=60_000)
    assert (reply.status_code, "Hello" in reply.json()["data"]["markdown"]) == (200, True)
    assert parsing.post("over.pdf", body + b"\n").status_code == 413


def test_an_upload_without_a_content_length_is_limited(parsing: Any) -> None:
    def chunks() -> Any:
        yield form(FILE)[:100]
        for _ in range(60):
            yield bytes(1 << 20)

    reply = parsing.http.post(
        "/v2/parse", content=chunks(), headers={"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
    )
    assert reply.status_code == 413


def test_a_disconnected_client_leaves_no_file(parsing: Any) -> None:
    before = parsing.service.counts()
    url = httpx.URL(parsing.service.url)
    with socket.create_connection((url.host, url.port or 80)) as connection:
        connection.sendall(
            b"POST /v2/parse HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer test-key\r\n"
            b"Content-Type: multipart/form-data; boundary=edge-of-the-sea\r\nContent-Length: 100000\r\n\r\n"
            + form(FILE)[:120]
        )
    assert parsing.parse("after.html", PAGE)["markdown"] == "# Hello"
    assert parsing.service.counts()["parse_started"] == before.get("parse_started", 0) + 1


def test_an_upload_with_expect_100_continue_is_refused_before_its_body(parsing: Any) -> None:
    url = httpx.URL(parsing.service.url)
    with socket.create_connection((url.host, url.port or 80), timeout=20) as connection:
        connection.sendall(
            b"POST /v2/parse HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer test-key\r\n"
            b"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 99000000\r\nExpect: 100-continue\r\n\r\n"
        )
        begun = time.monotonic()
        status = connection.recv(4096).split(b"\r\n", 1)[0]
        assert b"413" in status
        assert time.monotonic() - begun < 8


def test_options_may_be_empty(parsing: Any) -> None:
    for content in (b"", b"  ", json.dumps({}).encode()):
        assert send(parsing, form(FILE, ('form-data; name="options"', content))).status_code == 200
