"""A real Airflow with CeleryExecutor: two workers, a Redis broker, and Postgres for metadata and Celery's results.

Redis and Postgres come from the Debian packages `redis-server` and `postgresql`; the lab starts servers of its own, on
Unix sockets in a directory of its own, with passwords made at run time. Nothing listens on a network port but
Airflow's API server on loopback.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import database_search
import redis
import sqlalchemy as sa
from airflow_home import migrate, template
from airflow_lab import AirflowLab
from redis_server import RedisServer

WORKERS = 2


class CeleryLab(AirflowLab):
    """Airflow on Celery; the interface is `AirflowLab`'s, with workers that can be killed.

    Processes beside the usual: worker-1, worker-2, redis, postgres.
    """

    def __init__(self, home: Path, dags: Path, env: Mapping[str, str] | None = None) -> None:
        super().__init__(home, dags, env)
        self._servers = Path()
        self._password = secrets.token_hex(16)

    def components(self) -> dict[str, tuple[str, ...]]:
        """The usual ones and the workers."""
        worker = ("celery", "worker", "--skip-serve-logs", "--without-gossip", "--without-mingle", "--concurrency", "2")
        workers = {f"worker-{n}": (*worker, "--celery-hostname", f"worker-{n}@%h") for n in range(1, WORKERS + 1)}
        return {**super().components(), **workers}

    def settings(self) -> dict[str, str]:
        """The usual ones, with Celery's."""
        return {
            **super().settings(),
            "CORE__EXECUTOR": "CeleryExecutor",
            "CELERY__BROKER_URL": self._redis.url,
            "CELERY__RESULT_BACKEND": f"db+{self.database}",
            # Celery's inspection of all workers at each start of one is of no use to a test.
            "CELERY__WORKER_ENABLE_REMOTE_CONTROL": "False",
        }

    # Workers

    def kill_worker(self, n: int) -> None:
        """SIGKILL to a worker and all that runs in it, tasks too, as when its machine is lost."""
        self._running.end(f"worker-{n}", signal.SIGKILL)

    def _starts(self, n: int) -> int:
        """How often this worker has said that it is ready."""
        return self._log(f"worker-{n}").read_text(errors="replace").count(" ready. ")

    def worker_of(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> int:
        """The number of the worker that runs this task instance now; 0 if none does."""
        pids = set(self.worker_pids(dag_id, run_id, task_id, map_index))
        alive = [n for n in range(1, WORKERS + 1) if f"worker-{n}" in self._running.names()]
        return next((n for n in alive if pids & self._running.pids(f"worker-{n}")), 0)

    # Search

    def grep(self, needle: str) -> list[str]:
        """As in the base, in Postgres, and in what lies in Redis."""
        return super().grep(needle) + self._grep_redis(needle)

    def _grep_redis(self, needle: str) -> list[str]:
        with self._redis.client() as broker:
            return [
                f"queue {key.decode(errors='replace')}"
                for key in broker.scan_iter("*")
                if any(database_search.in_bytes(each, needle, self.fernet_key) for each in (key, *_values(broker, key)))
            ]

    # Inside

    def stop(self) -> None:
        """Ends all processes; Postgres after its clients, for a killed one leaves shared memory behind."""
        if self._processes is not None and "postgres" in self._processes.names():
            for name in [*self.components(), "redis"]:
                if name in self._processes.names():
                    self._processes.end(name, signal.SIGKILL)
            self._processes.end("postgres", grace=20)
        super().stop()
        if self._servers.name:
            shutil.rmtree(self._servers, ignore_errors=True)

    def _healthy(self) -> bool:
        return super()._healthy() and all(self._starts(n) for n in range(1, WORKERS + 1))

    def _prepare(self) -> None:
        # Short, for the path of a Unix socket has 107 bytes; not below home, for Postgres runs as its own user.
        self._servers = Path(tempfile.mkdtemp(prefix="weblake-lab-"))
        self._running.remove_at_end(self._servers)
        self._redis = RedisServer(self._servers)
        self._redis.start(self._running, self._log("redis"))
        self.until("Redis to answer", self._redis.answers, 240, self._tails)
        self._start_postgres()
        self._migrate()

    def _migrate(self) -> None:
        """Fill the metadata database: from a dump of a migrated one, made once per machine and set of distributions."""
        programs = Path(_program("postgres")).resolve().parent
        env = {"PATH": os.environ["PATH"], "PGPASSWORD": self._password}
        access = ["--host", str(self._servers), "--username", "airflow", "--dbname", "airflow"]

        def run(program: str, *arguments: str) -> None:
            command = [str(programs / program), *access, *arguments]
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, f"{program} failed:\n{done.stderr[-4000:]}"

        def make(fresh: Path) -> None:
            migrate(self.environment())
            run("pg_dump", "--no-owner", "--file", str(fresh))

        dump, made = template(f"metadata-postgres-{programs.parent.name}", ".sql", make)
        if not made:
            run("psql", "--quiet", "--no-psqlrc", "--set", "ON_ERROR_STOP=1", "--file", str(dump))

    def _start_postgres(self) -> None:
        user = "postgres" if os.getuid() == 0 else None  # Postgres refuses to run as root
        data, word = self._servers / "postgres", self._servers / "password"
        word.touch(mode=0o600)
        word.write_text(self._password)
        data.mkdir()
        if user:
            owner = pwd.getpwnam(user)
            for path in (self._servers, data, word):
                os.chown(path, owner.pw_uid, owner.pw_gid)
        made = subprocess.run(
            [_program("initdb"), *f"-D {data} --pwfile={word} -U airflow -A scram-sha-256 -N -E UTF8".split()],
            user=user, group=user, extra_groups=[] if user else None, cwd=self._servers,
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert made.returncode == 0, f"initdb failed:\n{made.stdout}\n{made.stderr}"
        # The data lives as long as the lab: no write to it needs to survive the machine.
        options = {"listen_addresses": "", "unix_socket_directories": str(self._servers), "fsync": "off"}
        options |= {"full_page_writes": "off", "synchronous_commit": "off", "max_connections": "200"}
        command = [_program("postgres"), "-D", str(data), *(f"--{key}={value}" for key, value in options.items())]
        self._running.start(
            "postgres", command, {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}, self._log("postgres"),
            cwd=self._servers, user=user, stop_signal=signal.SIGINT,
        )  # fmt: skip
        self.database = self._postgres("postgres")
        self.until("Postgres to answer", self._postgres_answers, 240, self._tails)
        engine = sa.create_engine(self.database, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        with engine.connect() as db:
            db.execute(sa.text("CREATE DATABASE airflow"))
        self.database = self._postgres("airflow")

    def _postgres(self, name: str) -> str:
        return f"postgresql+psycopg2://airflow:{self._password}@/{name}?host={self._servers}"

    def _postgres_answers(self) -> bool:
        try:
            with sa.create_engine(self.database, poolclass=sa.NullPool).connect():
                return True
        except sa.exc.OperationalError:
            return False

    def _log(self, name: str) -> Path:
        return self.home / "processes" / f"{name}.log"


def _values(broker: redis.Redis, key: bytes) -> Iterator[bytes]:
    """All values below one key, as bytes."""
    read: dict[bytes, Callable[[], Any]] = {
        b"string": lambda: [broker.get(key)],
        b"list": lambda: broker.lrange(key, 0, -1),
        b"hash": lambda: [part for pair in broker.hgetall(key).items() for part in pair],
        b"set": lambda: broker.smembers(key),
        b"zset": lambda: broker.zrange(key, 0, -1),
    }
    kind = broker.type(key)
    assert isinstance(kind, bytes)
    if kind != b"none":  # gone meanwhile
        yield from (each for each in read[kind]() if each is not None)


def _program(name: str) -> str:
    """A server's program, from PATH or where Debian keeps Postgres' ones."""
    places = [os.environ["PATH"], *(str(each) for each in sorted(Path("/usr/lib/postgresql").glob("*/bin"))[::-1])]
    found = shutil.which(name, path=os.pathsep.join(places))
    assert found, f"{name} is not installed: apt-get install redis-server postgresql"
    return found
