"""The commands serve, demo and webhook verify, which run on this machine."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from weblake import output
from weblake.cli.app import Json
from weblake.errors import FixRequest


def serve(
    host: Annotated[str, typer.Option(help="Address to bind to.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 selects a free port.")] = 8900,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Directory of the database; :memory: keeps it in memory.")
    ] = None,
    allow_private: Annotated[
        bool,
        typer.Option(
            "--allow-private",
            help="Allow pages and webhook receivers on private and loopback addresses. The service inside another "
            "command always does, for that command alone.",
        ),
    ] = False,
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="TOML or JSON file that defines several keys, their teams and the teams' plans."
        ),
    ] = None,
    credits: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Credits of a team per month; after that the service answers 402."),
    ] = None,
    requests_per_minute: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Maximum starts of a team per minute; beyond that the service answers 429."
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1000,
            metavar="N",
            help="Maximum number of pages of a team that are scraped at the same time (10).",
        ),
    ] = None,
    zero_data_retention: Annotated[
        bool,
        typer.Option(
            "--zero-data-retention", help="Accept requests with zero data retention, whose pages are not stored."
        ),
    ] = False,
    allow_code_execution: Annotated[
        bool,
        typer.Option(
            "--allow-code-execution",
            help="Allow requests to run code in browser sessions, as your user and without a sandbox. Loopback only.",
        ),
    ] = False,
    render: Annotated[
        str | None,
        typer.Option(
            metavar="MODE",
            help="Render pages in Chromium: those that scripts fill (auto, the default), always, or never. "
            "WEBLAKE_RENDER sets another default.",
        ),
    ] = None,
    browser_sessions: Annotated[
        int | None,
        typer.Option(min=1, max=100, metavar="N", help="Maximum number of browser sessions at the same time (4)."),
    ] = None,
    testing: Annotated[
        bool,
        typer.Option("--testing", help="For tests: add the routes /_weblake/, with which any key rules all data."),
    ] = False,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Make ids and the order of documents the same in each run.")
    ] = None,
    faults: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TOML or JSON file of fault rules that apply from the start.")
    ] = None,
) -> None:
    """Runs the embedded service until it is interrupted.

    When it listens, it prints one line of JSON with its address. Its key is WEBLAKE_API_KEY, or a key that is
    generated at the first start and printed in that line. WEBLAKE_WEBHOOK_SECRET signs its webhooks.

    With WEBLAKE_LLM_BASE_URL (an OpenAI-compatible endpoint), WEBLAKE_LLM_MODEL and, if the endpoint needs one,
    WEBLAKE_LLM_API_KEY it supports the functions that need a language model; pip install 'weblake[llm]'.

    A keys file has a table [[keys]] for each key with name, team, and key or key_env (the variable that holds the
    key). It may have tables [teams.NAME] with credits, requests_per_minute, reads_per_minute, concurrency,
    max_queued_pages, zero_data_retention, webhook_secret or webhook_secret_env. The defaults for a team are the
    options of this command.
    """
    from weblake.client.embedded import require_local_extra

    with require_local_extra():
        from weblake_service.config import ServiceConfig
        from weblake_service.serve import serve as run_service
    usual = ServiceConfig()
    config = ServiceConfig(
        plan_credits=usual.plan_credits if credits is None else credits,
        requests_per_minute=requests_per_minute,
        concurrency=usual.concurrency if concurrency is None else concurrency,
        zero_data_retention=zero_data_retention,
        render=usual.render if render is None else render,
        max_browser_sessions=usual.max_browser_sessions if browser_sessions is None else browser_sessions,
        testing=testing,
        seed=seed,
    )
    ended_by = run_service(
        host=host,
        port=port,
        data=data,
        keys_file=keys,
        faults_file=faults,
        allow_private=allow_private,
        allow_code_execution=allow_code_execution,
        config=config,
    )
    if ended_by == signal.SIGINT:
        raise KeyboardInterrupt


def demo(
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Root of the dataset; by default a new directory.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Runs an end-to-end demo on this machine: service, site, crawl, batch, Airflow, Dagster, usage, Parquet."""
    from weblake.demo import run_demo

    run_demo(to, as_json=as_json)


def verify(
    body: Annotated[
        Path, typer.Argument(metavar="BODY", help="The raw body, as it was received; - for standard input.")
    ],
    signature: Annotated[str, typer.Option("--signature", help="The value of X-Service-Signature.")],
    as_json: Json = False,
) -> None:
    """Checks a delivery's signature; the secret is WEBLAKE_WEBHOOK_SECRET."""
    from weblake.api import webhooks

    try:
        raw = sys.stdin.buffer.read() if str(body) == "-" else body.read_bytes()
    except OSError as error:
        raise FixRequest(f"{body} cannot be read: {error.strerror}.") from None
    webhooks.verify(raw, signature, os.environ.get("WEBLAKE_WEBHOOK_SECRET", ""))
    if as_json:
        output.show_json({"valid": True})
    else:
        output.out.print("The signature is valid.")
