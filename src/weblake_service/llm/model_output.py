"""Fields of a document that a language model generates.

All fields are generated from the filtered markdown of the page, so that they can be generated concurrently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from weblake_service.llm import prompts
from weblake_service.llm.model_options import EXTRACTION_CREDITS, FIELDS, entries, tracking, wants_markdown
from weblake_service.llm.openai_endpoint import OpenAIEndpoint
from weblake_service.llm.query import json_of, text_of
from weblake_service.llm.schemas import checker, is_object
from weblake_service.page_failure import PageFailure, not_configured
from weblake_service.run_together import run_together

#: The name of the mode `json` of change tracking among the failures.
_CHANGES = "changeTracking.json"
_OBJECT: dict[str, object] = {"type": "object"}
_PASSAGES: dict[str, object] = {
    "type": "object",
    "properties": {"passages": {"type": "array", "items": {"type": "string"}}},
    "required": ["passages"],
}
_NO_TEXT = "The page has no text, so the language model was not asked."
_NOT_VERBATIM = "highlights is empty: the language model named no passage that stands on the page."
CLEAN_UNSET = "onlyCleanContent was skipped: it needs {lacks}. The markdown is what onlyMainContent left."
_CLEAN_LONG = (
    "onlyCleanContent was skipped: the markdown exceeds the cleaning model's output limit. It is what onlyMainContent"
    " left."
)
_CLEAN_FAILED = "onlyCleanContent failed, and the markdown is what onlyMainContent left: {why}"
_CLEAN_PRIVATE = "onlyCleanContent was skipped: it is not done where nothing may be kept of the page."


@dataclass(slots=True)
class ModelOutput:
    """The output of a model for a document."""

    #: Fields of the document.
    fields: dict[str, object] = field(default_factory=dict)
    #: `json` of change tracking; None if it was not requested.
    changes: dict[str, object] | None = None
    warnings: list[str] = field(default_factory=list)
    #: Why fields could not be generated, by the name of the format.
    failures: dict[str, PageFailure] = field(default_factory=dict)
    #: Credits in addition to the page's own.
    credits: int = 0


async def generate(
    model: OpenAIEndpoint | None,
    lacks: str,
    options: Mapping[str, object],
    document: Mapping[str, object],
    *,
    previous: str | None = None,
    timeout_s: float = 60.0,
) -> ModelOutput:
    """Generate the fields of a document that need a model.

    Args:
        model: The model; None if none is configured.
        lacks: The missing settings in that case, as text.
        options: Scrape options, snake_case.
        document: The page, with its markdown.
        previous: The markdown of the version to compare with, if the page has changed.
        timeout_s: Remaining seconds of the page's timeout.
    """
    made = ModelOutput()
    wanted, tracked = entries(options), tracking(options)
    wants_changes = tracked is not None and previous is not None
    markdown = document.get("markdown")
    text = markdown if isinstance(markdown, str) else ""
    failure = _cannot_ask(model, lacks, options, document)
    if failure is not None:
        names = [str(one["type"]) for one in wanted] + [_CHANGES] * wants_changes
        made.failures |= dict.fromkeys(names, failure)
        wanted, wants_changes = [], False
    tasks: list[Coroutine[Any, Any, None]] = []
    if options.get("only_clean_content") and wants_markdown(options):
        tasks.append(_clean_markdown(model, lacks, options, text, made, timeout_s))
    if wanted and not text.strip():
        made.fields |= {FIELDS[str(one["type"])]: None for one in wanted}
        made.warnings.append(_NO_TEXT)
    elif wanted:
        assert model is not None
        shown, warning = prompts.truncate(text, model.page_chars)
        if warning:
            made.warnings.append(warning)
        tasks += [_try(str(one["type"]), _part(model, one, shown, made), made, timeout_s) for one in wanted]
    if wants_changes:
        assert model is not None
        assert tracked is not None
        assert previous is not None
        tasks.append(_try(_CHANGES, _describe_changes(model, tracked, previous, text, made), made, timeout_s))
    await run_together(tasks)
    return made


def add_to_document(
    document: Mapping[str, object], made: ModelOutput, options: Mapping[str, object]
) -> dict[str, object]:
    """Return the document with the model's output, without markdown that only the model needed."""
    kept = wants_markdown(options) or not entries(options)
    shown = {name: value for name, value in document.items() if name != "markdown" or kept}
    return shown | made.fields


async def _try(name: str, part: Coroutine[Any, Any, None], made: ModelOutput, timeout_s: float) -> None:
    """Run a part and record its failure: an exception would cancel the other calls, which are already billed."""
    try:
        async with asyncio.timeout(timeout_s):
            await part
    except TimeoutError:
        message = "The language model was not done within the time of the page. Allow more with `timeout`."
        made.failures[name] = PageFailure("SCRAPE_TIMEOUT", message, status=408)
    except PageFailure as failure:
        made.failures[name] = failure


async def _part(model: OpenAIEndpoint, wanted: Mapping[str, object], text: str, made: ModelOutput) -> None:
    kind = wanted["type"]
    if kind == "summary":
        made.fields["summary"] = await text_of(model, prompts.task_messages(prompts.SUMMARY, text))
    elif kind == "question":
        question = str(wanted.get("question", ""))
        made.fields["answer"] = await text_of(model, prompts.task_messages(prompts.ANSWER, text, wish=question))
    elif kind == "highlights":
        made.fields["highlights"] = await _highlights(model, str(wanted.get("query", "")), text, made)
    else:
        made.fields["json"] = await extract(model, wanted, [text])
        made.credits += EXTRACTION_CREDITS


