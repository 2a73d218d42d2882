#!/usr/bin/env python3
"""Makes the pages of docs/site/reference from the code; the glossary there is written by hand.

    uv run python docs/reference.py            # writes the pages
    uv run python docs/reference.py --check    # prints what is out of date, and fails

A page is its text in docs/reference/, with a part made of signatures, docstrings and schemas in place of each
`{{ name }}`. Nothing that a page says of a parameter is written here: `help()` shows the same texts.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import enum
import inspect
import json
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import dagster as dg
import msgspec
import pyarrow as pa
import yaml
from airflow.sdk import BaseOperator
from pydantic import BaseModel

import dagster_weblake
import weblake
from airflow_provider_weblake.assets.weblake import weblake_asset
from airflow_provider_weblake.features import RetryAction
from airflow_provider_weblake.get_provider_info import get_provider_info
from airflow_provider_weblake.operators import weblake as operators
from airflow_provider_weblake.retry_policy import WeblakeRetryPolicy
from airflow_provider_weblake.sensors import weblake as sensors
from airflow_provider_weblake.triggers import weblake as triggers
from airflow_provider_weblake.url_shards import url_shards
from dagster_weblake.components import attributes, jobs, usage
from weblake import cli, errors, events, tables, webhooks
from weblake.api import models, operations
from weblake.api.docstrings import entries
from weblake.api.options import fields, requests, shapes
from weblake.arrow import schemas
from weblake.jobs.retry import RetryPolicy
from weblake.otel import OpenTelemetry
from weblake.receipt import Receipt

REPOSITORY = Path(__file__).resolve().parents[1]
TEXTS, PAGES = REPOSITORY / "docs" / "reference", REPOSITORY / "docs" / "site" / "reference"
SOURCES = ("src/weblake", "airflow_provider/src", "dagster_resources/src")
EMPTY = inspect.Parameter.empty
REQUESTS = """
    CrawlRequest BatchScrapeRequest ScrapeRequest ParseRequest JobRequest UsageRequest ActivityRequest
"""
BUILDERS = """
    build_weblake_assets weblake_assets build_weblake_specs build_table_asset build_collect_sensor build_document_checks
    build_usage_checks
"""
#: Defaults of operators that Airflow's configuration or the class sets.
DEFAULTS = {"deferrable": "`[operators] default_deferrable`", "retry_policy": "`WeblakeRetryPolicy()`"}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; columns that are empty in all rows are left out."""
    listed = [[" ".join(cell.replace("|", "\\|").split()) for cell in row] for row in rows]
    if not listed:
        return ""
    shown = [index for index in range(len(head)) if any(row[index] for row in listed)]
    lines = [[head[index] for index in shown], ["---"] * len(shown), *([row[i] for i in shown] for row in listed)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def code(value: object) -> str:
    """Return a value as code; empty for no value."""
    text = str(value).replace(" | ", " or ").replace("|", " or ")  # a bar would end the cell of a table
    return f"`{text}`" if text else ""


def annotation(hint: Any) -> str:
    """Return a type in short: without modules and without the arguments of `Annotated`."""
    if hint is EMPTY:
        return ""
    text = hint if isinstance(hint, str) else getattr(hint, "__name__", "") if isinstance(hint, type) else repr(hint)
    if isinstance(hint, type) and getattr(hint, "__args__", None):
        text = repr(hint)
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Za-z])|^<class '|'>$", "", text)


def shown_default(value: object) -> str:
    """Return a default as it is written in code; empty if there is none to show."""
    if isinstance(value, timedelta):
        return f"{value.total_seconds() / 3600:g} hours"
    if isinstance(value, enum.Enum):
        return code(value.name)
    return code(repr(value)) if type(value) in (str, int, float, bool, tuple) else ""


