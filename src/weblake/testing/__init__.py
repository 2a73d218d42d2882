"""A pytest plugin that runs the real service for tests on a loopback port, without an account, with helper fixtures.

Installing weblake registers it; it requires the extra `weblake[local]`. docs/site/tasks/testing.md describes its use.

    def test_my_pipeline(weblake_service, weblake_site, weblake_faults, tmp_path):
        weblake_faults.add(status=503, path="/v2/batch/scrape$")                 # the start fails once
        with weblake_service.client() as client:
            receipt = weblake.land_batch(weblake_site.urls(), to=tmp_path, client=client)
        assert receipt.stored == len(weblake_site.urls())

weblake_service           the service, in this process or a separate one (`--weblake-service=process`)
weblake_service_process   a service in a separate process that the test may kill and restart
weblake_environment       WEBLAKE_BASE_URL and WEBLAKE_API_KEY set to weblake_service
weblake_faults            injects faults
weblake_site              a web site with known content
weblake_webhooks          a receiver of webhooks
weblake_llm               an OpenAI-compatible endpoint with scripted responses, which weblake_service then uses

The service is empty at the start of every test: no jobs, no usage, no faults, the clock at the current time.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from weblake.testing.faults import WeblakeFaults
    from weblake.testing.llm import WeblakeLlm
    from weblake.testing.process import WeblakeServiceProcess
    from weblake.testing.service import WeblakeService
    from weblake.testing.site import WeblakeSite
    from weblake.testing.webhooks import WeblakeWebhooks

__all__ = ["WeblakeFaults", "WeblakeLlm", "WeblakeService", "WeblakeServiceProcess", "WeblakeSite", "WeblakeWebhooks"]

_MODULE_OF_NAME = {
    "WeblakeFaults": "faults",
    "WeblakeLlm": "llm",
    "WeblakeService": "service",
    "WeblakeServiceProcess": "process",
    "WeblakeSite": "site",
    "WeblakeWebhooks": "webhooks",
}
_IN_PROCESS, _PROCESS = "in-process", "process"
_REPORTED_FIXTURES = ("weblake_service", "weblake_service_process")


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module 'weblake.testing' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"weblake.testing.{_MODULE_OF_NAME[name]}"), name)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options for the service's process and the seed."""
    where = "where weblake_service runs: in-process (default), or in a process of its own"
    seed = "what the ids of weblake_service and the texts of weblake_site follow from (default: 1)"
    group = parser.getgroup("weblake")
    group.addoption("--weblake-service", choices=[_IN_PROCESS, _PROCESS], help=where)
    group.addoption("--weblake-seed", type=int, metavar="N", help=seed)
    parser.addini("weblake_service", where)
    parser.addini("weblake_seed", seed)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        "weblake_service(**config): a service of the test's own, with these fields of ServiceConfig, "
        "such as plan_credits=10 or requests_per_minute=2",
    )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Add the requests and faults of the service to the report of a failed test."""
    outcome = yield
    report = outcome.get_result()
    if report.when == "call" and report.failed:
        for name in _REPORTED_FIXTURES:
            service = getattr(item, "funcargs", {}).get(name)
            if service is not None:
                report.sections.append((name, service.report()))


@pytest.fixture(scope="session")
def _weblake_server(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WeblakeService | WeblakeServiceProcess]:
    if _service_location(pytestconfig) == _PROCESS:
        with _process(pytestconfig, tmp_path_factory, {}) as process:
            yield process
    else:
        yield from _in_process(_seed(pytestconfig), {})


@pytest.fixture
def weblake_service(
    request: pytest.FixtureRequest, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WeblakeService]:
    """The embedded weblake service, empty: url, key, client(), faults, requests(), counts(), advance(seconds)."""
    config = _marker_fields(request)
    if not config:
        service = request.getfixturevalue("_weblake_server")
        service.reset()
        yield service
        service.close_clients()
    elif _service_location(pytestconfig) == _PROCESS:
        with _process(pytestconfig, tmp_path_factory, config) as process:
            yield process
    else:
        yield from _in_process(_seed(pytestconfig), config)


@pytest.fixture
def weblake_service_process(
    request: pytest.FixtureRequest, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WeblakeServiceProcess]:
    """A service in a separate process with its own database, which tests can kill and restart: kill(), restart()."""
    with _process(pytestconfig, tmp_path_factory, _marker_fields(request)) as process:
        yield process


@pytest.fixture
def weblake_environment(weblake_service: WeblakeService, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """WEBLAKE_BASE_URL and WEBLAKE_API_KEY, set to weblake_service for this test."""
    environment = weblake_service.environment()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return environment


@pytest.fixture
def weblake_faults(weblake_service: WeblakeService) -> WeblakeFaults:
    """Injects faults into weblake_service: add(…), clear(), hits(). There are none at the start of a test."""
    return weblake_service.faults


@pytest.fixture
def weblake_site(pytestconfig: pytest.Config) -> Iterator[WeblakeSite]:
    """A site on loopback, new for each test: url, urls(), pages, add(…), hold(path), fail(path), change(path)."""
    from weblake.testing.site import WeblakeSite

    with WeblakeSite(_seed(pytestconfig)) as site:
        yield site


@pytest.fixture
def weblake_webhooks(request: pytest.FixtureRequest) -> Iterator[WeblakeWebhooks]:
    """A receiver of webhooks, new for each test: url, wait(event), deliveries, answer(status, times)."""
    from weblake.testing.webhooks import SECRET, WeblakeWebhooks

    with WeblakeWebhooks(_marker_fields(request).get("webhook_secret", SECRET)) as receiver:
        yield receiver


@pytest.fixture
def weblake_llm() -> Iterator[WeblakeLlm]:
    """A scripted endpoint instead of a language model, new for each test: say(…), fail(…), drop(), stall(), requests.

    In a test that uses it, weblake_service (or weblake_service_process) is a separate service that uses the endpoint.
    """
    from weblake.testing.llm import WeblakeLlm

    with WeblakeLlm() as endpoint:
        yield endpoint


def _service_location(config: pytest.Config) -> str:
    where = str(config.getoption("--weblake-service") or config.getini("weblake_service") or _IN_PROCESS)
    if where not in (_IN_PROCESS, _PROCESS):
        raise pytest.UsageError(f"weblake_service is {where!r} in the ini file: it is {_IN_PROCESS} or {_PROCESS}.")
    return where


def _seed(config: pytest.Config) -> int:
    given = config.getoption("--weblake-seed")
    text = str(config.getini("weblake_seed") or "1") if given is None else str(given)
    try:
        return int(text)
    except ValueError:
        raise pytest.UsageError(f"weblake_seed is {text!r} in the ini file: it is a whole number.") from None


def _marker_fields(request: pytest.FixtureRequest) -> Mapping[str, Any]:
    """Return the fields of the service's configuration from the markers; the nearest marker takes precedence."""
    config: dict[str, Any] = {}
    for mark in request.node.iter_markers("weblake_service"):
        config = {**mark.kwargs, **config}
    if "weblake_llm" in request.fixturenames:
        config = {**request.getfixturevalue("weblake_llm").config(), **config}
    return config


