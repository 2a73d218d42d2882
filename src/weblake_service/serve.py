"""`weblake serve`: the service as a process of its own, until SIGTERM or SIGINT.

When it listens, one line of JSON goes to standard output, `{"url": …, "data": …}` and `"key"` where one was generated
just now; words for people go to standard error. A generated key is shown this once: the database keeps only its hash.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

from weblake.credentials import is_loopback
from weblake.errors import InvalidOption
from weblake.home import home
from weblake.settings import state_dir
from weblake_service.config import ServiceConfig, ServiceKey, TeamPlan, new_key
from weblake_service.faults import read_file
from weblake_service.keys_file import read_keys_file
from weblake_service.llm.settings import sends_key_in_clear, with_environment
from weblake_service.server import LocalService
from weblake_service.store.database import MEMORY

#: The database's name in the data directory.
DATABASE = "service.db"
#: Its data directory by default, below the user's state directory: beside that of the in-process service, which holds
#: a database and a lock of its own.
DIRECTORY = "serve"
_GENERATED = "generated"
_RUNS_CODE = (
    "Code that comes with requests runs on this machine, as the user of this service and in no sandbox: "
    "whoever has a key can do what this user can."
)
#: Seconds from the signal to the end of the process at most.
_LAST_SECONDS = 4.5
_LLM_IN_THE_CLEAR = "The language model's endpoint is on another machine, and its key travels in the clear: use https."
_IN_THE_CLEAR = "Other machines can reach it, and keys and pages travel in the clear: put a proxy with TLS before it."


def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    data: str | Path | None = None,
    key: str | None = None,
    keys_file: str | Path | None = None,
    faults_file: str | Path | None = None,
    allow_private: bool = False,
    allow_code_execution: bool = False,
    config: ServiceConfig | None = None,
) -> int:
    """Run the service until a signal tells it to stop, and return which; running jobs go on with the next start.

    Args:
        host: Where to listen. Anything but loopback is open to others, who need the key and send it in the clear.
        port: The port; 0 picks a free one.
        data: The directory of the database, made when missing, or `:memory:`; by default in the user's state directory.
        key: The API key; by default WEBLAKE_API_KEY, else one that is generated at the first start on this database.
        keys_file: Several keys, their teams and what these may use (see keys_file.py), instead of one key.
        faults_file: Fault rules that hold from the start (see faults).
        allow_private: Whether private and loopback addresses may be scraped and may receive webhooks.
        allow_code_execution: Whether code that comes with a request may run on this machine, as this user and in no
            sandbox; only on loopback.
        config: All other limits; the webhook secret is by default WEBLAKE_WEBHOOK_SECRET, and a language
            model is the one that WEBLAKE_LLM_BASE_URL, WEBLAKE_LLM_API_KEY and WEBLAKE_LLM_MODEL name.

    Raises:
        StorageRefused: Another process serves this database, or the directory cannot be written.
        InvalidOption: The port is taken, the key cannot be sent in a header, a file cannot be used, or there are both a
            key and a keys file.
    """
    _log_to_stderr()
    given = _start_keys(key, keys_file)
    rules = read_file(faults_file) if faults_file is not None else []
    config = replace(config or ServiceConfig(), remembered_keys=keys_file is None)
    config = with_environment(_with_secret(replace(config, teams={**config.teams, **given.teams})))
    directory = MEMORY if str(data) == MEMORY else str(home(data or state_dir() / DIRECTORY).absolute())
    db: str | Path = MEMORY if directory == MEMORY else Path(directory) / DATABASE
    service = LocalService(
        db,
        keys=given.keys,
        host=host,
        port=port,
        allow_private=allow_private,
        allow_code_execution=allow_code_execution,
        config=config,
        rules=rules,
    )
    with _signal_handlers() as wait_for_signal:
        service.start()
        try:
            # Kept only now: a key whose start failed would be one that nobody has ever seen.
            shown = service.key if given.generated and service.remember_key() else None
            for words in given.warnings:
                _print(words)
            _announce(service.url, shown, directory, known=given.generated and shown is None)
            if not is_loopback(host):
                _print(_IN_THE_CLEAR)
            if allow_code_execution:
                _print(_RUNS_CODE)
            if sends_key_in_clear(config):
                _print(_LLM_IN_THE_CLEAR)
            number = wait_for_signal()
            _print("Stopping; running jobs go on with the next start.")
        finally:
            with _exit_if_stuck(_LAST_SECONDS):
                service.stop()
    return number


@dataclass(frozen=True, slots=True)
class _StartKeys:
    """The keys that this start brings."""

    keys: list[ServiceKey] = field(repr=False)
    generated: bool = False
    teams: Mapping[str, TeamPlan] = field(default_factory=dict)
    warnings: Sequence[str] = ()


def _start_keys(key: str | None, keys_file: str | Path | None) -> _StartKeys:
    of_environment = os.environ.get("WEBLAKE_API_KEY")
    if keys_file is not None:
        if key is not None:
            raise InvalidOption("There are both a key and a keys file.", hint="Name the key in the file too.")
        file = read_keys_file(keys_file)
        warnings = [file.warning] if file.warning else []
        if of_environment and of_environment not in {one.key for one in file.keys}:
            warnings.append(f"WEBLAKE_API_KEY is no key of this service: only those in {keys_file} are.")
        return _StartKeys(file.keys, teams=file.teams, warnings=warnings)
    known = key or of_environment
    if known:
        return _StartKeys([ServiceKey(known)])
    return _StartKeys([ServiceKey(new_key(), name=_GENERATED)], generated=True)


def _log_to_stderr() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(message)s")
    for noisy in ("uvicorn", "httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


@contextmanager
def _exit_if_stuck(seconds: float) -> Iterator[None]:
    """End the process where the block does not: the database stands it, and SIGKILL would come next."""
    cut = threading.Timer(seconds, os._exit, [0])
    cut.daemon = True
    cut.start()
    try:
        yield
    finally:
        cut.cancel()


def _with_secret(config: ServiceConfig) -> ServiceConfig:
    secret = config.webhook_secret or os.environ.get("WEBLAKE_WEBHOOK_SECRET") or None
    return replace(config, webhook_secret=secret)


def _announce(url: str, generated: str | None, data: str, *, known: bool) -> None:
    ready = {"url": url, "data": data} | ({"key": generated} if generated is not None else {})
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()
    _print(f"The service listens on {url}; its data is in {data}.")
    if generated is not None:
        _print("Its API key stands on standard output, this once: keep it, for example in WEBLAKE_API_KEY.")
    elif known:
        _print("Its API key is the one that was shown at the first start on this data; WEBLAKE_API_KEY sets another.")


def _print(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


@contextmanager
def _signal_handlers() -> Iterator[Callable[[], int]]:
    """Yield a function that waits for SIGTERM or SIGINT and returns its number.

    The first signal puts back the handler that was there before, so that a second one acts as if there were no service.

    The function waits for the byte that Python's signal handler writes to a socket. It cannot wait for a lock, such as
    that of an Event: a thread that is about to wait for a lock when the signal arrives is not woken by it.
    """
    found = {int(number): signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    previous = {number: handler for number, handler in found.items() if handler is not signal.SIG_IGN}

    def restore(number: int, frame: FrameType | None) -> None:
        signal.signal(number, previous[number])

    def wait_for_signal() -> int:
        number = 0
        while number not in previous:
            number = receiver.recv(1)[0]
        return number

    receiver, sender = socket.socketpair()
    with receiver, sender:
        sender.settimeout(0)
        previous_descriptor = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        for number in previous:
            signal.signal(number, restore)
        try:
            yield wait_for_signal
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(previous_descriptor)
