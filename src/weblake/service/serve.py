"""`weblake serve`: the service as a process of its own, until SIGTERM or SIGINT.

When it listens, one line of JSON goes to standard output, `{"url": …, "data": …}` and `"key"` where one was generated
just now; words for people go to standard error. A generated key is shown this once: the database keeps only its hash.

Imports: config, parts, server, settings.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

from weblake.service.config import ServiceConfig, ServiceKey, new_key
from weblake.service.parts import has_keys, open_store, remember_key
from weblake.service.server import LocalService
from weblake.service.store.database import MEMORY
from weblake.settings import state_dir

#: The database's name in the data directory.
DATABASE = "service.db"
#: Its data directory by default, below the user's state directory: beside that of the in-process service, which holds
#: a database and a lock of its own.
DIRECTORY = "serve"
_GENERATED = "generated"


def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    data: str | Path | None = None,
    key: str | None = None,
    allow_private: bool = False,
    config: ServiceConfig | None = None,
) -> None:
    """Runs the service until it is told to stop; jobs that still run then go on with the next start.

    Args:
        host: Where to listen. Anything but loopback is open to others, who need the key and send it in the clear.
        port: The port; 0 picks a free one.
        data: The directory of the database, made when missing, or `:memory:`; by default in the user's state directory.
        key: The API key; by default WEBLAKE_API_KEY, else one that is generated at the first start on this database.
        allow_private: Whether private and loopback addresses may be scraped and may receive webhooks.
        config: All other limits; the webhook secret is by default WEBLAKE_WEBHOOK_SECRET.

    Raises:
        StorageRefused: Another process serves this database, or the directory cannot be written.
        InvalidOption: The port is taken, or the key cannot be sent in a header.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(message)s")
    for noisy in ("uvicorn", "httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    directory = MEMORY if str(data) == MEMORY else str(Path(data or state_dir() / DIRECTORY).expanduser().absolute())
    db: str | Path = MEMORY if directory == MEMORY else Path(directory) / DATABASE
    given = key or os.environ.get("WEBLAKE_API_KEY") or None
    keys, generated = _keys(db, given)
    service = LocalService(
        db, keys=keys, host=host, port=port, allow_private=allow_private, config=_with_secret(config or ServiceConfig())
    )
    with _until_told() as told:
        service.start()
        try:
            _announce(service.url, generated, directory, known=given is None and generated is None)
            told.wait()
            _say("Stopping; running jobs go on with the next start.")
        finally:
            service.stop()


def _keys(db: str | Path, given: str | None) -> tuple[list[ServiceKey], str | None]:
    """The keys that this start brings, and the one that was generated, if any."""
    if given is not None:
        return [ServiceKey(given)], None
    fresh = ServiceKey(new_key(), name=_GENERATED)
    if str(db) == MEMORY:
        return [fresh], fresh.key
    store = open_store(db)
    try:
        if store.write_now(has_keys):
            # Nobody knows this one: requests are answered to the key that was shown at the first start.
            return [ServiceKey(new_key(), name="unused")], None
        store.write_now(lambda connection: remember_key(connection, fresh))
    finally:
        store.close()
    return [fresh], fresh.key


def _with_secret(config: ServiceConfig) -> ServiceConfig:
    secret = config.webhook_secret or os.environ.get("WEBLAKE_WEBHOOK_SECRET") or None
    return replace(config, webhook_secret=secret)


def _announce(url: str, generated: str | None, data: str, *, known: bool) -> None:
    ready = {"url": url, "data": data} | ({"key": generated} if generated is not None else {})
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()
    _say(f"The service listens on {url}; its data is in {data}.")
    if generated is not None:
        _say("Its API key stands on standard output, this once: keep it, for example in WEBLAKE_API_KEY.")
    elif known:
        _say("Its API key is the one that was shown at the first start on this data; WEBLAKE_API_KEY sets another.")


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


@contextmanager
def _until_told() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set; a second signal does what it always did."""
    told = threading.Event()
    before = {int(number): signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def tell(number: int, frame: FrameType | None) -> None:
        told.set()
        signal.signal(number, before[number])

    for number in before:
        signal.signal(number, tell)
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
