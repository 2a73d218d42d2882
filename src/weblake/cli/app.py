"""The app of the command line, and the options that several commands share.

A command takes a group of shared options as one parameter: a dataclass, whose fields `add_command` makes options of the
command.
"""

from __future__ import annotations

import inspect
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

import weblake
from weblake.api.options.values import value_of_text
from weblake.errors import InvalidOption, WeblakeError

if TYPE_CHECKING:
    from weblake.orchestration import Dataset, Naming

FAILED, BAD_USAGE = 1, 2
DAY_S = 24 * 3600.0
#: Columns of a terminal in which help is a table.
MIN_TABLE_WIDTH = 80
#: Printed below the help, and by `weblake` without arguments.
_FIRST_COMMANDS = """
Start with one of these:

- `weblake crawl https://example.org/ --limit 20 --to lake` lands a small site, without an account

- `weblake init` makes a project that runs at once

- `weblake doctor` says what is missing on this machine
"""

app = typer.Typer(
    name="weblake",
    no_args_is_help=True,
    epilog=_FIRST_COMMANDS,
    pretty_exceptions_enable=False,
    # In a narrow terminal the table of options would cut their names; plain help puts a long name on its own line.
    rich_markup_mode="markdown" if shutil.get_terminal_size().columns >= MIN_TABLE_WIDTH else None,
)


#: The groups of commands by name; "" has those without a group.
GROUPS = {
    "": app,
    "browser": typer.Typer(help="Remote browser sessions.", no_args_is_help=True),
    "table": typer.Typer(help="Delta Lake and Iceberg tables of a dataset.", no_args_is_help=True),
    "webhook": typer.Typer(help="Webhook deliveries.", no_args_is_help=True),
}
for _name in ("browser", "table", "webhook"):
    app.add_typer(GROUPS[_name], name=_name)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(weblake.__version__)
        raise typer.Exit


