"""Tests of the webhook receiver of the API server: its FastAPI app over sockets, with Airflow's own database."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import select
import socket
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from catalogue import proves
from polling import until
from webhook_lab import JOB, Sender, completed, serving

from weblake import webhooks
from weblake.errors import InvalidOption

if TYPE_CHECKING:
    from airflow_provider_weblake.webhooks.events import JobEnd

SIGNATURE = webhooks.SIGNATURE_HEADER


class Bench:
    """Two API servers, as two workers are: each has an app, caches and threads of its own, and one database."""

    def __init__(self) -> None:
        self.urls: list[str] = []
        self.known: dict[str, Any] = {}
        self.look_ups: list[str] = []
        self.records: list[str] = []
        #: Called instead of the database, if set.
        self.instead: Callable[[], bool] | None = None

    def read(self, conn_id: str) -> Any:
        from airflow_provider_weblake.webhooks.signing import Signing

        self.look_ups.append(conn_id)
        found = self.known.get(conn_id)
        return found and Signing(found)

    def record(self, conn_id: str, end: JobEnd) -> bool:
        from airflow_provider_weblake.webhooks.events import record

        self.records.append(conn_id)
        return self.instead() if self.instead else record(conn_id, end)

    def app(self, burst: float = 1000.0) -> Any:
        from fastapi import FastAPI

        from airflow_provider_weblake.webhooks.app import Receiver, receiver_app
        from airflow_provider_weblake.webhooks.signing import SigningSecrets

        root = FastAPI()
        root.mount("/weblake", receiver_app(Receiver(SigningSecrets(self.read, burst=burst), self.record)))
        return root

    def sender(self, *, asset: bool = True) -> Sender:
        """A connection of its own, and the asset of its batch scrapes as after the parse of a DAG."""
        sender = Sender(self.urls[0], f"service-{uuid.uuid4().hex}")
        self.known[sender.conn_id] = sender.secret
        if asset:
            declare(sender.conn_id)
        return sender


def declare(conn_id: str) -> None:
    """Store the asset of a connection's batch scrapes as the parse of a DAG does."""
    from airflow.models.asset import AssetActive, AssetModel
    from airflow.utils.session import create_session

    from airflow_provider_weblake.assets.jobs import jobs_asset_uri

    uri = jobs_asset_uri("batch_scrape", conn_id)
    with create_session(scoped=False) as session:
        session.add(AssetModel(name=f"batches of {conn_id}", uri=uri))
        session.flush()
        session.add(AssetActive(name=f"batches of {conn_id}", uri=uri))


def extras(sender: Sender) -> list[dict[str, Any]]:
    """The extras of the events of a connection's batch scrapes."""
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session(scoped=False) as session:
        asset = select(AssetModel.id).where(AssetModel.uri == f"x-weblake://jobs/{sender.conn_id}/batch_scrape")
        return list(session.scalars(select(AssetEvent.extra).where(AssetEvent.asset_id == session.scalar(asset))))


@pytest.fixture(scope="module")
def two_servers(airflow_db: None) -> Iterator[Bench]:
    bench = Bench()
    with serving(bench.app()) as first, serving(bench.app()) as second:
        bench.urls = [first, second]
        yield bench


@pytest.fixture
def bench(two_servers: Bench) -> Iterator[Bench]:
    yield two_servers
    two_servers.instead = None
    two_servers.look_ups.clear()
    two_servers.records.clear()


def test_a_signed_end_of_a_job_is_one_event(bench: Bench) -> None:
    sender = bench.sender()
    event = completed(JOB.upper(), webhookId="d-1", metadata={"note": "private"}, data=[{"markdown": "private"}])
    assert sender.deliver(event) == (200, {"outcome": "accepted"})
    assert sender.deliver({**completed(), "type": "batch_scrape.failed", "success": False})[1] == {
        "outcome": "accepted"
    }
    first = {"kind": "batch_scrape", "job_id": JOB}
    assert extras(sender) == [
        {**first, "status": "completed", "event": "batch_scrape.completed", "success": True, "webhook_id": "d-1"},
        {**first, "status": "failed", "event": "batch_scrape.failed", "success": False, "webhook_id": None},
    ]


