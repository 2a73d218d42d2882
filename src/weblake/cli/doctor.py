"""The command doctor, which checks what loads need and says what to correct."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Annotated

import typer
from packaging.requirements import Requirement
from rich.markup import escape

from weblake import credentials, output
from weblake.cli.app import FAILED, Json, ServiceOptions
from weblake.client import Client
from weblake.dataset import layout
from weblake.errors import WeblakeError
from weblake.orchestration import open_dataset, refuse_memory

OK, NOTE, PROBLEM = "ok", "note", "problem"
#: Seconds between this machine's clock and the service's that are no problem.
MAX_CLOCK_DIFFERENCE_S = 30.0
#: Seconds in which the service has to answer.
TIMEOUT_S = 10.0
#: The orchestrators, and the package that integrates each.
INTEGRATIONS = {"apache-airflow": "airflow-provider-weblake", "dagster": "dagster-weblake"}
_SYSTEMS = ("Linux", "Darwin")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: what was found, and what to do if it is no good."""

    check: str
    #: OK, NOTE (worth knowing, nothing has to be done) or PROBLEM.
    status: str
    text: str
    remedy: str = ""


def doctor(
    service: ServiceOptions,
    root: Annotated[
        str | None,
        typer.Argument(metavar="ROOT", help="Also check this root, as a load would; it is made if it does not exist."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Checks this machine, the packages, the service, its key and ROOT. Costs nothing and changes no load.

    In Airflow's or Dagster's environment, set WEBLAKE_BASE_URL and WEBLAKE_API_KEY to what the connection or the
    resource has. The key is not printed. The exit code is 1 if there is a problem.
    """
    findings = []
    for finding in _findings(service, root):
        findings.append(finding)
        if not as_json:
            _show(finding)
    healthy = all(each.status != PROBLEM for each in findings)
    if as_json:
        output.show_json({"ok": healthy, "checks": [asdict(each) for each in findings]})
    if not healthy:
        raise typer.Exit(FAILED)


def _show(finding: Finding) -> None:
    colour = {OK: "green", NOTE: "yellow", PROBLEM: "red"}[finding.status]
    remedy = f" {finding.remedy}" if finding.remedy else ""
    line = escape(credentials.one_line(f"{finding.check}: {finding.text}{remedy}", 1000))
    output.out.print(f"[{colour}]{finding.status:7}[/{colour}]  {line}")


def _findings(service: ServiceOptions, root: str | None) -> Iterator[Finding]:
    yield _system()
    yield from _packages()
    try:
        with service.connect() as client:
            yield from _service(client, credentials.find(service.base_url, insecure=True))
    except WeblakeError as error:
        yield _problem("service", error)
    if root is not None:
        yield from _root(root)


def _problem(check: str, error: WeblakeError) -> Finding:
    return Finding(check, PROBLEM, error.message, error.hint)


def _system() -> Finding:
    python, system = platform.python_version(), platform.system()
    supported = {each.rpartition(" ")[2] for each in metadata.metadata("weblake").get_all("Classifier") or ()}
    text = f"Python {python} on {system} {platform.release()}"
    if system not in _SYSTEMS:
        return Finding("system", PROBLEM, text, "Linux and macOS are supported; on Windows use WSL.")
    if python.rpartition(".")[0] not in supported:
        return Finding("system", PROBLEM, text, "This version of Python is not tested: use one that weblake names.")
    return Finding("system", OK, text)


def _packages() -> Iterator[Finding]:
    """Yield a finding for weblake and its extras, for pyarrow, and for each orchestrator that is installed."""
    yield _package("weblake")
    try:
        from weblake.arrow import pyarrow

        numpy = _version("numpy")
        yield Finding("pyarrow", OK, f"pyarrow {pyarrow.__version__}" + (f" with NumPy {numpy}" if numpy else ""))
    except WeblakeError as error:
        yield _problem("pyarrow", error)
    yield from _extras()
    for orchestrator, integration in INTEGRATIONS.items():
        found = _version(orchestrator)
        if _version(integration):
            yield _package(integration)
        elif found:
            yield Finding(
                orchestrator, NOTE, f"{orchestrator} {found} without {integration}.", f"pip install {integration}"
            )


def _package(name: str) -> Finding:
    """Return whether the packages that a package always needs are installed in versions that it supports."""
    needed = _requirements(name)
    wrong = [_described(each) for each in needed if not _fits(each)]
    text = f"{name} {_version(name)}"
    if wrong:
        return Finding(name, PROBLEM, f"{text} with {', '.join(wrong)}.", f"pip install --upgrade {name}")
    with_what = [f"{each.name} {_version(each.name)}" for each in needed if each.name in INTEGRATIONS]
    return Finding(name, OK, " with ".join([text, *with_what]))


def _extras() -> Iterator[Finding]:
    """Yield the extras of weblake that are installed, and those of which a package has an unsupported version."""
    extras = metadata.metadata("weblake").get_all("Provides-Extra") or ()
    wrong = {extra: [each for each in _requirements("weblake", extra) if not _fits(each)] for extra in sorted(extras)}
    whole, absent = (", ".join(each for each in wrong if bool(wrong[each]) is lacks) for lacks in (False, True))
    yield Finding("extras", OK, f"installed: {whole or 'none'}; not: {absent or 'none'}")
    for extra, needed in wrong.items():
        for each in needed:
            if _version(each.name):
                yield Finding("extras", NOTE, f"{_described(each)}.", f"pip install 'weblake[{extra}]'")


def _requirements(name: str, extra: str = "") -> list[Requirement]:
    """Return what an installed package always needs, or what one of its extras adds."""
    found = [each for each in map(Requirement, metadata.requires(name) or ()) if each.name != name]
    return [
        each
        for each in found
        if bool(extra) == ("extra" in str(each.marker)) and (not each.marker or each.marker.evaluate({"extra": extra}))
    ]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _fits(needed: Requirement) -> bool:
    version = _version(needed.name)
    return version is not None and needed.specifier.contains(version, prereleases=True)


def _described(needed: Requirement) -> str:
    return f"{needed.name} {_version(needed.name) or 'missing'} (needed: {needed.specifier})"


def _service(client: Client, settings: credentials.Settings | None) -> Iterator[Finding]:
    """Yield whether the service answers, accepts the key, and has the same time; the request costs nothing."""
    from weblake.loads.starts import check_service

    answered = client.run(check_service(client.retry, until=time.monotonic() + TIMEOUT_S))
    text = "the embedded service answers" if settings is None else f"{settings.base_url} answers and accepts the key"
    ahead_s = answered.clock_ahead_s
    if ahead_s is None:
        yield Finding(
            "service",
            PROBLEM,
            "it answers, and has no activity list: it is another service, or one that cannot find lost starts.",
            "Check that the base URL is the one that the service's documentation names.",
        )
        return
    repeats = "; it repeats the answer to an idempotency key" if answered.replays else ""
    yield Finding("service", OK, text + repeats)
    if abs(ahead_s) > MAX_CLOCK_DIFFERENCE_S:
        side = "behind" if ahead_s > 0 else "ahead of"
        text = f"this machine's clock is {abs(ahead_s):.0f} s {side} the service's."
        yield Finding("clock", PROBLEM, text, "Synchronize it by NTP: dates in paths and time limits come from it.")
    else:
        yield Finding("clock", OK, f"within {MAX_CLOCK_DIFFERENCE_S:.0f} s of the service's")


def _root(root: str) -> Iterator[Finding]:
    """Yield whether a load could be recorded and published in a root, and the loads that are open in it."""
    from weblake.loads import orphans

    try:
        dataset = open_dataset(root)
        refuse_memory(dataset, "this command")
        dataset.storage.preflight(layout.LOAD_TABLES[0])
        yield Finding("storage", OK, f"{dataset.url} can be written, and a file is created only if it is absent")
        found = orphans.open_loads(dataset)
    except WeblakeError as error:
        yield _problem("storage", error)
        return
    count = len(found.orphans) + len(found.unreadable)
    if count:
        text = f"{count} {'load has' if count == 1 else 'loads have'} not landed."
        yield Finding("loads", NOTE, text, f"`weblake orphans {root}` lists what to do, unless they run at the moment.")
    else:
        yield Finding("loads", OK, "none is open")