def summary(documented: object) -> str:
    """Return a docstring without the sections about parameters, results and errors, as Markdown."""
    doc = inspect.cleandoc(documented.__doc__ or "")
    doc = re.sub(r"^:param .*(?:\n +.*)*\n?", "", doc, flags=re.MULTILINE)
    doc = re.split(r"^(?:Args|Raises|Yields|Example):\n|^:raises ", doc, flags=re.MULTILINE)[0]
    return _markdown(re.sub("```python\n.*?```", "", doc, flags=re.DOTALL)).strip().strip()


def _markdown(text: str) -> str:
    """Return a text of a docstring with its roles and literals of reStructuredText as code."""
    return re.sub(r":class:`~?([\w.]+)`|(?<!`)``([^`]+)``(?!`)", lambda found: f"`{found[1] or found[2]}`", text)


def raised(documented: object) -> str:
    """Return the table of the errors that a docstring names."""
    found = re.search(r"^Raises:\n((?: {4}.*\n?)+)", inspect.cleandoc(documented.__doc__ or ""), re.MULTILINE)
    rows = re.findall(r"^ {4}([\w.]+): (.*(?:\n {5,}.*)*)", found[1], re.MULTILINE) if found else []
    return table(("raises", "when"), ((_error(name), text) for name, text in rows))


def _error(name: str) -> str:
    if name == "WeblakeError":
        return f"[`{name}`](errors.md)"
    known = getattr(errors, name, None)
    return f"[`{name}`](errors.md#{anchor(known)})" if isinstance(known, type) else code(name)


def anchor(error: type) -> str:
    """Return the anchor of a class of errors, which messages name."""
    found: list[str] = re.findall(r"#([\w-]+)", str(error("x")))
    return found[0]


def source_of(cls: type) -> str:
    """Return the source of a class; inspect.getsource parses the whole module for it."""
    text = Path(inspect.getfile(cls)).read_text()
    found = re.search(rf"^class {cls.__name__}\b.*?(?=^[A-Za-z@#_]|\Z)", text, re.MULTILINE | re.DOTALL)
    return found[0] if found else ""


@cache
def comments(cls: type) -> Mapping[str, str]:
    """Return the `#:` comments of the fields of a class, and the texts after them, by field."""
    found: dict[str, str] = {}
    for each in reversed([each for each in cls.__mro__ if each.__module__.startswith(("weblake", "dagster_weblake"))]):
        source = source_of(each)
        for text, name in re.findall(r"((?:^    #: .*\n)+)    (\w+):", source, re.MULTILINE):
            found[name] = " ".join(line.strip()[3:] for line in text.strip().splitlines())
        for name, text in re.findall(r'^    (\w+): [^\n]+\n    """((?:.|\n)*?)"""', source, re.MULTILINE):
            found[name] = text
    return found


def parameters_of(documented: Any) -> dict[str, inspect.Parameter]:
    """Return the parameters of a function, or of a class with those of its bases in the same package."""
    calls = [documented]
    if isinstance(documented, type) and issubclass(documented, BaseOperator):
        package = documented.__module__.partition(".")[0]
        bases = [each for each in documented.__mro__ if each.__module__.startswith(package)]
        calls = [vars(each)["__init__"] for each in bases if "__init__" in vars(each)]
    found: dict[str, inspect.Parameter] = {}
    for call in calls:
        found |= {name: each for name, each in inspect.signature(call).parameters.items() if name not in found}
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {name: each for name, each in found.items() if each.kind not in kinds and name not in ("self", "obj")}


def parameters(documented: Any) -> str:
    """Return the table of the parameters of a function or class; a field's text may be a comment beside it."""
    texts, given = entries(documented), parameters_of(documented)
    is_operator = isinstance(documented, type) and issubclass(documented, BaseOperator)
    beside = comments(documented) if isinstance(documented, type) and not is_operator else {}
    rows = []
    for name in dict.fromkeys([*(texts if is_operator else ()), *given]):
        found = given.get(name, inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY))
        default = DEFAULTS[name] if is_operator and name in DEFAULTS else shown_default(found.default)
        text = re.sub(r" ?\(templated\)", "", texts.get(name, beside.get(name, "")))
        text = _markdown(re.sub(rf" Default {re.escape(repr(found.default))}\.$", "", text))
        kind = code(annotation(found.annotation)) + (f" = {default}" if default else "")
        kind += ", required" if found.default is EMPTY and found.annotation is not EMPTY else ""
        how = " *Templated.*" if is_operator and name in documented.template_fields else ""
        rows.append((code(name), kind, text + how))
    return table(("parameter", "type and default", "meaning"), rows)