@proves(
    "S5",
    at="airflow_provider/src/airflow_provider_weblake/webhooks/events.py",
    line='if any((extra.get("event"), extra.get("job_id")) == (end.type, end.job_id) for extra in extras):',
    becomes="if False:",
)
def test_s5_a_repeated_webhook_makes_no_second_event_at_any_api_server(bench: Bench) -> None:
    """Also under another delivery id, by another worker, and after a restart, which is a server that remembers none."""
    sender = bench.sender()
    assert sender.deliver(completed(webhookId="one"))[1] == {"outcome": "accepted"}
    assert sender.deliver(completed(webhookId="one"))[1] == {"outcome": "repeated"}
    assert bench.records == [sender.conn_id], "a repeated delivery does not reach the database"
    assert sender.deliver(completed(webhookId="two"))[1] == {"outcome": "repeated"}
    sender.url = bench.urls[1]
    assert sender.deliver(completed(webhookId="one")) == (200, {"outcome": "repeated"})
    assert len(extras(sender)) == 1


@proves(
    "S5",
    at="airflow_provider/src/airflow_provider_weblake/webhooks/events.py",
    line="session.execute(lock.execution_options(synchronize_session=False))",
    becomes="pass",
)
def test_s5_webhooks_at_the_same_time_make_one_event(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every delivery comes to its look for a former event before any of them has made one, unless a lock keeps it."""
    from airflow.models.asset import AssetEvent

    from airflow_provider_weblake.webhooks import events

    sender = bench.sender()
    senders = [Sender(url, sender.conn_id, sender.secret) for url in bench.urls]
    together, register = threading.Barrier(2), events.asset_manager.register_asset_change

    def late(**given: Any) -> AssetEvent | None:
        # Without the lock the other one is here too.
        with contextlib.suppress(threading.BrokenBarrierError):
            together.wait(0.2)
        return register(**given)

    monkeypatch.setattr(events.asset_manager, "register_asset_change", late)
    outcomes: list[tuple[int, Any]] = []
    threads = [threading.Thread(target=lambda each=each: outcomes.append(each.deliver())) for each in senders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert sorted(str(outcome["outcome"]) for _, outcome in outcomes) == ["accepted", "repeated"]
    assert len(extras(sender)) == 1


def _other(body: bytes, sender: Sender) -> list[tuple[str, str]]:
    return [(SIGNATURE, webhooks.sign("another secret", body))]


def _right(body: bytes, sender: Sender) -> str:
    return webhooks.sign(sender.secret, body)


FORGERIES: dict[str, Callable[[bytes, Sender], list[tuple[str, str]]]] = {
    "none": lambda body, sender: [],
    "empty": lambda body, sender: [(SIGNATURE, "")],
    "another secret": _other,
    "another body": lambda body, sender: [(SIGNATURE, _right(body + b" ", sender))],
    "no algorithm": lambda body, sender: [(SIGNATURE, _right(body, sender).removeprefix("sha256="))],
    "another algorithm": lambda body, sender: [(SIGNATURE, _right(body, sender).replace("sha256", "sha1"))],
    "upper case": lambda body, sender: [(SIGNATURE, "sha256=" + _right(body, sender)[7:].upper())],
    "truncated": lambda body, sender: [(SIGNATURE, _right(body, sender)[:-1])],
    "two of them": lambda body, sender: [*_other(body, sender), (SIGNATURE, _right(body, sender))],
    "another header": lambda body, sender: [("X-Signature", _right(body, sender))],
    "an airflow token": lambda body, sender: [("Authorization", "Bearer x")],
}


@proves(
    "S4",
    at="airflow_provider/src/airflow_provider_weblake/webhooks/app.py",
    line="if len(signatures) != 1 or not _SIGNATURE.fullmatch(signatures[0]):",
    becomes="if False:",
)
@pytest.mark.parametrize("forgery", FORGERIES)
def test_s4_a_forged_webhook_is_refused_before_the_database(bench: Bench, forgery: str) -> None:
    sender = bench.sender(asset=False)
    body = json.dumps(completed()).encode()
    headers = FORGERIES[forgery](body, sender)
    assert sender.request("POST", sender.path, body, headers) == (401, {"detail": "Unauthorized"})
    assert bench.records == []


def test_a_wrong_secret_is_logged_once_and_without_the_secret(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    sender = bench.sender(asset=False)
    real, sender.secret = sender.secret, "another secret"
    with caplog.at_level(logging.DEBUG):
        for _ in range(3):
            assert sender.deliver()[0] == 401
    assert [record.getMessage() for record in caplog.records if sender.conn_id in record.getMessage()] == [
        f"A webhook for connection {sender.conn_id} is not signed with its webhook_secret. "
        "If the service sent it, compare the secrets."
    ]
    assert real not in caplog.text


@pytest.mark.parametrize(
    "path",
    [
        "/weblake/",
        "/weblake/webhooks",
        "/weblake/webhooks/",
        "/weblake/docs",
        "/weblake/redoc",
        "/weblake/openapi.json",
        "/weblake/webhooks/unknown",
        "/weblake/webhooks/{conn_id}/",
        "/weblake/webhooks/{conn_id}/more",
        "/weblake/webhooks/{conn_id}%2F..",
        "/weblake/webhooks/..%2F..%2Fapi%2Fv2%2Fconnections",
        "/weblake/webhooks/%00",
        "/weblake/webhooks/" + "x" * 1000,
        "/weblake/webhooks/a%0d%0ab",
        "/weblake/webhooks/%F0%9F%98%80",
    ],
)
def test_no_other_path_responds(bench: Bench, path: str) -> None:
    """An unknown connection, one without a secret and a path that does not exist look the same."""
    sender = bench.sender(asset=False)
    body = json.dumps(completed()).encode()
    headers = [(SIGNATURE, _right(body, sender))]
    place = path.replace("{conn_id}", sender.conn_id)
    assert sender.request("POST", place, body, headers) == (404, {"detail": "Not Found"})
    assert bench.records == []


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_another_method_is_refused_for_every_connection(bench: Bench, method: str) -> None:
    sender = bench.sender(asset=False)
    assert sender.request(method, sender.path)[0] == 405
    assert sender.request(method, "/weblake/webhooks/unknown")[0] == 405
    assert bench.look_ups == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        json.dumps({"type": "batch_scrape.completed"}).encode(),
        json.dumps({"id": JOB}).encode(),
        json.dumps(completed("../../dags")).encode(),
        json.dumps(completed("{{ conn.weblake_default.password }}")).encode(),
        json.dumps({**completed(), "id": 7}).encode(),
    ],
)
def test_a_signed_invalid_body_is_refused(bench: Bench, body: bytes) -> None:
    sender = bench.sender(asset=False)
    assert sender.deliver(body) == (400, {"detail": "Bad Request"})
    assert bench.records == []


@pytest.mark.parametrize(
    "kind", ["batch_scrape.started", "batch_scrape.page", "crawl.page", "agent.completed", "completed", "x"]
)
def test_other_events_than_the_end_of_a_job_are_acknowledged(bench: Bench, kind: str) -> None:
    sender = bench.sender(asset=False)
    assert sender.deliver({**completed(), "type": kind}) == (200, {"outcome": "ignored"})
    assert bench.records == []


@pytest.mark.parametrize("webhook_id", ["x" * 1000, "a\0b", "é", "a\nb"])
def test_an_invalid_delivery_id_is_omitted(bench: Bench, webhook_id: str) -> None:
    sender = bench.sender()
    assert sender.deliver(completed(webhookId=webhook_id))[0] == 200
    assert extras(sender)[0]["webhook_id"] is None


@proves(
    "S4",
    at="airflow_provider/src/airflow_provider_weblake/webhooks/app.py",
    line="if size > MAX_BODY:",
    becomes="if False:",
)
def test_s4_a_large_webhook_is_refused_before_it_is_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider_weblake.webhooks.app.MAX_BODY", 1000)
    sender = bench.sender(asset=False)
    signed = (SIGNATURE, "sha256=" + "0" * 64)
    assert sender.head(signed, ("Content-Length", "1001")) == 413
    assert sender.head(signed, ("Content-Length", "9" * 19)) == 413
    chunk = b"%x\r\n%s\r\n" % (1001, b" " * 1001)
    assert sender.head(signed, ("Transfer-Encoding", "chunked"), chunk=chunk) == 413
    assert sender.deliver(b" " * 1000)[0] == 400


def test_the_bodies_of_all_webhooks_together_are_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    sender = bench.sender(asset=False)
    monkeypatch.setattr("airflow_provider_weblake.webhooks.app.MAX_BUFFERED", 1000)
    monkeypatch.setattr("airflow_provider_weblake.webhooks.app.SMALL_BODY", 0)
    signed = (SIGNATURE, "sha256=" + "0" * 64)
    assert sender.head(signed, ("Content-Length", "2000"), chunk=b" " * 1001) == 503
    for _ in range(5):
        assert sender.deliver(b" " * 900)[0] == 400, "the memory of ended requests is free again"


@proves(
    "S4",
    at="airflow_provider/src/airflow_provider_weblake/webhooks/app.py",
    line="SMALL_BODY, MAX_BODY, MAX_BUFFERED = 64 << 10, 10 << 20, 64 << 20",
    becomes="SMALL_BODY, MAX_BODY, MAX_BUFFERED = 0, 10 << 20, 64 << 20",
)
def test_s4_forged_bodies_that_fill_the_memory_do_not_keep_out_a_webhook(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_provider_weblake.webhooks.app.MAX_BUFFERED", 100 << 10)
    sender = bench.sender()
    forged = ((SIGNATURE, "sha256=" + "0" * 64), ("Content-Length", str(1 << 20)))
    held: list[socket.socket] = []
    with contextlib.ExitStack() as connections:

        def full() -> bool:
            """Send one more body that does not end; return whether one was refused, which is when it is answered."""
            held.append(connections.enter_context(sender.unfinished(*forged, chunk=b" " * (72 << 10))))
            return bool(select.select(held, [], [], 0.05)[0])

        until(full)
        assert sender.deliver(completed(data=["x" * (60 << 10)])) == (200, {"outcome": "accepted"})


async def one_signed() -> tuple[Any, Any]:
    """A receiver that knows the secret of the connection `one`, and its app without a server."""
    from airflow_provider_weblake.webhooks.app import Receiver, receiver_app
    from airflow_provider_weblake.webhooks.signing import Signing, SigningSecrets

    secrets = SigningSecrets(lambda conn_id: Signing("s"))
    # A test's short deadline must not end this look-up, for which a thread starts.
    await secrets.find("one")
    receiver = Receiver(secrets)
    return receiver, receiver_app(receiver)


def scope() -> dict[str, Any]:
    """The ASGI scope of a forged webhook."""
    headers = [(SIGNATURE.lower().encode(), b"sha256=" + b"0" * 64)]
    return {"type": "http", "method": "POST", "path": "/webhooks/one", "headers": headers, "query_string": b""}


class _Chunk(bytes):
    """A part of a body; the class counts those that are in memory."""

    alive = 0

    def __init__(self, *_: object) -> None:
        _Chunk.alive += 1

    def __del__(self) -> None:
        _Chunk.alive -= 1


@pytest.mark.parametrize(
    ("status", "limits"),
    [(401, {}), (408, {"DEADLINE_S": 0.05}), (413, {"MAX_BODY": 150}), (503, {"MAX_BUFFERED": 150, "SMALL_BODY": 0})],
)
def test_the_body_of_a_refused_webhook_leaves_the_memory_at_once(
    monkeypatch: pytest.MonkeyPatch, airflow_db: None, status: int, limits: dict[str, float]
) -> None:
    """And not when the garbage collector comes, because it does not count towards the bound any more."""
    for name, limit in limits.items():
        monkeypatch.setattr(f"airflow_provider_weblake.webhooks.app.{name}", limit)
    sent = list[Any]()

    async def deliver() -> None:
        _, app = await one_signed()
        received = iter(range(2))

        async def receive() -> dict[str, Any]:
            number = next(received, None)
            if number is None:
                await asyncio.sleep(60)  # the rest of the body never comes
            more = number == 0 or status == 408
            return {"type": "http.request", "body": _Chunk(b"x" * 100), "more_body": more}

        async def send(message: Any) -> None:
            sent.append(message)

        await app(scope(), receive, send)

    gc.disable()
    try:
        asyncio.run(deliver())
        assert (sent[0]["status"], _Chunk.alive) == (status, 0)
    finally:
        gc.enable()
        gc.collect()
    assert type(sent[0]["status"]) is int, "or Airflow's access log has the text of the enumeration"


def test_a_slow_webhook_is_refused_at_the_deadline(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    sender = bench.sender(asset=False)
    forged = (SIGNATURE, "sha256=" + "0" * 64)
    assert sender.request("POST", sender.path, b"{}", [forged])[0] == 401, "the secret is known now"
    monkeypatch.setattr("airflow_provider_weblake.webhooks.app.DEADLINE_S", 0.1)
    assert sender.head(forged, ("Content-Length", "10"), chunk=b"{") == 408


def test_a_webhook_ends_at_the_deadline_if_its_cancellation_is_swallowed(
    monkeypatch: pytest.MonkeyPatch, airflow_db: None
) -> None:
    """Starlette's BaseHTTPMiddleware, which Airflow's API server has, does so if a chunk comes at the same moment."""
    monkeypatch.setattr("airflow_provider_weblake.webhooks.app.DEADLINE_S", 0.05)
    monkeypatch.setattr("airflow_provider_weblake.webhooks.app.SMALL_BODY", 0)
    statuses, chunks = list[int](), iter([b"x" * 100])

    async def deliver() -> None:
        answered = asyncio.Event()

        async def receive() -> dict[str, Any]:
            for chunk in chunks:
                return {"type": "http.request", "body": chunk, "more_body": True}
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            await answered.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            statuses.append(message.get("status"))
            answered.set()

        receiver, app = await one_signed()
        await asyncio.wait_for(app(scope(), receive, send), 20)
        assert statuses[0] == 408
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not others or not (await asyncio.wait(others, timeout=20))[1]
        assert receiver._buffered == 0

    asyncio.run(deliver())


@proves(
    "S5",
    at="airflow_provider/src/airflow_provider_weblake/webhooks/app.py",
    line="raise Refused(HTTPStatus.SERVICE_UNAVAILABLE) from None  # the service delivers it again",
    becomes='return "ignored"',
)
def test_s5_a_webhook_that_could_not_be_stored_gets_503(bench: Bench) -> None:
    from sqlalchemy.exc import OperationalError

    sender = bench.sender(asset=False)
    assert sender.deliver() == (503, {"detail": "Service Unavailable"}), "no DAG names the asset"
    declare(sender.conn_id)

    def down() -> bool:
        raise OperationalError("SELECT 1", {}, Exception("no route to host"))

    bench.instead = down
    assert sender.deliver() == (503, {"detail": "Service Unavailable"})
    assert extras(sender) == []
    bench.instead = None
    assert sender.deliver() == (200, {"outcome": "accepted"})


def test_a_database_that_hangs_ends_at_the_deadline(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    sender, hung = bench.sender(asset=False), threading.Event()
    assert sender.request("POST", sender.path)[0] == 401, "the secret is known now"
    monkeypatch.setattr("airflow_provider_weblake.webhooks.app.DEADLINE_S", 0.2)
    bench.instead = lambda: hung.wait(240)
    try:
        assert sender.deliver()[0] == 503
    finally:
        hung.set()


def test_many_requests_read_each_connection_once_and_few_unknown_ones(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a slow machine more look-ups would be allowed until the last request, and secrets would be read again.
    monkeypatch.setattr("airflow_provider_weblake.webhooks.signing.RATE", 0.0)
    monkeypatch.setattr("airflow_provider_weblake.webhooks.signing.CACHE_S", 3600.0)
    sender = bench.sender(asset=False)
    with serving(bench.app(burst=10.0)) as sender.url:
        assert [sender.request("POST", sender.path)[0] for _ in range(50)] == [401] * 50
        assert bench.look_ups == [sender.conn_id]
        answers = [sender.request("POST", f"/weblake/webhooks/unknown-{n}")[0] for n in range(40)]
        assert set(answers) == {404, 503}
        assert answers.count(404) < 20
        assert len(bench.look_ups) == 1 + answers.count(404)
        assert sender.deliver({**completed(), "type": "crawl.page"})[0] == 200, "the known connection still answers"
        assert Counter(bench.look_ups)[sender.conn_id] == 1
    assert bench.records == []


def test_requests_for_unknown_connections_do_not_keep_out_one_that_a_dag_names(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart the API server knows no connection yet."""
    monkeypatch.setattr("airflow_provider_weblake.webhooks.signing.RATE", 0.0)
    named, unnamed = bench.sender(), bench.sender(asset=False)
    with serving(bench.app(burst=3.0)) as named.url:
        unnamed.url = named.url
        until(lambda: unnamed.request("POST", f"/weblake/webhooks/unknown-{uuid.uuid4().hex}")[0] == 503)
        assert unnamed.deliver()[0] == 503
        assert bench.look_ups.count(unnamed.conn_id) == 0
        assert named.deliver() == (200, {"outcome": "accepted"})
        assert Counter(bench.look_ups)[named.conn_id] == 1


@pytest.fixture
def connection(airflow_db: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[object], Any]:
    """Reads the signing of a connection with these fields."""

    def read(fields: object) -> Any:
        from airflow_provider_weblake.webhooks.signing import read_signing

        monkeypatch.setenv("AIRFLOW_CONN_SIGNING", fields if isinstance(fields, str) else json.dumps(fields))
        return read_signing("signing")

    return read


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"conn_type": "weblake", "extra": {"webhook_secret": "s"}}, ("s", "X-Service-Signature")),
        ({"conn_type": "weblake", "extra": {"webhook_secret": "s", "webhook_header": "X-Sig"}}, ("s", "X-Sig")),
        ("weblake://host?webhook_secret=s", ("s", "X-Service-Signature")),
        ({"conn_type": "weblake", "extra": {"webhook_secret": " "}}, None),
        ({"conn_type": "weblake", "extra": {"webhook_secret": 7}}, None),
        ({"conn_type": "weblake", "extra": {"webhook_secret": "s", "webhook_header": "a b"}}, None),
        ({"conn_type": "weblake", "password": "s"}, None),
        ({"conn_type": "http", "extra": {"webhook_secret": "s"}}, None),
        ({"conn_type": "weblake", "extra": "webhook_secret"}, None),
        ("{", None),
    ],
)
def test_a_connection_of_the_service_with_a_secret_is_configured(
    connection: Callable[[object], Any], fields: object, found: tuple[str, str] | None
) -> None:
    signing = connection(fields)
    assert (signing and (signing.secret, signing.header)) == found
    assert "'s'" not in repr(signing)


