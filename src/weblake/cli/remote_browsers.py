"""browser create|list|execute|close, interact, stop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weblake import output
from weblake.cli.tree import BaseUrl, Insecure, Json, Options, connect, given_options
from weblake.errors import InvalidOption

Code = Annotated[str | None, typer.Option("--code", help="Code to run; `@FILE` reads it from a file.")]
Language = Annotated[str | None, typer.Option("--language", help="node, python or bash.")]
Seconds = Annotated[int | None, typer.Option("--timeout", metavar="SECONDS", help="1 to 300.")]

browser = typer.Typer(help="Remote browser sessions.", no_args_is_help=True)


@browser.command("create")
def create(
    ttl: Annotated[int | None, typer.Option(metavar="SECONDS", help="Life in all, 30 to 3600.")] = None,
    option: Options = None,
    as_json: Json = False,
    base_url: BaseUrl = None,
    insecure: Insecure = False,
) -> None:
    """Creates a session and prints its addresses."""
    given = given_options(option)
    if ttl is not None:
        given["ttl"] = ttl
    with connect(base_url, insecure) as client:
        made = client.create_browser(**given)  # type: ignore[arg-type]
    if as_json:
        output.show_json(made.raw)
        return
    names = ("id", "cdpUrl", "liveViewUrl", "interactiveLiveViewUrl", "expiresAt")
    raw = made.raw if isinstance(made.raw, dict) else {}
    # Lines, as a table would fold the addresses, and they are there to be copied.
    for name in names:
        output.show_text(f"{name}: {raw.get(name) or ''}")


@browser.command("list")
def list_sessions(
    status: Annotated[str | None, typer.Option(help="active or destroyed.")] = None,
    as_json: Json = False,
    base_url: BaseUrl = None,
    insecure: Insecure = False,
) -> None:
    """Lists the sessions of the team."""
    with connect(base_url, insecure) as client:
        found = client.list_browsers(**({"status": status} if status else {}))  # type: ignore[arg-type]
    if as_json:
        output.show_json(found.raw)
        return
    columns = ("id", "status", "created", "last activity")
    rows = [(s.id, s.status, s.created_at, s.last_activity) for s in found.sessions]
    output.show_table("Browser sessions", columns, rows, whole="id")


@browser.command("execute")
def execute(
    session_id: str,
    code: Code = None,
    language: Language = None,
    timeout: Seconds = None,
    as_json: Json = False,
    base_url: BaseUrl = None,
    insecure: Insecure = False,
) -> None:
    """Runs code in a session and prints what it printed."""
    given = _given(language=language, timeout=timeout)
    with connect(base_url, insecure) as client:
        result = client.execute_in_browser(session_id, _code(code) or "", **given)  # type: ignore[arg-type]
    _show_result(result.raw, as_json)


@browser.command("close")
def close(session_id: str, as_json: Json = False, base_url: BaseUrl = None, insecure: Insecure = False) -> None:
    """Closes a session."""
    with connect(base_url, insecure) as client:
        answer = client.delete_browser(session_id)
    output.show_json(answer.raw) if as_json else output.out.print(f"Session {session_id} is closed.")


def interact(
    scrape_id: str,
    prompt: Annotated[str | None, typer.Option("--prompt", help="What to do, in words.")] = None,
    code: Code = None,
    language: Language = None,
    timeout: Seconds = None,
    as_json: Json = False,
    base_url: BaseUrl = None,
    insecure: Insecure = False,
) -> None:
    """Goes on in the browser that a scrape left: with code, or in words."""
    given = _given(prompt=prompt, code=_code(code), language=language, timeout=timeout)
    with connect(base_url, insecure) as client:
        result = client.interact(scrape_id, **given)  # type: ignore[arg-type]
    _show_result(result.raw, as_json)


def stop(scrape_id: str, as_json: Json = False, base_url: BaseUrl = None, insecure: Insecure = False) -> None:
    """Stops the browser of a scrape and says what it cost."""
    with connect(base_url, insecure) as client:
        answer = client.stop_interact(scrape_id)
    if as_json:
        output.show_json(answer.raw)
        return
    seconds = (answer.session_duration_ms or 0) / 1000
    output.out.print(f"Stopped after {seconds:g} s; {answer.credits_billed or 0:g} credits billed.")


def register(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.add_typer(browser, name="browser")
    for command in (interact, stop):
        app.command()(command)


def _given(**options: object) -> dict[str, object]:
    return {name: value for name, value in options.items() if value is not None}


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
        output.err.print(output.harmless(trouble), markup=False)
    if raw.get("success") is False or raw.get("killed") is True or raw.get("exitCode") not in (0, None):
        raise typer.Exit(1)