def _in_process(seed: int, config: Mapping[str, Any]) -> Iterator[WeblakeService]:
    missing, wrong = None, ""
    try:
        from weblake_service.config import ServiceConfig
        from weblake_service.server import LocalService
    except ModuleNotFoundError as error:
        missing = (error.name or "?").partition(".")[0]
    if missing is not None:
        _raise_missing_extra(missing)
    from weblake.testing.service import KEY, WeblakeService
    from weblake.testing.webhooks import SECRET

    try:
        settings = ServiceConfig(**{"testing": True, "seed": seed, "webhook_secret": SECRET, **config})
    except TypeError as error:
        wrong = str(error)
    if wrong:
        pytest.fail(f"The marker weblake_service names what ServiceConfig has not: {wrong}", pytrace=False)
    with LocalService(keys=KEY, config=settings) as running:
        service = WeblakeService(running)
        yield service
        service.close_clients()


def _process(
    config: pytest.Config, folders: pytest.TempPathFactory, marked: Mapping[str, Any]
) -> WeblakeServiceProcess:
    from importlib.util import find_spec

    from weblake.testing.process import WeblakeServiceProcess
    from weblake.testing.webhooks import SECRET

    if find_spec("starlette") is None:
        _raise_missing_extra("starlette")
    settings = {"seed": _seed(config), "webhook_secret": SECRET, **marked}
    return WeblakeServiceProcess(folders.mktemp("weblake-service"), settings)


def _raise_missing_extra(name: str) -> None:
    pytest.fail(
        f"weblake_service needs a package that is not installed ({name}): pip install 'weblake[local]'", pytrace=False
    )
