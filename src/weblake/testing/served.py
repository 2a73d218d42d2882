"""The program of process.py: `weblake serve` as a child that ends when its parent is gone."""

from __future__ import annotations

import json
import os
import sys
import threading

from weblake_service.config import ServiceConfig
from weblake_service.serve import serve


def _end_with_parent() -> None:
    # The other end of the pipe is closed when the parent ends, however it does.
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    asked = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    serve(port=asked["port"], data=asked["data"], allow_private=True, config=ServiceConfig(**asked["config"]))