def section(name: str, documented: Any) -> str:
    """Return a section of a function or class: what it does, its parameters, its errors."""
    returns = more = ""
    if inspect.isfunction(documented):
        hint = annotation(inspect.signature(documented).return_annotation)
        returns = f"Returns `{hint}`." if hint not in ("", "None") else ""
        kind = next(iter(re.findall(r"Unpack\[(?:\w+\.)?(\w+)\]", str(inspect.signature(documented)))), "")
        places = {"AssetOptions": "options-of-assets", "SpecOptions": "options-of-assets"}
        link = f"[options](#{places.get(kind, kind.lower())})"
        if "airflow" in documented.__module__:
            names = documented.__globals__[kind].__annotations__ if kind else ()
            link = f"arguments {', '.join(map(code, names))} of `airflow.sdk.Asset`"
        more = f"Also takes, by keyword, the {link}." if kind else ""
    parts = (f"### {name}", summary(documented), parameters(documented), more, returns, raised(documented))
    return "\n\n".join(part for part in parts if part)


def sections(owner: Any, names: str | Iterable[str], prefix: str = "") -> str:
    """Return the sections of members of a module, in the order of their names."""
    named = names.split() if isinstance(names, str) else names
    return "\n\n".join(section(prefix + name, getattr(owner, name)) for name in named)


def members(cls: type, names: Iterable[str]) -> str:
    """Return the table of the methods and properties of a class."""
    rows = []
    for name in names:
        member = inspect.getattr_static(cls, name)
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        call = name if isinstance(member, property) else f"{name}{_call(function)}"
        texts = " ".join(f"`{each}`: {text}" for each, text in entries(function).items())
        rows.append((code(call), f"{' '.join(summary(function).split())} {texts}"))
    return table(("", "meaning"), rows)


def _call(function: Any) -> str:
    given = [each for each in inspect.signature(function).parameters.values() if each.name != "self"]
    return f"({', '.join(str(each.replace(annotation=EMPTY)) for each in given)})"


def fields_table(cls: type) -> str:
    """Return the table of the fields of a data class, a struct or a typed response."""
    if issubclass(cls, msgspec.Struct):
        base = {"extra", "raw"} if cls is not models.Document and issubclass(cls, models.lenient.Model) else set()
        named = [(each, "") for each in cls.__struct_fields__ if each not in base]
    else:
        named = [(each.name, shown_default(each.default)) for each in dataclasses.fields(cls)]
    hints: dict[str, object] = {}
    for each in reversed(cls.__mro__):
        hints |= vars(each).get("__annotations__", {})
    texts = {**meanings().get(cls.__name__, {}), **comments(cls)}
    rows = ((code(name), code(annotation(hints[name])), default, texts.get(name, "")) for name, default in named)
    return table(("field", "type", "default", "meaning"), rows)


@cache
def meanings() -> dict[str, dict[str, str]]:
    """Return the meanings that neither the code nor the contract states."""
    return tomllib.loads((TEXTS / "meanings.toml").read_text())


# The command line


