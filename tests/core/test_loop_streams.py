"""Connections on an event loop: every byte in order, bounded memory, and an end for whoever waits."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path

import httpcore
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from stream_server import Serve, stream_server

from weblake import aio, compat
from weblake.loop_streams import MOST_HELD, LoopBackend, LoopStream

Contexts = tuple[ssl.SSLContext, ssl.SSLContext]


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    """Of a server whose certificate names 127.0.0.1, and of a client that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now, day = datetime.datetime.now(datetime.timezone.utc), datetime.timedelta(days=1)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - day, now + day)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = builder.add_extension(address, critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    pem = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file: Path = tmp_path_factory.mktemp("tls") / "both.pem"
    file.write_bytes(pem + key.private_bytes(*form))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    return server, ssl.create_default_context(cadata=pem.decode())


@asynccontextmanager
async def served(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    async def aborted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.transport.abort()

    async with stream_server(aborted, tls=tls) as port:
        yield port


async def connected(port: int, tls: ssl.SSLContext | None = None) -> httpcore.AsyncNetworkStream:
    stream = await LoopBackend().connect_tcp("127.0.0.1", port, timeout=5)
    return stream if tls is None else await stream.start_tls(tls, "127.0.0.1", timeout=5)


async def all_of(stream: httpcore.AsyncNetworkStream, most: int = 1 << 16) -> bytes:
    found = bytearray()
    while part := await stream.read(most):
        assert len(part) <= most
        found += part
    return bytes(found)


async def news_of(stream: httpcore.AsyncNetworkStream) -> None:
    """Asks as httpcore does before it uses a connection again."""
    while not stream.get_extra_info("is_readable"):  # noqa: ASYNC110 - there is nothing else to wait for
        await asyncio.sleep(0.01)


def told(story: Coroutine[object, object, None]) -> None:
    async def within() -> None:
        async with aio.timeout(30):
            await story

    asyncio.run(within())


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while part := await reader.read(1 << 16):
        writer.write(part)
        await writer.drain()


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_megabytes_go_there_and_back_in_order(contexts: Contexts, secure: bool) -> None:
    data = b"".join(b"%08d" % n for n in range(1_000_000))

    async def story() -> None:
        async with served(echo, contexts[0] if secure else None) as port:
            stream = await connected(port, contexts[1] if secure else None)
            assert (stream.get_extra_info("ssl_object") is not None) == secure
            assert stream.get_extra_info("server_addr")[:2] == ("127.0.0.1", port)
            assert stream.get_extra_info("unknown") is None
            writing = asyncio.create_task(stream.write(data))
            found = bytearray()
            while len(found) < len(data):
                found += await stream.read(50_000)
            await writing
            assert found == data
            await stream.aclose()

    told(story())


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_a_peer_that_sends_without_end_is_left_to_wait(contexts: Contexts, secure: bool) -> None:
    sent = 0

    async def pours(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        while sent < 64 << 20:
            writer.write(b"x" * 100_000)
            sent += 100_000
            await writer.drain()
        writer.close()
        await writer.wait_closed()  # the last of it is on its way

    async def story() -> None:
        async with served(pours, contexts[0] if secure else None) as port:
            stream = await connected(port, contexts[1] if secure else None)
            assert isinstance(stream, LoopStream)
            before = -1
            while before != sent or not stream._paused:  # until the kernel's buffers are full, too
                before = sent
                await asyncio.sleep(0.2)
            assert MOST_HELD <= stream._held < 4 * MOST_HELD
            assert sent < 64 << 20
            assert stream.get_extra_info("is_readable")
            assert len(await all_of(stream)) == sent, "and goes on as soon as somebody reads"
            await stream.aclose()

    told(story())


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_a_writer_whose_peer_takes_nothing_waits_and_can_be_stopped(contexts: Contexts, secure: bool) -> None:
    async def story() -> None:
        async with served(silent, contexts[0] if secure else None) as port:
            stream = await connected(port, contexts[1] if secure else None)
            with pytest.raises(TimeoutError):
                async with aio.timeout(0.3):
                    await stream.write(b"x" * (32 << 20))
            await stream.aclose()
            with pytest.raises(httpcore.WriteError):
                await stream.write(b"x")

    told(story())


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_an_idle_connection_that_the_peer_closes_is_known_to_be_at_its_end(contexts: Contexts, secure: bool) -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)

    async def story() -> None:
        async with served(once, contexts[0] if secure else None) as port:
            stream = await connected(port, contexts[1] if secure else None)
            await asyncio.sleep(0.05)
            assert not stream.get_extra_info("is_readable"), "what TLS says to itself is no news"
            await stream.write(b"x")
            await news_of(stream)
            with contextlib.suppress(httpcore.ReadError):  # a reset, or a quiet end
                assert await stream.read(10) == b""
            await stream.aclose()

    told(story())


def test_what_came_before_a_reset_is_read_and_then_the_reset() -> None:
    async def resets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"begun")
        await reader.read(1)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def story() -> None:
        async with served(resets) as port:
            stream = await connected(port)
            assert await stream.read(3) == b"beg"
            await stream.write(b"x")
            assert await stream.read(99) == b"un"
            with pytest.raises(httpcore.ReadError):
                await stream.read(99)
            await stream.aclose()

    told(story())


def test_a_reader_is_woken_when_the_connection_is_closed_and_can_be_cancelled() -> None:
    async def story() -> None:
        async with served(silent) as port:
            stream = await connected(port)
            reading = asyncio.create_task(stream.read(10))
            await asyncio.sleep(0.01)
            await stream.aclose()
            assert await reading == b""
            other = await connected(port)
            reading = asyncio.create_task(other.read(10))
            await asyncio.sleep(0.01)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            await other.aclose()

    told(story())


def test_nobody_there_and_nobody_in_time() -> None:
    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with pytest.raises(httpcore.ConnectError):
            await connected(port)
        with pytest.raises(httpcore.ConnectError):
            await LoopBackend().connect_tcp("no-such-host.invalid", 80, timeout=10)
        with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.socket() as one, socket.socket() as two:
            for waiting in (one, two):
                waiting.setblocking(False)
                waiting.connect_ex(full.getsockname())
            with pytest.raises(httpcore.ConnectTimeout):
                await LoopBackend().connect_tcp(*full.getsockname(), timeout=0.2)

    told(story())


@pytest.mark.parametrize("trouble", ["another name", "no TLS", "silence", "closed before"])
def test_a_handshake_that_fails_leaves_nothing_open(contexts: Contexts, trouble: str) -> None:
    closed = asyncio.Event()

    async def speaks_plainly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if trouble == "closed before":
            return
        await reader.read(1 << 16)
        if trouble == "no TLS":
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with contextlib.suppress(OSError):
            while await reader.read(1 << 16):
                pass
        closed.set()

    async def story() -> None:
        async with served(
            echo if trouble == "another name" else speaks_plainly, contexts[0] if trouble == "another name" else None
        ) as port:
            plain = await LoopBackend().connect_tcp("127.0.0.1", port, timeout=5)
            if trouble == "closed before":
                await news_of(plain)
                await asyncio.sleep(0.01)
            expected = httpcore.ConnectTimeout if trouble == "silence" else httpcore.ConnectError
            with pytest.raises(expected) as caught:
                await plain.start_tls(
                    contexts[1], "other.test" if trouble == "another name" else "127.0.0.1", timeout=0.3
                )
            if trouble == "another name":
                assert isinstance(caught.value.__cause__, ssl.SSLCertVerificationError)
            if trouble in ("no TLS", "silence"):
                await closed.wait()
            with pytest.raises(httpcore.WriteError):
                await plain.write(b"x")

    told(story())


def test_a_handshake_that_is_cancelled_leaves_nothing_open(contexts: Contexts) -> None:
    closed = asyncio.Event()

    async def listens(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while await reader.read(1 << 16):
                pass
        closed.set()

    async def story() -> None:
        async with served(listens) as port:
            plain = await LoopBackend().connect_tcp("127.0.0.1", port, timeout=5)
            shaking = asyncio.create_task(plain.start_tls(contexts[1], "127.0.0.1", timeout=20))
            await asyncio.sleep(0.05)
            shaking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await shaking
            await closed.wait()

    told(story())


@pytest.mark.smoke
def test_tls_inside_of_tls(contexts: Contexts) -> None:
    """As through a proxy that is spoken to over TLS."""

    async def twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop, outer = asyncio.get_running_loop(), writer.transport
        compat.allow_tls_in_tls(outer)
        protocol = outer.get_protocol()
        inner = await loop.start_tls(outer, protocol, contexts[0], server_side=True)
        await echo(reader, asyncio.StreamWriter(inner, protocol, reader, loop))

    async def story() -> None:
        async with served(twice, contexts[0]) as port:
            outer = await connected(port, contexts[1])
            inner = await outer.start_tls(contexts[1], "127.0.0.1", timeout=5)
            await inner.write(b"through both")
            assert await inner.read(99) == b"through both"
            await inner.aclose()

    told(story())
