"""Scrape options that need a language model, and their price."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from weblake_service.llm.schemas import schema_problem
from weblake_service.page.requested_formats import format_entry, format_name, format_names, items

#: The formats that a model generates, with the document field of each.
FIELDS = {"summary": "summary", "json": "json", "question": "answer", "highlights": "highlights"}
#: Additional credits of a page for extracted data, according to public documentation; the contract's table does not
#: list it.
EXTRACTION_CREDITS = 4
#: The required fields of each format.
_REQUIRED_FIELDS = {"json": ("schema", "prompt"), "question": ("question",), "highlights": ("query",)}


def problem(options: Mapping[str, object]) -> str:
    """Return what is wrong with the formats that a model generates; empty if they are valid."""
    wanted = entries(options)
    for kind, count in Counter(str(one["type"]) for one in wanted).items():
        if count > 1:
            return f"formats holds `{kind}` {count} times, and a document has one field for it."
    for one in wanted:
        needed = _REQUIRED_FIELDS.get(str(one["type"]), ())
        if needed and not any(name in one for name in needed):
            return f"The format `{one['type']}` needs its object form, with {' or '.join(needed)}."
    tracked = tracking(options)
    for one in [*wanted, tracked] if tracked is not None else wanted:
        schema = one.get("schema")
        why = schema_problem(schema) if isinstance(schema, Mapping) else ""
        if why:
            return f"The schema of the format `{one['type']}` cannot be used: {why}."
    return ""


def entries(options: Mapping[str, object]) -> list[Mapping[str, object]]:
    """Return the formats that a model generates, in object form."""
    found = [one if isinstance(one, Mapping) else {"type": one} for one in items(options.get("formats"))]
    return [one for one in found if one.get("type") in FIELDS]


def tracking(options: Mapping[str, object]) -> Mapping[str, object] | None:
    """Return the format changeTracking if it has the mode `json`, otherwise None."""
    entry = format_entry(options, "changeTracking")
    return entry if entry is not None and "json" in items(entry.get("modes")) else None


def without_model_options(options: Mapping[str, object]) -> Mapping[str, object]:
    """Return the options without model formats; markdown is added if a model needs it."""
    if not entries(options):
        return options
    others = [one for one in items(options.get("formats")) if format_name(one) not in FIELDS]
    if not any(format_name(one) == "markdown" for one in others):
        others.append("markdown")
    return {**options, "formats": others}


def price(options: Mapping[str, object]) -> int:
    """Return the maximum price of a model's work on one page in credits."""
    extractions = [one for one in entries(options) if one.get("type") == "json"]
    return EXTRACTION_CREDITS * (len(extractions) + (tracking(options) is not None))


def wants_markdown(options: Mapping[str, object]) -> bool:
    """Return whether the request asks for the markdown."""
    return "markdown" in format_names(options)
