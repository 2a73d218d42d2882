"""The tree of commands and the options that many of them share."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from weblake.errors import InvalidOption, WeblakeError

if TYPE_CHECKING:
    from weblake.client import Client
    from weblake.dataset.root import Dataset

FAILED, BAD_USAGE = 1, 2

app = typer.Typer(
    name="weblake",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="markdown",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from weblake import __version__
        from weblake.output import show_text

        show_text(__version__)
        raise typer.Exit


@app.callback()
def _whole(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """URLs or a site in, one Parquet file out: exactly once, paid once."""


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


class Interrupted(WeblakeError):
    """Ctrl-C, SIGTERM or SIGHUP ended a load; its job goes on."""

    def __init__(self, message: str, *, hint: str, exit_code: int) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code


def connect(base_url: str | None, insecure: bool) -> Client:
    """A client for the service that was named, or for the embedded one."""
    from weblake.client import Client

    return Client(base_url, insecure=insecure or None)


def dataset_to_land_in(root: str) -> Dataset:
    """The dataset at a root that outlives the command.

    Raises:
        StorageRefused: The root cannot be used, or is in memory.
    """
    from weblake.dataset.root import open_dataset
    from weblake.storage import refuse_memory

    dataset = open_dataset(root)
    refuse_memory(dataset.storage, "this command")
    return dataset


#: What is given by position or by an option of its own, or made here: never with --option.
_NOT_OPTIONS = {"url", "urls", "query", "file", "filename", "idempotency_key", "naming", "terms"}


def given_options(pairs: list[str] | None, formats: list[str] | None = None) -> dict[str, object]:
    """`--option` and `--format` as the client's keyword arguments; the client checks them.

    Raises:
        InvalidOption: A pair has no `=`, or names what is no option of the contract.
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
        except RecursionError:
            raise InvalidOption(f"{name.strip()} is nested too deeply to be read.", hint="Nest it less.") from None
        name = name.strip().replace("-", "_")
        if name in _NOT_OPTIONS:
            raise InvalidOption(f"{name!r} cannot be given with --option.", hint="See --help for how to give it.")
        given[name] = value
    if formats:
        given["formats"] = [*formats]
    return given
