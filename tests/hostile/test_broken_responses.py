"""Responses broken below HTTP: truncated, reset, stalled, dripping, endless, or decompression bombs."""

from __future__ import annotations

import gzip
import zlib

import pytest
from catalogue import proves
from landing_commands import PEAKS, Lake
from scripted_job import JOB, Job, pages
from scripted_service import Play, ScriptedService, close, drip, encoded, flood, head, reply, reset, stall

CHUNK = encoded({"success": True, "status": "completed", "total": 2, "completed": 2, "next": None, "data": pages(2)})
OK = {"content_type": "application/json"}
WHOLE = head(length=len(CHUNK), **OK) + CHUNK
CHUNKED = head(transfer_encoding="chunked", **OK) + b"%x\r\n%s\r\n" % (len(CHUNK), CHUNK)

CUT = {
    "reset before the head": reset(),
    "reset in the head": reset(WHOLE[:20]),
    "reset in the body": reset(WHOLE[:-50]),
    "no last chunk": close(CHUNKED),
    "half a chunk": close(CHUNKED[:-60]),
    "two lengths": close(head(length=len(CHUNK), **OK)[:-2] + b"content-length: 7\r\n\r\n" + CHUNK),
    "no HTTP": close(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "bytes": close(bytes(range(256)) * 40),
    "a head without end": close(b"HTTP/1.1 200 OK\r\n" + b"x-filler: x\r\n" * 20_000),
    "gzip that is cut off": reply(gzip.compress(CHUNK)[:-20], content_encoding="gzip"),
    "gzip with a wrong checksum": reply(gzip.compress(CHUNK)[:-8] + b"\0" * 8, content_encoding="gzip"),
    "gzip that is none": reply(CHUNK, content_encoding="gzip"),
}  # fmt: skip


@proves(
    "H8",
    at="src/weblake/jobs/retry.py",
    line="(operation.repeatable or not reply.sent)",
    becomes="not reply.sent",
    case="reset in the body",
)
@pytest.mark.parametrize("play", CUT.values(), ids=CUT)
def test_h8_a_truncated_response_is_requested_again(service: ScriptedService, lake: Lake, play: Play) -> None:
    job = Job(service, pages(4), cut=2)
    for skip in job.chunks:
        service.first(job.at(skip), play)
    lake.land(job=JOB).landed(pages(4))


def bomb(wrap: int, megabytes: int = 800, start: bytes = CHUNK[:-1], end: bytes = b"") -> bytes:
    """Return a body whose decompressed spaces are many times larger than the limit of one response."""
    packer = zlib.compressobj(9, wbits=wrap)
    before = packer.compress(start) + packer.flush(zlib.Z_FULL_FLUSH)
    # A block without back references may be repeated in the stream any number of times.
    block = packer.compress(b" " * (20 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return before + block * (megabytes // 20) + packer.compress(end) + packer.flush()


GZIP, ZLIB, RAW = 31, 15, -15


@pytest.fixture(scope="module")
def bombs() -> dict[str, Play]:
    packed, member = bomb(GZIP), gzip.compress(b" " * (1 << 22))
    assert len(packed) < 2_000_000
    return {
        "gzip": reply(packed, content_encoding="gzip"),
        "gzip before the head": reply(bomb(GZIP, start=b"{"), content_encoding="gzip"),
        "zlib": reply(bomb(ZLIB), content_encoding="deflate"),
        "raw deflate": reply(bomb(RAW), content_encoding="deflate"),
        "nested": reply(gzip.compress(packed), content_encoding="gzip, gzip"),
        "br": reply(packed, content_encoding="br"),
        "zstd": reply(packed, content_encoding="zstd"),
        "capitals": reply(packed, content_encoding="GZIP"),
        "many members": reply(member * 200, content_encoding="gzip"),
    }


BOMBS = ["gzip", "gzip before the head", "zlib", "raw deflate", "nested", "br", "zstd", "capitals", "many members"]


@pytest.mark.system
@proves(
    "H10",
    at="src/weblake/http/bodies.py",
    line='raise BodyRefused(f"the body came with Content-Encoding',
    becomes='return None  # (f"the body came with Content-Encoding',
    case="nested",
)
@pytest.mark.parametrize("name", BOMBS)
def test_h10_a_decompression_bomb_is_refused_during_decompression(
    service: ScriptedService, lake: Lake, bombs: dict[str, Play], name: str
) -> None:
    job = Job(service, pages(4), cut=2)
    job.always(2, bombs[name])
    lake.land(job=JOB, timeout=60, process=name == "gzip").expect_error("MalformedReply")
    assert len(service.requests_for(job.at(2))) == 1
    if name == "gzip":  # the command in a separate process
        assert PEAKS[-1] < 1_000_000


SLOW = {
    "nothing": stall(),
    "half a head": stall(WHOLE[:20]),
    "half a body": stall(WHOLE[:-20]),
    "a body byte by byte": drip(head(length=10_000_000, **OK) + CHUNK),
    "chunks byte by byte": drip(head(transfer_encoding="chunked", **OK) + b"1\r\n \r\n" * 1_000_000),
    "gzip byte by byte": drip(head(content_encoding="gzip", length=10_000_000) + gzip.compress(CHUNK)),
    "a head byte by byte": drip(b"HTTP/1.1 200 OK\r\nx-filler: " + b"x" * 1_000_000),
    "continue without end": flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "early hints without end": flood(b"", b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"),
}


@pytest.mark.parametrize("play", SLOW.values(), ids=SLOW)
def test_h11_a_slow_service_ends_at_the_timeout(service: ScriptedService, lake: Lake, play: Play) -> None:
    job = Job(service, pages(4), cut=2)
    job.always(2, play)
    lake.land(job=JOB, timeout=0.3).expect_error("DeadlineExceeded", "time limit")


def test_h11_a_slow_error_list_ends_at_the_timeout(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(2))
    service.on(f"{job.read}/errors", drip(head(length=10_000) + b'{"errors": ['))
    lake.land(job=JOB, timeout=1).expect_error("DeadlineExceeded", "was being read")
    assert len(service.requests_for(f"{job.read}/errors")) == 1