def commands() -> str:
    """Return a section for each command."""

    def walk(command: Any, path: str) -> Iterator[str]:
        for name, each in sorted(getattr(command, "commands", {}).items()):
            yield from walk(each, f"{path} {name}")
        if not getattr(command, "commands", None):
            arguments = [each for each in command.params if each.param_type_name == "argument"]
            usage = " ".join(f"[{_metavar(each)}]" if not each.required else _metavar(each) for each in arguments)
            shown = sorted(command.params, key=lambda each: each.param_type_name != "argument")
            rows = (_option(each) for each in shown if not getattr(each, "hidden", False))
            head = f"## {path}\n\n{' '.join((command.help or '').split())}"
            block = f"```text\n{path} {usage} [OPTIONS]\n```".replace("  ", " ")
            yield f"{head}\n\n{block}\n\n{table(('option', 'value', 'default', 'meaning'), rows)}"

    return "\n\n".join(walk(cli._commands(), "weblake"))


def _metavar(parameter: Any) -> str:
    kind = parameter.type_descriptor.annotation
    kinds = {bool: "", int: "INTEGER", float: "NUMBER"}
    return str(parameter.metavar or kinds.get(kind) if kind in kinds else parameter.metavar or parameter.name.upper())


def _option(parameter: Any) -> tuple[str, str, str, str]:
    names = [*parameter.opts, *parameter.secondary_opts]
    is_argument = parameter.param_type_name == "argument"
    named = code(_metavar(parameter)) if is_argument else ", ".join(map(code, names))
    value = "" if is_argument or getattr(parameter, "is_flag", False) else code(_metavar(parameter))
    default = "required" if parameter.required else shown_default(parameter.default)
    if getattr(parameter, "is_flag", False) and parameter.default in (False, None):
        default = ""
    variable = f" Environment variable: `{parameter.envvar}`." if parameter.envvar else ""
    meaning = parameter.help or (meanings()["arguments"][_metavar(parameter)] if is_argument else "")
    return named, value, default, f"{' '.join(meaning.split())}{variable}"


# Python


def webhook_functions() -> str:
    """Return the table of weblake.webhooks."""
    rows = (
        (code(f"{name}{_call(getattr(webhooks, name))}"), summary(getattr(webhooks, name)))
        for name in ("receive", "verify", "parse", "delivery_key", "sign")
    )
    return table(("function of `weblake.webhooks`", "meaning"), rows)


@cache
def contract() -> dict[str, Any]:
    """Return the description of the service's API."""
    path = REPOSITORY / "src/weblake/api/spec/service-api.openapi.yaml"
    found: dict[str, Any] = yaml.CSafeLoader(path.read_text()).get_single_data()  # safe_load takes a second
    return found


