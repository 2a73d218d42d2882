"""The command orphans, which lists loads that have not landed, and the remedy of each."""

from __future__ import annotations

import re
import shlex
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from weblake import output
from weblake.api.job_kinds import JOB_KINDS
from weblake.cli.app import FAILED, Json, RootArgument, ServiceOptions
from weblake.credentials import one_line
from weblake.dataset import layout
from weblake.errors import WeblakeError
from weblake.orchestration import open_dataset

if TYPE_CHECKING:
    from weblake.loads.orphans import Orphan, Unlanded

#: The id of a run of Dagster; that of a backfill is eight letters.
_RUN_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
#: Maximum characters of a line: a target may be any text.
MAX_CHARS = 1000


def orphans(
    root: RootArgument,
    service: ServiceOptions,
    unknown_jobs: Annotated[
        bool, typer.Option("--unknown-jobs", help="Also list jobs of the last 24 hours that belong to no load of ROOT.")
    ] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Read the ledger only; send no request to the service.")
    ] = False,
    older_than: Annotated[
        float, typer.Option("--older-than", metavar="HOURS", min=0, help="Only loads whose intent is older than this.")
    ] = 0.0,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 if there are such loads.")] = False,
    as_json: Json = False,
) -> None:
    """Lists loads that have not landed, finds their jobs, and says what to do. Changes nothing in ROOT."""
    from weblake.loads import orphans as unlanded

    dataset = open_dataset(root)
    layout.check_holds_dataset(dataset.storage)
    if offline:
        found = unlanded.open_loads(dataset)
    else:
        try:
            with service.connect() as client:
                found = unlanded.find_open_loads(client, dataset, unknown_jobs=unknown_jobs)
                if client.is_embedded and any(each.state == "scraping" for each in found.orphans):
                    output.note("weblake: the embedded service went on with its running jobs during this command.")
        except WeblakeError as error:  # without a service the ledger can still be listed
            known = unlanded.open_loads(dataset)
            found = replace(known, unasked=error)
    if found.unasked is not None:
        text = f"the service could not be asked, so this is the ledger's part only: {found.unasked}"
        output.note(f"weblake: {escape(' '.join(text.split()))}")
    found = replace(found, orphans=tuple(each for each in found.orphans if each.age_s >= older_than * 3600))
    if as_json:
        output.show_json(_as_json(found, root))
    else:
        _show(found, root)
    if check and (found.orphans or found.unreadable):
        raise typer.Exit(FAILED)


def advice(orphan: Orphan, root: str) -> list[str]:
    """Return the remedy of an orphan, in whole sentences."""
    from weblake.loads.orphans import GONE, NOT_STARTED, OPEN, PUBLISHED

    finish = _finish(orphan, root)
    if orphan.superseded:
        sentences = ["A later load of its task has taken its place, so nothing has to be done."]
        if orphan.kind in JOB_KINDS and orphan.job_id is not None:
            sentences.append(f"To land its pages as well: {_land(orphan, orphan.job_id, root)}, with --allow-partial.")
        return sentences
    if orphan.record == NOT_STARTED:
        return [f"Nothing was started. To start and land it: {finish}."]
    if orphan.record == PUBLISHED:
        return [f"Its file is published, and only its done record is missing: {finish}."]
    if orphan.record == OPEN:
        return _start_advice(orphan, root, finish)
    if orphan.state == GONE:
        return [
            "This service does not have its job. If it was started at another one, set WEBLAKE_BASE_URL to it. If not, "
            "its results are lost" + _start_afresh(orphan)
        ]
    return _job_advice(orphan, root, finish)


