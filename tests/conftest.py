"""Dataset roots for every test: a local directory, and a bucket on an S3 server over a real socket; and a site."""

from __future__ import annotations

import atexit
import functools
import gc
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from weblake.jobs import polling
from weblake.storage import Storage, open_storage

# Modules that several test folders share (sites, processes) are in tests/labs.
sys.path.insert(0, str(Path(__file__).parent / "labs"))
from catalogue import COLLECTED
from gated_site import GatedSite

# With this variable each process that a test starts compiles all its imports, which is half of its time: 0.5 s of CPU
# for weblake's command line, 1 s for Dagster, 2 s for Airflow.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# No garbage arises while tests are imported and collected, but the collector examines a growing heap again and again:
# a quarter of the CPU time of a collection. `pytest_collection_finish` enables it.
gc.disable()

with suppress(ModuleNotFoundError):  # the smoke tests run without it
    from botocore.loaders import JSONFileLoader

    # Each S3 file system has a session of its own, which would parse 3 MB of JSON again.
    _parsed = functools.cache(JSONFileLoader().load_file)
    JSONFileLoader.load_file = lambda _, path: _parsed(path)

with suppress(ModuleNotFoundError):
    from hypothesis import settings

    # Disabled: a deadline per example (200 ms by default) depends on the load of the machine.
    settings.register_profile("weblake", deadline=None, max_examples=25)
    # `--hypothesis-profile nightly` tries all examples given to `tiers.examples`, other profiles a part of them. Tests
    # that give no number have 100 there.
    settings.register_profile("nightly", deadline=None)
    settings.load_profile("weblake")


#: A file system in memory, on Linux. On a disk, tests wait for hundreds of thousands of fsyncs.
_MEMORY = "/dev/shm"
if os.access(_MEMORY, os.W_OK) and (free := os.statvfs(_MEMORY)).f_bavail * free.f_frsize > 3 * 2**30:
    os.environ.setdefault("TMPDIR", _MEMORY)
    tempfile.tempdir = None
_AIRFLOW_HOME = Path(tempfile.mkdtemp(prefix="weblake-airflow-home-"))
atexit.register(shutil.rmtree, _AIRFLOW_HOME, ignore_errors=True)
# Here, because Airflow reads them when it is imported, and tests outside of tests/airflow_provider import it, too.
os.environ |= {
    "AIRFLOW_HOME": str(_AIRFLOW_HOME),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__DAGS_FOLDER": str(_AIRFLOW_HOME / "dags"),
    "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{_AIRFLOW_HOME}/airflow.db?timeout=240",
    "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
    "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    "AIRFLOW__OPENLINEAGE__DISABLED": "True",
    "_AIRFLOW_PROCESS_CONTEXT": "client",
}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Remember the test, also if its marker deselects it: tests/promises compares the names in proofs."""
    item.config.stash.setdefault(COLLECTED, set()).add(item.nodeid)


def pytest_configure() -> None:
    """Restore SIGINT, SIGTERM and SIGHUP, because child processes inherit ignored signals.

    `nohup`, a shell's background job and some CI runners start pytest with one of them ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


_TESTS = Path(__file__).parent
#: Parts of the paths of tests that start whole servers: minutes for a file of a few tests.
_SERVERS = ("e2e", "celery", "_lab.py", "tests/demo/", "test_fresh_project")
_AIRFLOW = "tests/airflow_provider/"


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Let each worker import another folder first, because it can read the bytecode that another one has written.

    In the same order, all would compile each module at the same time.
    """
    report = yield
    if collector.path == _TESTS and (worker := os.environ.get("PYTEST_XDIST_WORKER")):
        first = int(worker.removeprefix("gw")) * len(report.result) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        report.result = report.result[first:] + report.result[:first]
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Give all workers one order, and run what takes longest first, so that no worker is alone with it at the end."""
    items.sort(key=lambda item: item.path.relative_to(_TESTS).parts[0])

    def order(item: pytest.Item) -> int:
        return 0 if any(part in item.nodeid for part in _SERVERS) else 1 if item.nodeid.startswith(_AIRFLOW) else 2

    yield  # other plugins shuffle them
    items.sort(key=order)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep each file of tests on one worker, as `--dist loadfile` does, and the files of the Airflow provider together.

    The first task that Airflow runs in a process costs 6 s of imports.
    """
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            together = file.startswith(_AIRFLOW) and not any(part in file for part in _SERVERS)
            return _AIRFLOW if together else file

    config.option.loadscopereorder = False  # the order of `pytest_collection_modifyitems`
    return Scheduling(config, log)


def pytest_collection_finish() -> None:
    """Enable the garbage collector, and let it leave alone the modules and items that live until the end."""
    gc.freeze()
    gc.enable()


#: The marker of a whole module, on a line of its own as ruff formats it.
_WHOLE_MODULE = re.compile(r"^pytestmark = (?:\[\s*)?pytest\.mark\.(system|nightly)\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import a module of which the run's marker expression leaves out all tests."""
    if not collection_path.name.startswith("test_"):
        return None
    marker = _WHOLE_MODULE.search(collection_path.read_text(encoding="utf-8"))
    return True if marker and f"not {marker[1]}" in config.getoption("markexpr") else None