def described(schema: Any) -> dict[str, dict[str, Any]]:
    """Return the properties of a schema of the contract, by wire name; references and unions are followed."""
    found: dict[str, dict[str, Any]] = {}
    if not isinstance(schema, dict):
        return found
    if "$ref" in schema:
        found |= described(contract()["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    for part in (*schema.get("allOf", ()), *schema.get("oneOf", ()), *schema.get("anyOf", ())):
        found |= described(part)
    return found | schema.get("properties", {})


def option_rows(cls: type, known: Mapping[str, dict[str, Any]]) -> Iterator[tuple[str, str, str, str]]:
    """Yield a row for each option of a class: name, permitted values, the service's default, meaning."""
    own = comments(cls)
    for name, field in fields.fields(cls).items():
        of_service = known.get(field.wire, {})
        default = of_service.get("default")
        value = fields.expected(field.shape)
        item = field.shape.item
        choice = (fields.choices(item) or [kind.__name__ for kind in item.classes]) if item else ()
        value += f" of {', '.join(choice)}" if choice else ""
        text = meanings()["options"].get(name) if cls.__module__ == requests.__name__ else None
        meaning = text or own.get(name) or re.sub(r"^Milliseconds\. ?", "", of_service.get("description", ""))
        yield code(name), value, "" if default is None else code(json.dumps(default)), meaning


#: The classes of options, and the schema of the contract that describes each.
OPTIONS = {
    requests.PageOptions: "ScrapeOptions",
    requests.ScrapeOptions: "ScrapeRequest",
    requests.BatchScrapeOptions: "BatchScrapeRequest",
    requests.CrawlOptions: "CrawlRequest",
    requests.ParseOptions: "ScrapeOptions",
    requests.InteractOptions: "InteractRequest",
    requests.ExecuteOptions: "ExecuteRequest",
    requests.BrowserOptions: "BrowserRequest",
    requests.MapOptions: "MapRequest",
    requests.SearchOptions: "SearchRequest",
    requests.ExtractOptions: "ExtractRequest",
    requests.AgentOptions: "AgentRequest",
    requests.ActivityOptions: "",
    requests.BrowserFilter: "",
    requests.UsageOptions: "",
}


def option_tables() -> str:
    """Return the tables of the options of all calls; those that a class shares with others stand once."""
    parts = []
    bases = {requests.ScrapeOptions: requests.PageOptions, requests.BatchScrapeOptions: requests.ScrapeOptions}
    for cls, name in OPTIONS.items():
        known = described(contract()["components"]["schemas"].get(name, {}))
        also = bases.get(cls)
        shared = {code(each) for each in also.__annotations__} if also else set()
        rows = [row for row in option_rows(cls, known) if row[0] not in shared]
        more = f" Also those of [`{also.__name__}`](#{also.__name__.lower()})." if also else ""
        head = ("option", "value", "default of the service", "meaning")
        parts.append(f"### {cls.__name__}\n\n{summary(cls)}{more}\n\n{table(head, rows)}")
    return "\n\n".join(parts)


def shape_tables() -> str:
    """Return the tables of the nested objects: formats, actions, parsers, webhooks."""
    parts = []
    for cls in vars(shapes).values():
        if isinstance(cls, type) and cls.__module__ == shapes.__name__:
            known = described(contract()["components"]["schemas"].get(cls.__name__, {}))
            made = table(("field", "value", "default", "meaning"), option_rows(cls, known))
            parts.append(f"### {cls.__name__}\n\n{summary(cls)}\n\n{made}")
    return "\n\n".join(parts)


def client_operations() -> dict[str, Callable[..., Any]]:
    """Return the functions of the operations that the clients have as methods, in their order."""
    named = {name: getattr(operations, name, None) for name in vars(weblake.Client.__mro__[1])}
    return {name: build for name, build in named.items() if inspect.isfunction(build)}


def operation_table() -> str:
    """Return the operations of the clients, each with its parameters and what comes back."""
    rows = []
    for name, build in client_operations().items():
        signature = inspect.signature(build, eval_str=True)
        given = [str(each.replace(annotation=EMPTY)) for each in signature.parameters.values()]
        kinds = [each.annotation for each in signature.parameters.values() if each.kind is each.VAR_KEYWORD]
        kind = kinds[0].__args__[0].__name__ if kinds else ""
        link = f"[{kind}](#{kind.lower()})" if kind else ""
        returns = signature.return_annotation.__args__[0].__name__
        call = f"{name}({', '.join(given)})"
        rows.append((code(call), " ".join(summary(build).split()), link, f"[{returns}](#{returns.lower()})"))
    return table(("operation", "meaning", "options", "returns"), rows)


def response_tables() -> str:
    """Return the tables of the typed responses, those that operations return first."""
    signatures = [inspect.signature(build, eval_str=True) for build in client_operations().values()]
    wanted: list[type] = [each.return_annotation.__args__[0] for each in signatures]
    for cls in wanted:  # and the ones in their fields
        hints = " ".join(repr(hint) for hint in inspect.get_annotations(cls, eval_str=True).values())
        named = re.findall(r"models\.\w+\.(\w+)", hints)
        wanted.extend(
            each for name in named if (each := getattr(models, name, None)) is not None and each not in wanted
        )
    return "\n\n".join(f"### {cls.__name__}\n\n{summary(cls)}\n\n{fields_table(cls)}" for cls in dict.fromkeys(wanted))


def event_tables() -> str:
    """Return the events of a client, each with its fields."""
    rows = []
    for cls in vars(events).values():
        if isinstance(cls, type) and issubclass(cls, events.Event) and cls not in (events.Event, events.LoadEnd):
            named = [name for name in cls.__struct_fields__ if name != "load_id"]
            texts = {name: comments(cls).get(name, "").rstrip(".") for name in named}
            shown = (f"`{name}` ({text})" if text else code(name) for name, text in texts.items())
            rows.append((code(cls.__name__), summary(cls), ", ".join(shown)))
    return table(("event", "when", "fields besides `load_id`"), rows)


# Airflow and Dagster


def connection_fields() -> str:
    """Return the fields of the connection's form."""
    (kind,) = get_provider_info()["connection-types"]  # type: ignore[misc]
    hints = kind["ui-field-behaviour"]["placeholders"]
    rows = [
        ("*Base URL*", "`host`", code(hints["host"]), "The address of the service; required."),
        ("*API key*", "`password`", "", "The key of the service; required."),
    ]
    for name, field in kind["conn-fields"].items():
        rows.append((f"*{field['label']}*", f"extra `{name}`", code(hints.get(name, "")), field["description"]))
    return table(("field of the form", "in a URI or JSON", "example", "meaning"), rows)


def model_table(cls: type[BaseModel]) -> str:
    """Return the fields of a resource or the attributes of a component."""
    rows, texts = [], entries(cls)
    for name, field in cls.model_fields.items():
        resolver = next((each for each in field.metadata if isinstance(each, dg.Resolver)), None)
        example = resolver.examples[0] if resolver is not None and resolver.examples else ""
        text = re.sub(r" ?Default [^ ]+\.$", "", texts.get(name, ""))
        default = "required" if field.is_required() else shown_default(field.default)
        if isinstance(field.default, BaseModel):
            default = code("{}")
        shown = code(json.dumps(example)) if example != "" else ""
        rows.append((code(name), default, shown, text))
    return table(("attribute", "default", "example", "meaning"), rows)


def component_sections() -> str:
    """Return a section for each component and each of their blocks."""
    found = (
        dagster_weblake.WeblakeCrawlComponent,
        dagster_weblake.WeblakeBatchScrapeComponent,
        dagster_weblake.WeblakeUsageComponent,
    )
    parts = [f"### {each.__name__}\n\n{summary(each)}\n\n{model_table(each)}" for each in found]
    blocks = {
        "checks of a crawl or a batch": jobs.DocumentChecksBlock,
        "checks of usage": usage.UsageChecksBlock,
        "sensor": jobs.SensorBlock,
        "retry_policy": attributes.RetryBlock,
    }
    for name, block in blocks.items():
        build = dagster_weblake.build_document_checks if "Checks" in block.__name__ else block
        texts = {**entries(build), **{n: t for n, t in entries(block).items() if not t.startswith("Default ")}}
        defaults = {each: shown_default(field.default) for each, field in block.model_fields.items()}
        meaning = {each: text for each, text in texts.items() if not text.startswith("Default ")}
        rows = [(code(each), default, meaning.get(each, "")) for each, default in defaults.items()]
        parts.append(f"### The block {name}\n\n{summary(block)}\n\n{table(('attribute', 'default', 'meaning'), rows)}")
    return "\n\n".join(parts)


def asset_options() -> str:
    """Return the catalog and execution options of the builders of assets."""
    from dagster_weblake.specs import AssetOptions, SpecOptions, StepOptions

    texts = {**comments(SpecOptions), **comments(StepOptions)}
    hints = {name: getattr(hint, "__forward_arg__", hint) for name, hint in AssetOptions.__annotations__.items()}
    rows = ((code(name), code(annotation(hint)), texts.get(name, "")) for name, hint in hints.items())
    return table(("option", "type", "meaning"), rows)


def metadata_table() -> str:
    """Return the fields of WeblakeMetadataSet."""
    cls = dagster_weblake.WeblakeMetadataSet
    source = source_of(cls)
    texts = {**meanings()["Receipt"], **comments(Receipt), **meanings()[cls.__name__], **comments(cls)}
    rows = (
        (code(f"weblake/{name}"), code(annotation(field.annotation)), texts.get(name, ""))
        for name, field in cls.model_fields.items()
        if name in source
    )
    return table(("key", "type", "meaning"), rows)


# Data, errors, settings


def columns(name: str) -> str:
    """Return the columns of a table, with the meanings in docs/reference/columns.toml."""
    meanings = tomllib.loads((TEXTS / "columns.toml").read_text())[name]
    rows = ((code(each.name), code(arrow_type(each.type)), meanings[each.name]) for each in schemas.TABLES[name])
    return table(("column", "type", "meaning"), rows)


def arrow_type(kind: pa.DataType) -> str:
    """Return an Arrow type; nested ones in the same way on all versions of pyarrow."""
    if pa.types.is_list(kind):
        return f"list<{arrow_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{arrow_type(kind.key_type)}, {arrow_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{each.name}: {arrow_type(each.type)}' for each in kind)}>"
    return str(kind)


def error_classes() -> dict[str, type[errors.WeblakeError]]:
    """Return the classes of errors by name, in the order of their definition."""
    found = {n: c for n, c in vars(errors).items() if isinstance(c, type) and issubclass(c, errors.WeblakeError)}
    return {name: cls for name, cls in found.items() if cls is not errors.WeblakeError}


@cache
def messages() -> Mapping[str, Sequence[str]]:
    """Return the messages of each class in the source, with … for what a message fills in."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    raises = re.compile(rf"\b({'|'.join(error_classes())})\(")
    for path in (path for source in SOURCES for path in sorted((REPOSITORY / source).rglob("*.py"))):
        source = path.read_text()
        if not raises.search(source) or {"testing", "demo"} & set(path.parts):
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and node.args:
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                parts = getattr(node.args[0], "values", [node.args[0]])
                text = "".join(str(each.value) if isinstance(each, ast.Constant) else "…" for each in parts)
                if len(re.findall(r"[A-Za-z]{2,}", text)) > 2 and (not text[0].islower() or ": " in text):
                    found[name][re.sub("…{2,}", "…", text).rstrip("… :")] = None
    return {name: list(texts) for name, texts in found.items()}


def error_facts(name: str) -> str:
    """Return what the code says of a class: bases, exit code, retries, attributes; and its messages."""
    cls = error_classes()[name]
    error = cls("x", retry_after=1.0) if issubclass(cls, errors.RetryLater) else cls("x")
    action = WeblakeRetryPolicy().evaluate(error, 1, 3).action
    how = {RetryAction.RETRY: "retried, after a pause", RetryAction.FAIL: "not retried"}
    in_dagster = "as the retry policy says" if issubclass(cls, errors.RetryLater | errors.JobEnded) else "not retried"
    row = (code(name), code(cls.__bases__[0].__name__), "2" if cls is errors.InvalidOption else "1")
    facts = table(
        ("class", "a kind of", "exit code", "in Airflow", "in Dagster"),
        [(*row, how.get(action, "as the task is configured"), in_dagster)],
    )
    listed = messages().get(name, ())
    if not listed or cls is errors.InvalidOption:
        return facts
    lines = "\n".join(f"- {text}" for text in map(_plain, listed))
    return f"{facts}\n\nMessages (… stands for names and numbers):\n\n{lines}"


def _plain(text: str) -> str:
    return re.sub(r"([<>*_\[\]])", r"\\\1", text)


def extras() -> str:
    """Return the extras of the three packages."""
    rows = []
    for folder in ("", "airflow_provider", "dagster_resources"):
        project = tomllib.loads((REPOSITORY / folder / "pyproject.toml").read_text())["project"]
        for extra, packages in project.get("optional-dependencies", {}).items():
            names = ", ".join(code(re.split(r"[><=]", each)[0]) for each in packages)
            install = code(f"pip install '{project['name']}[{extra}]'")
            rows.append((install, meanings()["extras"][f"{project['name']}[{extra}]"], names))
    return table(("installation", "adds", "packages"), rows)


PARTS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "functions": lambda: sections(weblake, "land_batch land_crawl land read changes orphans", "weblake."),
    "table functions": lambda: sections(tables, "add sync status list_tables remove", "weblake.tables."),
    "webhooks": webhook_functions,
    "terms": lambda: parameters(weblake.Terms),
    "client": lambda: section("weblake.Client", weblake.Client),
    "http options": lambda: parameters(weblake.HttpOptions),
    "retry policy": lambda: parameters(RetryPolicy),
    "opentelemetry": lambda: parameters(OpenTelemetry),
    "operations": operation_table,
    "options": option_tables,
    "shapes": shape_tables,
    "responses": response_tables,
    "reading": lambda: members(
        weblake.Reading,
        [name for name in vars(weblake.Reading) if not name.startswith("_") and name not in weblake.Reading.__slots__],
    ),
    "receipt": lambda: fields_table(Receipt),
    "change": lambda: fields_table(weblake.Change),
    "orphan": lambda: fields_table(weblake.Orphan),
    "events": event_tables,
    "operators": lambda: sections(operators, operators.__all__),
    "sensors": lambda: sections(sensors, "WeblakeBatchScrapeSensor WeblakeCrawlSensor"),
    "triggers": lambda: sections(triggers, triggers.__all__),
    "connection": connection_fields,
    "retries": lambda: summary(WeblakeRetryPolicy),
    "asset": lambda: section("weblake_asset", weblake_asset),
    "url shards": lambda: section("url_shards", url_shards),
    "requests": lambda: sections(dagster_weblake, REQUESTS),
    "resource": lambda: model_table(dagster_weblake.WeblakeResource),
    "components": component_sections,
    "builders": lambda: sections(dagster_weblake, BUILDERS),
    "asset options": asset_options,
    "metadata": metadata_table,
    "io manager": lambda: summary(dagster_weblake.WeblakeParquetIOManager),
    "io manager fields": lambda: model_table(dagster_weblake.WeblakeParquetIOManager),
    "schema version": lambda: str(schemas.SCHEMA_VERSION),
    "extras": extras,
    **{f"columns {name}": (lambda name=name: columns(name)) for name in schemas.TABLES},  # type: ignore[misc]
    **{f"error {name}": (lambda name=name: error_facts(name)) for name in error_classes()},  # type: ignore[misc]
}


def page(name: str) -> str:
    """Return a page of the reference."""
    text = (TEXTS / f"{name}.md").read_text()
    made = re.sub(r"\{\{ (?!env\.)([^}]+) \}\}", lambda found: PARTS[found[1]](), text)
    outside = re.split(r"(^```.*?^```$)", made, flags=re.MULTILINE | re.DOTALL)  # two blank lines in code stay
    outside[::2] = [re.sub(r"\n{3,}", "\n\n", each) for each in outside[::2]]
    return "".join(outside).rstrip() + "\n"


def main() -> int:
    """Write the pages, or with `--check` compare them; return 1 if one is out of date."""
    stale = []
    for path in sorted(TEXTS.glob("*.md")):
        made, target = page(path.stem), PAGES / path.name
        before = target.read_text() if target.exists() else ""
        if "--check" not in sys.argv:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(made)
        elif made != before:
            stale.append(path.name)
            old, new = before.splitlines(), made.splitlines()
            changes = difflib.unified_diff(old, new, path.name, "the code", n=0, lineterm="")
            sys.stdout.writelines(f"{line}\n" for line in changes)
    if stale:
        sys.stdout.write(f"Out of date: {', '.join(stale)}. Run: uv run python docs/reference.py\n")
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main())