def _job_advice(orphan: Orphan, root: str, finish: str) -> list[str]:
    """Return the remedy of a load whose job is on record; without the job's state no remedy says what it costs."""
    sentences = [f"To land it without payment: {finish}."]
    if orphan.state is None:
        sentences = [
            f"The state of its job is unknown: ask the service first. To land it if the job has not failed: {finish}."
        ]
    by_id = _land(orphan, str(orphan.job_id), root)
    if orphan.state in ("failed", "cancelled"):
        by_id += ", with --allow-partial"
        if orphan.run is not None and not orphan.elsewhere:
            return [
                f"Its job ended as {orphan.state!r}. To land its pages: {by_id}. A retry of what requested it would "
                "start another job."
            ]
        sentences = [f"Its job ended as {orphan.state!r}. To land its pages: {finish}, with --allow-partial."]
    elif orphan.state != "completed" and orphan.task[:1] == ("airflow",) and not orphan.elsewhere:
        free = "" if orphan.state is None else " without payment"
        sentences = [
            "If its task waits or runs, leave it: to clear it would cancel the job. If it does not, to land the load"
            f"{free}: {finish}."
        ]
    if orphan.kind in JOB_KINDS and not orphan.elsewhere:
        sentences.append(f"If that is not possible any more: {by_id}.")
    if orphan.kind in JOB_KINDS and orphan.state not in ("completed", "failed", "cancelled"):
        sentences.append(f"To cancel it: `weblake cancel {JOB_KINDS[orphan.kind].command} {orphan.job_id}`.")
    return sentences


def in_place_of_new(new_key: str | None) -> str:
    """Return how to give the key of a load that was started with --new, which would pay again; empty for None."""
    return "" if new_key is None else f"with --key {new_key} in place of --new"


def _start_afresh(orphan: Orphan) -> str:
    if orphan.elsewhere:
        return "."
    return "; to start it again: " + ("--new." if orphan.run is None else "a new run.")


def unreadable_text(load_id: str, why: str) -> str:
    """Return the message about a load whose records cannot be read."""
    return f"load {load_id} cannot be read: {why} Restore it from a backup, or upgrade weblake."


def _start_advice(orphan: Orphan, root: str, finish: str) -> list[str]:
    if orphan.replay:
        return [f"The service knows its key: nothing is paid twice, whether it was started or not. {finish}."]
    if orphan.candidates is None:
        return [f"It is unknown whether it was started. To find out: {finish}."]
    if not orphan.candidates:
        return [f"The service lists no job for it. Unless it is being started now, nothing was started: {finish}."]
    if len(orphan.candidates) == 1:
        return [f"Job {orphan.candidates[0]} is probably its job. To land it: {finish}."]
    several = f"{len(orphan.candidates)} jobs may be it: {', '.join(orphan.candidates[:5])}."
    if orphan.kind not in JOB_KINDS:
        afresh = "start afresh with --new" if orphan.run is None else "start it in a new run"
        return [several, f"If it does not matter that it may be paid twice, {afresh}."]
    each = "; ".join(_land(orphan, job_id, root) for job_id in orphan.candidates[:5])
    return [several, f"Look at them with `weblake status`, and land the right one: {each}."]


def _finish(orphan: Orphan, root: str) -> str:
    """Return how to continue the load under its own id."""
    if orphan.elsewhere and orphan.job_id is not None:
        return _land(orphan, orphan.job_id, root)
    if orphan.run is not None:
        return _retry(orphan)
    named = in_place_of_new(orphan.new_key)
    return f"run the same `weblake {_command(orphan)} …` again{named and ', ' + named} (in Python the same call)"


def _retry(orphan: Orphan) -> str:
    """Return how to continue a load in the words of its orchestrator."""
    if orphan.task[:1] == ("airflow",) and len(orphan.task) >= 4:
        _, dag, task, index, *partition = orphan.task
        mapped = "" if index == "-1" else f" (map index {index})"
        of = "".join(f", partition {each}" for each in partition)
        return f"clear the Airflow task {dag}.{task}{mapped}{of} in its run {orphan.run}"
    if orphan.task[:1] == ("dagster",) and len(orphan.task) >= 2:
        _, asset, *partition = orphan.task
        of = "".join(f", partition {each}," for each in partition)
        kind = "run" if _RUN_ID.fullmatch(orphan.run or "") else "backfill"
        # A run that only starts a job has succeeded, and Dagster re-executes it as a whole.
        return (
            f"re-execute Dagster's {kind} {orphan.run} of the asset {asset}{of} from failure (all of it, if it has "
            "succeeded)"
        )
    return f"retry what requested it, in its run {orphan.run}"


