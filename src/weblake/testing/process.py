"""A service in a separate process, which tests can kill and restart on the same database."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from weblake.testing.service import KEY, WeblakeService

#: Timeouts in seconds until the service listens, and until it has stopped.
_START_S, _STOP_S = 60.0, 20.0
_LOG_BYTES = 4000


@dataclass(frozen=True, slots=True)
class _Address:
    url: str
    key: str


class WeblakeServiceProcess(WeblakeService):
    """The service that the fixture `weblake_service_process` returns; it ends with the process of the tests.

    Args:
        folder: The folder of its database and its log.
        config: Fields of `ServiceConfig`.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self._folder = folder
        self._config = dict(config)
        self._process: subprocess.Popen[str] | None = None
        url = self._start(0)
        self._port = int(url.rpartition(":")[2])
        super().__init__(_Address(url, KEY))

    @property
    def pid(self) -> int | None:
        """The process id, or None while the service does not run."""
        return None if self._process is None else self._process.pid

    @property
    def log(self) -> str:
        """The text that the service has written to standard error so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def kill(self) -> None:
        """End the service with SIGKILL, like a crash: data that it has not stored is lost."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the service with SIGTERM, as an operator would."""
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Start the service again, on the same database and at the same address; a running service is killed first."""
        self.kill()
        self._start(self._port)

    def reset(self) -> None:
        """Reset the service, as before each test; if it does not run, start it."""
        if self._process is None or self._process.poll() is not None:
            self.restart()
        super().reset()

    def report(self) -> str:
        """Return the report for a failed test: the last requests, the faults and the log."""
        return f"{super().report()}\nits log:\n{self.log[-_LOG_BYTES:]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close_clients()
        self.stop()

    @property
    def _log(self) -> Path:
        return self._folder / "log"

    def _start(self, port: int) -> str:
        program = Path(__file__).with_name("service_program.py")
        options = json.dumps({"port": port, "data": str(self._folder), "config": self._config})
        with self._log.open("a", encoding="utf-8") as log:
            # Modules in the program's folder must not shadow modules of the same names.
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-P", str(program)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**_environment(), "WEBLAKE_API_KEY": KEY},
            )
        assert self._process.stdin is not None
        self._process.stdin.write(options + "\n")
        self._process.stdin.flush()
        late = threading.Timer(_START_S, self._process.kill)
        late.start()
        try:
            assert self._process.stdout is not None
            line = self._process.stdout.readline()
        finally:
            late.cancel()
        if not line:
            self.kill()
            raise RuntimeError(f"The weblake service did not start. Its log:\n{self.log[-_LOG_BYTES:]}")
        return str(json.loads(line)["url"])

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def _environment() -> dict[str, str]:
    """Return the environment of the tests without the settings of a real language model, which tests must not use."""
    return {name: value for name, value in os.environ.items() if not name.startswith("WEBLAKE_LLM_")}