class FailingBackend:
    """A secrets backend that cannot be reached."""

    def get_connection(self, conn_id: str, **_: object) -> Any:
        raise ConnectionError("no route to host")


@pytest.fixture
def failing_backend(airflow_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a backend that cannot be reached the first one of Airflow's."""
    from airflow.configuration import ensure_secrets_loaded

    backends = [FailingBackend(), *ensure_secrets_loaded()]
    monkeypatch.setattr("airflow.configuration.secrets_backend_list", backends)


def test_a_connection_is_not_reported_as_missing_while_the_database_is_down(
    airflow_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.secrets.metastore import MetastoreBackend
    from sqlalchemy.exc import OperationalError

    from airflow_provider_weblake.webhooks import signing

    def down(self: object, conn_id: str, **_: object) -> Any:
        raise OperationalError("SELECT 1", {}, Exception("no route to host"))

    assert signing.read_signing("nowhere") is None
    monkeypatch.setattr(MetastoreBackend, "get_connection", down)
    with pytest.raises(signing.Unavailable, match="MetastoreBackend cannot be read"):
        signing.read_signing("nowhere")


def test_a_connection_is_not_reported_as_missing_while_a_secrets_backend_is_down(failing_backend: None) -> None:
    from airflow_provider_weblake.webhooks import signing

    with pytest.raises(signing.Unavailable, match="FailingBackend cannot be read"):
        signing.read_signing("nowhere")


def test_a_connection_of_another_backend_is_used_while_a_secrets_backend_is_down(
    failing_backend: None, connection: Callable[[object], Any]
) -> None:
    assert connection({"conn_type": "weblake", "extra": {"webhook_secret": "s"}}).secret == "s"
    assert connection({"conn_type": "http"}) is None


def test_a_secrets_backend_that_is_down_is_logged_once_a_minute(
    bench: Bench, failing_backend: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_provider_weblake.webhooks.signing import read_signing

    sender = bench.sender(asset=False)
    monkeypatch.setattr(bench, "read", read_signing)
    with caplog.at_level(logging.WARNING), serving(bench.app()) as sender.url:
        assert [sender.deliver()[0] for _ in range(3)] == [503, 503, 503]
    messages = [record.getMessage() for record in caplog.records if "FailingBackend" in record.getMessage()]
    assert messages == ["A webhook is to be delivered again: The secrets backend FailingBackend cannot be read."]


def test_a_connection_that_a_secrets_backend_denies_is_not_there(
    airflow_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow's error for it is a PermissionError since 3.3, and an error of another kind would be a 500."""
    from airflow.models.connection import Connection

    from airflow_provider_weblake.webhooks import signing

    def denied(conn_id: str) -> Any:
        raise PermissionError(conn_id)

    monkeypatch.setattr(Connection, "get_connection_from_secrets", denied)
    assert signing.read_signing("private") is None


def test_a_database_that_is_down_names_no_connection(airflow_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from sqlalchemy.exc import OperationalError

    from airflow_provider_weblake.webhooks import signing

    def down(**_: object) -> Any:
        raise OperationalError("SELECT 1", {}, Exception("no route to host"))

    monkeypatch.setattr(signing, "create_session", down)
    with pytest.raises(signing.Unavailable):
        signing.read_named()


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_changed_secret_is_used_after_half_a_minute() -> None:

    from airflow_provider_weblake.webhooks.signing import Signing, SigningSecrets

    kept: dict[str, Any] = {"one": Signing("old")}
    clock = Clock()
    found = SigningSecrets(kept.get, clock)

    async def follow() -> list[Any]:
        seen = [await found.find("one"), await found.find("two")]
        kept.update(one=Signing("new"), two=Signing("made"))
        clock.now = 29
        seen += [await found.find("one"), await found.find("two")]
        clock.now = 31
        return [*seen, await found.find("one"), await found.find("two")]

    secrets = [signing and signing.secret for signing in asyncio.run(follow())]
    assert secrets == ["old", None, "old", None, "new", "made"]


def test_spellings_of_a_connection_use_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment variable is the connection of every spelling of its id, in upper and lower case."""

    from airflow_provider_weblake.webhooks import signing

    monkeypatch.setattr(signing, "MAX_CACHED", 100)
    clock, looked_up = Clock(), Counter[str]()

    def read(conn_id: str) -> Any:
        looked_up[conn_id] += 1
        return signing.Signing("secret")

    found = signing.SigningSecrets(read, clock, burst=1e6)

    async def follow() -> None:
        for n in range(400):
            clock.now += 1
            await found.find(f"spelling-{n}")
            await found.find("used")  # is read again each half a minute, and so is never the oldest

    asyncio.run(follow())
    assert len(found) == 100
    assert looked_up["used"] <= 1 + 400 / signing.CACHE_S


def test_warnings_about_spellings_of_a_connection_use_bounded_memory() -> None:
    from airflow_provider_weblake.webhooks.app import WARN_EVERY_S, WarningLimit

    clock = Clock()
    warnings = WarningLimit(clock)
    assert (warnings.allow("a"), warnings.allow("a"), warnings.allow("b")) == (True, False, True)
    for n in range(1000):
        clock.now += 1
        assert warnings.allow(f"spelling-{n}")
    assert len(warnings) <= WARN_EVERY_S
    assert warnings.allow("a")


@pytest.mark.parametrize(("kind", "conn_id"), [("scrape", "weblake_default"), ("crawl", "a/b"), ("crawl", "")])
def test_an_asset_that_no_webhook_can_reach_is_refused(kind: str, conn_id: str) -> None:
    from airflow_provider_weblake.assets.jobs import weblake_jobs_asset

    with pytest.raises(InvalidOption):
        weblake_jobs_asset(kind, conn_id)


def test_the_asset_keeps_its_uri_and_may_have_a_name() -> None:
    from airflow_provider_weblake.assets.jobs import weblake_jobs_asset

    asset = weblake_jobs_asset("crawl", "Service_1", name="crawls", group="web")
    assert (asset.name, asset.uri, asset.group) == ("crawls", "x-weblake://jobs/Service_1/crawl", "web")
    assert weblake_jobs_asset().name == "x-weblake://jobs/weblake_default/batch_scrape"