def pytest_report_header(config: pytest.Config) -> str | None:
    """Return which tests a run leaves out."""
    left_out = []
    expression = config.getoption("markexpr")
    if "not system" in expression:
        left_out.append("`system`, which need Debian's strace, redis-server and chromium, or many seconds")
    if "not nightly" in expression:
        left_out.append("`nightly`, which sweep and fuzz for hours")
    if not left_out:
        return None
    return f"left out: tests marked {', and '.join(left_out)}; see CONTRIBUTING.md"


# One request at a time: concurrent requests are handled by moto's dictionary, which proves nothing. The tests prove
# that our requests are conditional. The application for S3 only: in a profile, moto's dispatcher to all services took a
# fifth to a quarter of the CPU time of a request.
_SERVER = """
import logging
from moto.server import create_backend_app
from werkzeug.serving import make_server
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = make_server("127.0.0.1", 0, create_backend_app("s3"), threaded=False)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """Yield the URL of a moto S3 server on a random loopback port."""
    server = subprocess.Popen([sys.executable, "-c", _SERVER], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        assert port, f"the S3 server ended with {server.wait(10)}"
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait(10)
        server.stdout.close()  # type: ignore[union-attr]


def new_s3_root(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Create a bucket, set environment variables that give access to it, and return an s3:// root in it."""
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test-key")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    bucket = f"bucket-{uuid.uuid4().hex[:12]}"
    # A client of boto3 would read the description of S3, which takes 0.1 s.
    urllib.request.urlopen(urllib.request.Request(f"{s3_endpoint}/{bucket}", method="PUT")).close()
    return f"s3://{bucket}/lake"


@pytest.fixture
def s3_root(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an s3:// root in a new bucket; environment variables give access to it, also in child processes."""
    return new_s3_root(s3_endpoint, monkeypatch)


@pytest.fixture(scope="module")
def module_s3_root(s3_endpoint: str) -> Iterator[str]:
    """Yield an s3:// root for the tests of a module that only read it."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield new_s3_root(s3_endpoint, monkeypatch)


@pytest.fixture
def local_root(tmp_path: Path) -> str:
    """Return a root that does not exist yet, in a directory that does."""
    return str(tmp_path / "lake")


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.system)])
def any_root(request: pytest.FixtureRequest) -> str:
    """Return a local root, then an s3:// root; the tests of `storage` have S3 in the default tier."""
    root: str = request.getfixturevalue(f"{request.param}_root")
    return root


@pytest.fixture(params=["local", "s3", "memory"])
def storage(request: pytest.FixtureRequest) -> Storage:
    """Return a local storage, then one on S3, then one in memory, each on its own root."""
    if request.param == "memory":
        return open_storage(f"memory://{uuid.uuid4().hex}/lake")
    return open_storage(request.getfixturevalue(f"{request.param}_root"))


@pytest.fixture(scope="session")
def _gated_site() -> Iterator[GatedSite]:
    site = GatedSite()
    yield site
    site.close()


@pytest.fixture
def site(_gated_site: GatedSite) -> Iterator[GatedSite]:
    """Yield a site with pages that are answered at once and pages that the test holds back."""
    _gated_site.release()
    yield _gated_site
    _gated_site.release()


@pytest.fixture(params=["UTC", "America/New_York", "Asia/Tokyo"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Set the time zone of the machine: the meaning of a date must not depend on it."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


#: Folders whose tests are about the pauses between polls.
_OWN_PAUSES = {"core", "hostile", "jobs"}


@pytest.fixture(autouse=True)
def _short_first_pause(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll a job again after 20 ms: jobs of the embedded service take a few, and the first pause is 0.3 s."""
    if request.path.relative_to(Path(__file__).parent).parts[0] not in _OWN_PAUSES:
        monkeypatch.setitem(polling.wait.__kwdefaults__, "first_s", 0.02)
