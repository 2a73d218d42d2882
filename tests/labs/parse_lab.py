"""Common parts of the tests of POST /v2/parse: documents, and a service that converts them."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from weblake_service.config import ServiceConfig
from weblake_service.server import LocalService

DOCUMENTS = Path(__file__).parent.parent / "service" / "documents"
KEY = "test-key"


class ParseLab:
    """A service, and the one call that these tests make."""

    def __init__(self, service: LocalService) -> None:
        self.service = service
        self.http = httpx.Client(
            base_url=service.url, headers={"Authorization": f"Bearer {KEY}"}, timeout=60, trust_env=False, verify=False
        )

    def post(self, name: str, body: bytes | None = None, *, key: str = "", **options: object) -> httpx.Response:
        content = (DOCUMENTS / name).read_bytes() if body is None else body
        return self.http.post(
            "/v2/parse",
            files={"file": (name, content)},
            data={"options": json.dumps(options)} if options else None,
            headers={"x-idempotency-key": key} if key else None,
        )

    def parse(self, name: str, body: bytes | None = None, **options: object) -> dict[str, Any]:
        reply = self.post(name, body, **options)
        assert reply.status_code == 200, reply.text
        return dict(reply.json()["data"])

    def refusal(self, name: str, body: bytes | None = None, **options: object) -> tuple[int, str, str]:
        reply = self.post(name, body, **options)
        told = reply.json()
        assert told["success"] is False
        return reply.status_code, told.get("code", ""), told["error"]

    def credits_used(self) -> int:
        left: dict[str, Any] = self.http.get("/v2/team/credit-usage").json()["data"]
        return int(left["planCredits"] - left["remainingCredits"])


def serve(**limits: Any) -> Iterator[ParseLab]:
    with LocalService(keys=KEY, config=ServiceConfig(**limits)) as service:
        bench = ParseLab(service)
        yield bench
        bench.http.close()


@pytest.fixture(scope="module")
def parsing() -> Iterator[ParseLab]:
    """Yield one service for all tests of a file, so that its converters are warm."""
    yield from serve()


def pdf_of(*contents: bytes, resources: bytes = b"<< /Font << /F1 3 0 R >> >>", more: bytes = b"") -> bytes:
    """Return a PDF with one page for each content stream, written by hand."""
    kids = b" ".join(b"%d 0 R" % (5 + 2 * at) for at in range(len(contents)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, len(contents)),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        more or b"null",
    ]
    for at, content in enumerate(contents):
        objects += [
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R /Resources %s >>"
            % (6 + 2 * at, resources),
            b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        ]
    out, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    head = b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    trailer = b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, len(out))
    return out + head + table + trailer


def text_page(text: str) -> bytes:
    return b"BT /F1 18 Tf 72 700 Td (%s) Tj ET" % text.encode("ascii")


def scanned_pdf() -> bytes:
    """Return a PDF with a page that has a picture and no text, between two with text."""
    pixels = zlib.compress(bytes(range(256)) * 16)
    image = (
        b"<< /Type /XObject /Subtype /Image /Width 64 /Height 64 /ColorSpace /DeviceGray /BitsPerComponent 8"
        b" /Filter /FlateDecode /Length %d >>\nstream\n%s\nendstream" % (len(pixels), pixels)
    )
    return pdf_of(
        text_page("First page of the log"),
        b"q 500 0 0 700 50 50 cm /Im1 Do Q",
        text_page("Third page of the log"),
        resources=b"<< /Font << /F1 3 0 R >> /XObject << /Im1 4 0 R >> >>",
        more=image,
    )


def rezipped(name: str, **parts: bytes) -> bytes:
    """Return a committed office file with some of its parts replaced; `__` in a name stands for `/`."""
    replaced = {path.replace("__", "/") + ".xml": content for path, content in parts.items()}
    out = io.BytesIO()
    with zipfile.ZipFile(DOCUMENTS / name) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for part in old.namelist():
            new.writestr(part, replaced.get(part, old.read(part)), compresslevel=1)
    return out.getvalue()


def wide_sheet() -> bytes:
    """Return a small file with so many cells that its conversion takes seconds."""
    rows = "".join(
        f'<row r="{row}">' + "".join(f'<c r="{chr(65 + at)}{row}"><v>{row}</v></c>' for at in range(16)) + "</row>"
        for row in range(1, 40_001)
    )
    head = (
        '<?xml version="1.0"?><worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
    )
    return bytes(rezipped("gauges.xlsx", xl__worksheets__sheet1=(head + rows + "</sheetData></worksheet>").encode()))
