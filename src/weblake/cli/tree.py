"""The tree of commands and the options that many of them share. Imports: errors, client, options (when it runs)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from weblake.errors import InvalidOption

if TYPE_CHECKING:
    from weblake.client import Client

app = typer.Typer(
    name="weblake",
    help="URLs or a site in, one Parquet file out: exactly once, paid once.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="markdown",
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
To = Annotated[
    str | None, typer.Option("--to", metavar="ROOT", help="Land in this dataset: a path, s3://, gs://, abfs://.")
]
Root = Annotated[str, typer.Option("--to", metavar="ROOT", help="The dataset: a path, s3://, gs://, abfs://.")]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="NAME=VALUE",
        help="Any option of the contract, in snake_case; the value is JSON or text. May be repeated.",
    ),
]
Formats = Annotated[
    list[str] | None,
    typer.Option("--format", "-f", metavar="KIND", help="markdown, html, rawHtml, links, images, … May be repeated."),
]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        "--base-url", metavar="URL", help="The service; WEBLAKE_BASE_URL, or the embedded one.", show_default=False
    ),
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Allow plain http beyond loopback: the key travels in the clear.")
]


def connect(base_url: str | None, insecure: bool) -> Client:
    """A client for the service that was named, or for the embedded one."""
    from weblake.client import Client

    return Client(base_url, insecure=insecure or None)


def given_options(pairs: list[str] | None, formats: list[str] | None = None) -> dict[str, object]:
    """`--option` and `--format` as the client's keyword arguments; the client checks them.

    Raises:
        InvalidOption: A pair has no `=`.
    """
    given: dict[str, object] = {}
    for pair in pairs or ():
        name, sign, text = pair.partition("=")
        if not sign or not name.strip():
            raise InvalidOption(
                f"--option {pair[:60]!r} is no NAME=VALUE.", hint="Such as --option only_main_content=false."
            )
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        given[name.strip().replace("-", "_")] = value
    if formats:
        given["formats"] = [*formats]
    return given