@app.callback()
def _root_callback(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Scrapes URLs or a site and lands the pages as one Parquet file. Each load is stored once and paid for once."""


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="ROOT", help="Land in the dataset at this root: a path, s3://, gs://, abfs://."),
]
Root = Annotated[str, typer.Option("--to", metavar="ROOT", help="Root of the dataset: a path, s3://, gs://, abfs://.")]
RootArgument = Annotated[str, typer.Argument(metavar="ROOT")]
Kind = Annotated[str, typer.Argument(metavar="batch|crawl")]
JobId = Annotated[str, typer.Argument(metavar="JOB_ID")]
MaxCredits = Annotated[
    float | None,
    typer.Option(
        "--max-credits", metavar="N", help="Refuse to start a job that costs more; cancel a job that exceeds it."
    ),
]

#: Parameters of the client that are arguments or options of their own on the command line, or not available there.
_NOT_OPTIONS = {"url", "urls", "query", "file", "filename", "idempotency_key", "naming", "terms"}


@dataclass(frozen=True)
class ServiceOptions:
    """The service to use."""

    base_url: Annotated[
        str | None,
        typer.Option(
            "--base-url",
            metavar="URL",
            help="URL of the service. Default: WEBLAKE_BASE_URL or the embedded service.",
            show_default=False,
        ),
    ] = None
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow plain http beyond loopback: the key is sent unencrypted.")
    ] = False

    def connect(self) -> weblake.Client:
        """Return a client of the service."""
        return weblake.Client(self.base_url, insecure=self.insecure or None)


@dataclass(frozen=True)
class ContractOptions:
    """Options of the contract, which the client checks."""

    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-o",
            metavar="NAME=VALUE",
            help="An option of the API in snake_case, its value JSON or text: 'formats=[\"html\"]'. May be repeated.",
        ),
    ] = None

    def keyword_arguments(self, **more: object) -> dict[str, Any]:
        """Return the keyword arguments for the client: `--option`, and those of `more` that are not None.

        Raises:
            InvalidOption: A pair has no `=`, or its name has to be given in another way.
        """
        given = dict(map(_name_and_value, self.option or ()))
        return given | {name: value for name, value in more.items() if value is not None}


@dataclass(frozen=True)
class PageOptions(ContractOptions):
    """Options of the contract for pages."""

    formats: Annotated[
        list[str] | None,
        typer.Option("--format", "-f", metavar="KIND", help="markdown, html, rawHtml, links, … May be repeated."),
    ] = None

    def keyword_arguments(self, **more: object) -> dict[str, Any]:
        """Return the keyword arguments for the client, with `formats`; raises as ContractOptions.keyword_arguments."""
        return super().keyword_arguments(formats=[*self.formats] if self.formats else None, **more)


@dataclass(frozen=True)
class TermsOptions:
    """The tolerances and limits of a load."""

    allow_partial: Annotated[
        bool, typer.Option("--allow-partial", help="Publish the load with `complete: false` if pages are missing.")
    ] = False
    missing_ratio: Annotated[
        float, typer.Option("--missing-ratio", metavar="R", help="Share of the URLs that may be missing, 0 to 1.")
    ] = 0.0
    fail_ratio: Annotated[
        float, typer.Option("--fail-ratio", metavar="R", help="Share of the URLs that may fail, 0 to 1.")
    ] = 1.0
    max_credits: MaxCredits = None
    timeout_s: Annotated[float, typer.Option("--timeout", metavar="SECONDS", help="Time limit for the whole load.")] = (
        DAY_S
    )

    def terms(self) -> weblake.Terms:
        """Return the terms for the load."""
        return weblake.Terms(**vars(self))


@dataclass(frozen=True)
class PartitionOptions:
    """The path keys of a load."""

    partition: Annotated[
        list[str] | None,
        typer.Option(
            "--partition",
            metavar="KEY=VALUE",
            help="Path key of the file, in place of load_date. May be repeated; the order counts.",
        ),
    ] = None

    def keys(self) -> dict[str, str] | None:
        """Return the path keys, or None for the default one.

        Raises:
            InvalidOption: An entry is not KEY=VALUE, or a key is given twice.
        """
        keys: dict[str, str] = {}
        for pair in self.partition or ():
            name, sign, value = pair.partition("=")
            if not sign or name in keys:
                raise InvalidOption(f"--partition {pair[:60]!r} is not KEY=VALUE, or names a key twice.")
            keys[name] = value
        return keys or None


@dataclass(frozen=True)
class NamingOptions(PartitionOptions):
    """The identity of a load."""

    #: A list, because of several keys of one option the last one would count without a message.
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            metavar="TEXT",
            help="Name of the load: another name makes a separate load. With --partition, a load replaces the earlier "
            "one of this name and these values.",
        ),
    ] = None
    new: Annotated[
        bool,
        typer.Option(
            "--new",
            help="Start and pay for a new job, even if the load has landed. With --partition, the load replaces it.",
        ),
    ] = False

    def naming(self) -> Naming:
        """Return the identity for the load request.

        Raises:
            InvalidOption: More than one key is given; or as `keys`.
        """
        from weblake.orchestration import Naming

        given = self.key or []
        if len(given) > 1:
            raise InvalidOption(
                f"--key is given {len(given)} times, and each key is another load.",
                hint="Give one. To continue a load that was started with --new, give the key that its message named.",
            )
        return Naming(key=given[0] if given else None, new=self.new, partition=self.keys())


def add_command(to: typer.Typer, command: Callable[..., None]) -> None:
    """Add a function as a command of its name, with the options of its groups in place of the groups."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {each: hint for each, hint in hints.items() if is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        hint = hints[parameter.name]
        if parameter.name not in groups:
            parameters.append(parameter.replace(annotation=hint, kind=parameter.KEYWORD_ONLY))
            continue
        own = get_type_hints(hint, include_extras=True)
        parameters += (
            inspect.Parameter(each.name, parameter.KEYWORD_ONLY, default=each.default, annotation=own[each.name])
            for each in fields(hint)
        )

    def run(**given: object) -> None:
        for each, group in groups.items():
            given[each] = group(**{option.name: given.pop(option.name) for option in fields(group)})
        command(**given)

    run.__doc__ = command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    summary = " ".join((command.__doc__ or "").partition("\n\n")[0].split())
    to.command(command.__name__.rstrip("_"), short_help=summary)(run)


class Interrupted(WeblakeError):
    """Ctrl-C, SIGTERM or SIGHUP ended a command; a job that it started continues."""

    def __init__(self, message: str, *, hint: str, exit_code: int) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code


def dataset_to_land_in(root: str) -> Dataset:
    """Return the dataset at a root that outlives the command.

    Raises:
        StorageRefused: The root cannot be used, or is in memory.
    """
    from weblake.orchestration import open_dataset, refuse_memory

    dataset = open_dataset(root)
    refuse_memory(dataset, "this command")
    return dataset


def _name_and_value(pair: str) -> tuple[str, object]:
    name, sign, text = pair.partition("=")
    name = name.strip().replace("-", "_")
    if not sign or not name:
        raise InvalidOption(f"--option {pair[:60]!r} is not NAME=VALUE.", hint="Write it as --option mobile=true.")
    if name in _NOT_OPTIONS:
        raise InvalidOption(f"{name!r} cannot be given with --option.", hint="See --help for how to give it.")
    try:
        return name, json.loads(text)
    except (ValueError, RecursionError) as error:
        if text.lstrip().startswith(("{", "[")):
            why = f"{error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else str(error)
            raise InvalidOption(
                f"The value of {name} begins like JSON and is not valid JSON: {why}.",
                hint=f"Correct it. A text that begins with {{ or [ is written as a JSON string: -o '{name}=\"[1] …\"'.",
            ) from None
        return name, value_of_text(text)
