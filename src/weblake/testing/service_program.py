"""The program that process.py runs: `weblake serve` as a child process that ends when its parent ends."""

from __future__ import annotations

import json
import os
import sys
import threading

from weblake_service.config import ServiceConfig
from weblake_service.serve import serve


def _end_with_parent() -> None:
    # The kernel closes the other end of the pipe when the parent ends for any reason. A thread that waits in
    # `sys.stdin.buffer` holds its lock, for which Python waits a second at its end, and then aborts.
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(0)


if __name__ == "__main__":
    options = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    config = ServiceConfig(**{"testing": True, **options["config"]})
    serve(port=options["port"], data=options["data"], allow_private=True, config=config)
