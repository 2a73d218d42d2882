"""A Redis server of a test's own, from Debian's `redis-server`: on a Unix socket, with a password made at run time."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

import redis
from supervised_processes import Processes


class RedisServer:
    """Redis as the process `redis` of a lab.

    :param directory: exists, and has a short name: the path of a Unix socket has at most 107 bytes.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._password = secrets.token_hex(16)

    @property
    def url(self) -> str:
        """Return the address as Celery reads it, for a broker and for a result backend."""
        return f"redis+socket://:{self._password}@{self._directory}/redis.sock?virtual_host=0"

    def client(self) -> redis.Redis:
        """Return a new client of the server."""
        return redis.Redis(unix_socket_path=str(self._directory / "redis.sock"), password=self._password)

    def start(self, processes: Processes, log: Path) -> None:
        """Start the server; `answers` says when it is ready."""
        program = shutil.which("redis-server")
        assert program, "redis-server is not installed: apt-get install redis-server"
        config = self._directory / "redis.conf"
        config.touch(mode=0o600)
        config.write_text(
            f"port 0\nunixsocket {self._directory}/redis.sock\nunixsocketperm 700\nrequirepass {self._password}\n"
            f'dir {self._directory}\nsave ""\nappendonly no\n'
        )
        processes.start("redis", [program, str(config)], os.environ, log)

    def answers(self) -> bool:
        """Return whether the server can be used."""
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.ConnectionError:
            return False
