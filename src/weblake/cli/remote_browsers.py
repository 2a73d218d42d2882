"""The commands browser create, list, execute and close, interact, and stop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from weblake import output
from weblake.cli.app import ContractOptions, Json, ServiceOptions
from weblake.errors import InvalidOption

Code = Annotated[str | None, typer.Option("--code", help="Code to run; `@FILE` reads it from a file.")]
Language = Annotated[str | None, typer.Option("--language", help="Language of the code: node, python or bash.")]
Seconds = Annotated[int | None, typer.Option("--timeout", metavar="SECONDS", help="Time limit of the code, 1 to 300.")]


def create(
    options: ContractOptions,
    service: ServiceOptions,
    ttl: Annotated[
        int | None, typer.Option(metavar="SECONDS", help="Maximum lifetime of the session, 30 to 3600.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Creates a session and prints its addresses."""
    with service.connect() as client:
        made = client.create_browser(**options.keyword_arguments(ttl=ttl))
    if as_json:
        output.show_json(made.raw)
        return
    raw = made.raw if isinstance(made.raw, dict) else {}
    # Lines, because a table would fold the addresses, which are there to be copied.
    for name in ("id", "cdpUrl", "liveViewUrl", "interactiveLiveViewUrl", "expiresAt"):
        output.show_text(f"{name}: {raw.get(name) or ''}")


def list_(
    service: ServiceOptions,
    status: Annotated[str | None, typer.Option(help="Only sessions with this status: active or destroyed.")] = None,
    as_json: Json = False,
) -> None:
    """Lists the sessions of the team."""
    with service.connect() as client:
        found = client.list_browsers(**ContractOptions().keyword_arguments(status=status))
    if as_json:
        output.show_json(found.raw)
        return
    columns = ("id", "status", "created", "last activity")
    rows = [(s.id, s.status, s.created_at, s.last_activity) for s in found.sessions]
    output.show_table("Browser sessions", columns, rows, whole="id")


def execute(
    session_id: str,
    service: ServiceOptions,
    code: Code = None,
    language: Language = None,
    timeout: Seconds = None,
    as_json: Json = False,
) -> None:
    """Runs code in a session and prints its output."""
    given = ContractOptions().keyword_arguments(language=language, timeout=timeout)
    with service.connect() as client:
        result = client.execute_in_browser(session_id, _code(code) or "", **given)
    _show_result(result.raw, as_json)


def close(session_id: str, service: ServiceOptions, as_json: Json = False) -> None:
    """Closes a session."""
    with service.connect() as client:
        closed = client.delete_browser(session_id)
    output.show_json(closed.raw) if as_json else output.show_text(f"Session {session_id} is closed.")


def interact(
    scrape_id: str,
    service: ServiceOptions,
    prompt: Annotated[
        str | None, typer.Option("--prompt", help="Task for the service's language model, in words.")
    ] = None,
    code: Code = None,
    language: Language = None,
    timeout: Seconds = None,
    as_json: Json = False,
) -> None:
    """Continues in the browser of a scrape: with code, or with a prompt."""
    given = ContractOptions().keyword_arguments(prompt=prompt, code=_code(code), language=language, timeout=timeout)
    with service.connect() as client:
        result = client.interact(scrape_id, **given)
    _show_result(result.raw, as_json)


def stop(scrape_id: str, service: ServiceOptions, as_json: Json = False) -> None:
    """Stops the browser of a scrape and shows what it cost."""
    with service.connect() as client:
        closed = client.stop_interact(scrape_id)
    if as_json:
        output.show_json(closed.raw)
        return
    seconds = (closed.session_duration_ms or 0) / 1000
    output.show_text(f"Stopped after {seconds:g} s; {closed.credits_billed or 0:g} credits billed.")


def _code(text: str | None) -> str | None:
    if text is None or not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOption(f"{text[1:]} cannot be read: {error}.") from None


def _show_result(raw: object, as_json: bool) -> None:
    raw = raw if isinstance(raw, dict) else {}
    if as_json:
        output.show_json(raw)
    else:
        for name in ("output", "stdout", "result"):
            if isinstance(raw.get(name), str) and (name != "result" or raw.get("stdout") != raw["result"]):
                output.show_text(str(raw[name]))
    trouble = raw.get("error") or raw.get("stderr")
    if isinstance(trouble, str) and trouble:
        output.note(escape(trouble))
    if raw.get("success") is False or raw.get("killed") is True or raw.get("exitCode") not in (0, None):
        raise typer.Exit(1)
