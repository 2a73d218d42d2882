"""serve, demo, webhook: what runs on this machine. Imports: the core's public rooms, when a command runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from weblake import shown
from weblake.cli.tree import Json
from weblake.errors import FixRequest

webhook = typer.Typer(help="Webhook deliveries.", no_args_is_help=True)


def serve(
    host: Annotated[str, typer.Option(help="Address to bind to.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 for a free one.")] = 8080,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the database lies.")] = None,
    allow_private: Annotated[
        bool, typer.Option("--allow-private", help="Scrape private and loopback targets.")
    ] = False,
) -> None:
    """Runs the embedded local service until it is interrupted."""
    from weblake.embedded import needs_local

    with needs_local():
        from weblake.service.serve import serve as run_service
    run_service(host=host, port=port, data=data, allow_private=allow_private)


def demo(
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Where to land; a fresh directory by default.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Runs the whole story on this machine, with nothing set up: service, site, crawl, batch, usage, Parquet."""
    from weblake.demo import run_demo

    run_demo(to, as_json=as_json)


@webhook.command("verify")
def verify(
    body: Annotated[
        Path, typer.Argument(metavar="BODY", help="The raw body, as it was received; - for standard input.")
    ],
    signature: Annotated[str, typer.Option("--signature", help="The value of X-Service-Signature.")],
    as_json: Json = False,
) -> None:
    """Checks a delivery's signature; the secret is WEBLAKE_WEBHOOK_SECRET."""
    import sys

    from weblake import webhooks

    try:
        raw = sys.stdin.buffer.read() if str(body) == "-" else body.read_bytes()
    except OSError as error:
        raise FixRequest(f"{body} cannot be read: {error.strerror}.") from None
    webhooks.verify(raw, signature, os.environ.get("WEBLAKE_WEBHOOK_SECRET", ""))
    if as_json:
        shown.show_json({"valid": True})
    else:
        shown.out.print("The signature is valid.")


def register(app: typer.Typer) -> None:
    """Hangs the commands of this room into the tree."""
    for command in (serve, demo):
        app.command()(command)
    app.add_typer(webhook, name="webhook")