async def extract(
    model: OpenAIEndpoint, wanted: Mapping[str, object], texts: list[str], task: str = prompts.EXTRACT
) -> object:
    """Return data extracted from texts by `schema` and `prompt` of `wanted`; any JSON object without a schema."""
    schema, wish = wanted.get("schema"), wanted.get("prompt")
    given = schema if isinstance(schema, Mapping) else None
    messages = prompts.task_messages(task, *texts, wish=wish if isinstance(wish, str) else "", schema=given)
    check = checker(given) if given is not None else is_object
    return await json_of(model, messages, check, given if given is not None else _OBJECT)


async def _highlights(model: OpenAIEndpoint, query: str, text: str, made: ModelOutput) -> str:
    messages = prompts.task_messages(prompts.HIGHLIGHTS, text, wish=query, schema=_PASSAGES)
    found = await json_of(model, messages, checker(_PASSAGES), _PASSAGES)
    assert isinstance(found, dict)
    page = " ".join(text.split())
    # Only verbatim passages are kept: the model may return text that is not in the page.
    passages = [one.strip() for one in found["passages"] if one.strip() and " ".join(one.split()) in page]
    if not passages:
        made.warnings.append(_NOT_VERBATIM)
    return "\n\n".join(passages)


async def _clean_markdown(
    model: OpenAIEndpoint | None,
    lacks: str,
    options: Mapping[str, object],
    text: str,
    made: ModelOutput,
    timeout_s: float,
) -> None:
    """Replace the markdown by a version without remaining boilerplate; if that fails, keep it and add a warning."""
    if options.get("lockdown") or options.get("zero_data_retention"):
        made.warnings.append(_CLEAN_PRIVATE)
    elif model is None:
        made.warnings.append(CLEAN_UNSET.format(lacks=lacks))
    elif len(text) > model.clean_chars:
        made.warnings.append(_CLEAN_LONG)
    elif text.strip():
        try:
            async with asyncio.timeout(timeout_s):
                answer = await model.complete(prompts.task_messages(prompts.CLEAN, text))
        except TimeoutError:
            made.warnings.append(_CLEAN_FAILED.format(why="the time of the page was over. Allow more with `timeout`."))
            return
        except PageFailure as failure:
            made.warnings.append(_CLEAN_FAILED.format(why=failure.message))
            return
        if answer.cut:
            made.warnings.append(_CLEAN_LONG)
        elif not answer.text.strip():
            made.warnings.append(_CLEAN_FAILED.format(why="the language model answered with nothing."))
        else:
            made.fields["markdown"] = answer.text.strip()


def _cannot_ask(
    model: OpenAIEndpoint | None, lacks: str, options: Mapping[str, object], document: Mapping[str, object]
) -> PageFailure | None:
    """Return why no model can be asked about a page; not about an unconverted file, because its markdown is base64."""
    if model is None:
        return not_configured("This page", lacks)
    metadata = document.get("metadata")
    kind = str(metadata.get("contentType", "")) if isinstance(metadata, Mapping) else ""
    if options.get("parsers") == [] and kind.lower().startswith("application/pdf"):
        message = (
            "A PDF that is not parsed has no text for a language model. Put `pdf` into `parsers`, or leave it out."
        )
        return PageFailure("SCRAPE_UNSUPPORTED_FILE_ERROR", message)
    return None


async def _describe_changes(
    model: OpenAIEndpoint, tracked: Mapping[str, object], previous: str, text: str, made: ModelOutput
) -> None:
    """Add the fields whose values differ, each with its previous and current value.

    Args:
        model: The model that reads both versions.
        tracked: The format changeTracking, with `schema` and `prompt` if given.
        previous: The markdown of the earlier version.
        text: The markdown of this version.
        made: What is added to.

    Raises:
        ModelFailure: The model returned no usable response.
    """
    schema = tracked.get("schema")
    inner = schema if isinstance(schema, Mapping) else None
    check = checker(inner) if inner is not None else is_object

    def check_both(value: object) -> str:
        if not isinstance(value, dict) or set(value) != {"previous", "current"}:
            return "it is not an object with previous and current alone"
        problems = ((name, check(value[name])) for name in ("previous", "current"))
        return "; ".join(f"{name}: {problem}" for name, problem in problems if problem)

    before, cut_before = prompts.truncate(previous, model.page_chars // 2)
    after, cut_after = prompts.truncate(text, model.page_chars // 2)
    wish = str(tracked.get("prompt") or "")
    messages = prompts.task_messages(prompts.CHANGES, before, after, wish=wish, schema=inner)
    found = await json_of(model, messages, check_both, _schema_of_both(inner))
    assert isinstance(found, dict)
    made.changes = _differing_fields(found["previous"], found["current"])
    made.credits += EXTRACTION_CREDITS
    made.warnings += [warning] if (warning := cut_after or cut_before) else []


def _schema_of_both(schema: Mapping[str, object] | None) -> dict[str, object]:
    """Return the schema hint for two versions; a schema with references would need rewriting and is omitted."""
    one = schema if schema is not None and "$ref" not in str(schema) else {}
    sides: dict[str, object] = {"previous": one, "current": one}
    return {"type": "object", "properties": sides, "required": ["previous", "current"]}


def _differing_fields(previous: object, current: object) -> dict[str, object]:
    if not isinstance(previous, dict) or not isinstance(current, dict):
        return {} if previous == current else {"value": {"previous": previous, "current": current}}
    names = dict.fromkeys([*previous, *current])
    return {
        name: {"previous": previous.get(name), "current": current.get(name)}
        for name in names
        if previous.get(name) != current.get(name)
    }