def _land(orphan: Orphan, job_id: str, root: str) -> str:
    keys = "".join(f" --partition {shlex.quote(f'{key}={value}')}" for key, value in (orphan.partition or {}).items())
    return f"`weblake land {_command(orphan)} {job_id} --to {shlex.quote(root)}{keys}`"


def _command(orphan: Orphan) -> str:
    """Return the command for loads of this kind."""
    return JOB_KINDS[orphan.kind].command if orphan.kind in JOB_KINDS else orphan.kind


def _as_json(found: Unlanded, root: str) -> dict[str, object]:
    shape: dict[str, object] = {
        "orphans": [each.to_dict() | {"next": advice(each, root)} for each in found.orphans],
        "cancelled": [each.to_dict() | {"next": advice(each, root)} for each in found.cancelled],
        "refused": list(found.refused),
        "refused_keys": dict(found.refused_keys),
        "unreadable": [asdict(each) for each in found.unreadable],
        "asked": found.unasked is None and all(not each.why for each in found.orphans),
    }
    if found.unknown_jobs is not None:
        shape["unknown_jobs"] = [asdict(each) for each in found.unknown_jobs]
    if found.unasked is not None:
        shape["unasked"] = found.unasked.to_dict()
    return shape


def _show(found: Unlanded, root: str) -> None:
    for each in found.orphans:
        kind = each.kind.removesuffix("_scrape")
        output.show_text(f"{each.load_id}  {kind}, requested {each.created_at[:16].replace('T', ' ')} UTC")
        pages = "" if each.submitted is None else f"{each.submitted} URLs, first "
        asked_by = "" if each.run is None else f"; {' '.join(each.task) or f'slot {each.slot}'}, run {each.run}"
        _show_line(f"for: {pages}{each.first_target or 'a job started elsewhere'}{asked_by}")
        job = "" if each.job_id is None else f", job {each.job_id}"
        state = "" if each.state is None else f", {each.state}"
        _show_line(f"on record: {each.record}{job}{state}")
        for line in (*([f"the service: {each.why}"] if each.why else []), *advice(each, root)):
            _show_line(line)
    if not found.orphans and not found.unreadable:
        output.show_text(f"No load of {root} is open.")
    if found.cancelled:
        named = ", ".join(f"{each.load_id} (job {each.job_id})" for each in found.cancelled[:5])
        output.note(
            f"weblake: loads whose jobs were cancelled, or whose place a later load of the same task has taken "
            f"({len(found.cancelled)}): {escape(named)}. `weblake orphans --json` says how to land their pages."
        )
    if found.refused:
        output.note(
            f"weblake: incomplete loads that are kept ({len(found.refused)}): {', '.join(found.refused[:5])}. "
            "The same command with --allow-partial (a retry with allow_partial=True) publishes each."
        )
        for load_id in found.refused[:5]:
            if load_id in found.refused_keys:
                output.note(f"weblake: load {load_id} goes on {in_place_of_new(found.refused_keys[load_id])}.")
    for each_unreadable in found.unreadable:
        output.note(
            f"weblake: {escape(one_line(unreadable_text(each_unreadable.load_id, each_unreadable.why), MAX_CHARS))}"
        )
    if found.unknown_jobs is not None:
        rows = [(each.created_at, each.kind, each.job_id, each.target) for each in found.unknown_jobs]
        if not rows:
            output.show_text(f"Every job of the last 24 hours belongs to a load of {root}.")
            return
        output.show_table(
            "Jobs that belong to no load of this root", ("created", "kind", "job", "target"), rows, whole="job"
        )


def _show_line(text: str) -> None:
    """Print one line, which may contain text of a page or a service."""
    output.show_text(f"  {one_line(text, MAX_CHARS)}")
