"""Rules between options.

A rule receives the checked options of one object, by snake_case name, and a function that returns the name of an option
for messages (with its path; the wire name in the embedded service). It returns the problem as text, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from weblake.api.options.values import quote_value, url_problem

Values = Mapping[str, object]
ShownName = Callable[[str], str]
Rule = Callable[[Values, ShownName], str | None]

#: Default of `timeout` for a page, in milliseconds.
DEFAULT_TIMEOUT_MS = 60_000


def waits_fit_into_timeout(values: Values, shown: ShownName) -> str | None:
    """Check that `wait_for` and the timed waits of the actions end before `timeout`."""
    timeout = _number(values, "timeout", DEFAULT_TIMEOUT_MS)
    in_actions = sum(_number(action, "milliseconds", 0) for action in _objects(values, "actions"))
    waits = {"wait_for": _number(values, "wait_for", 0), "actions": in_actions}
    if sum(waits.values()) < timeout:
        return None
    names = " and ".join(f"`{shown(name)}`" for name, milliseconds in waits.items() if milliseconds)
    given = "" if "timeout" in values else ", its default"
    return (
        f"{names} would wait for {sum(waits.values())} milliseconds in all, which does not fit into "
        f"`{shown('timeout')}` ({timeout}{given}): give a shorter wait, or a longer timeout"
    )


def one_screenshot(values: Values, shown: ShownName) -> str | None:
    """Check that there is at most one screenshot format."""
    count = _kinds(values).count("screenshot")
    return f"`{shown('formats')}` asks for {count} screenshots, and at most one is allowed" if count > 1 else None


def change_tracking_has_markdown(values: Values, shown: ShownName) -> str | None:
    """Check that change tracking is requested together with markdown, which it compares."""
    kinds = _kinds(values)
    if "changeTracking" in kinds and "markdown" not in kinds:
        return f"`{shown('formats')}` asks for changeTracking without markdown, which it compares: add markdown"
    return None


def clean_content_is_retained(values: Values, shown: ShownName) -> str | None:
    """Check that zero data retention is not combined with content cleaning, which sends the page to a model."""
    nested = values.get("scrape_options")
    inner = cast(Values, nested) if isinstance(nested, Mapping) else values
    if values.get("zero_data_retention") is True and inner.get("only_clean_content") is True:
        name = (
            shown("only_clean_content")
            if inner is values
            else f"{shown('scrape_options')}.{shown('only_clean_content')}"
        )
        return f"`{name}` does not go together with `{shown('zero_data_retention')}`: leave one of them out"
    return None


def schema_or_prompt(values: Values, shown: ShownName) -> str | None:
    """Check that a json format has a schema, a prompt, or both."""
    if "schema" in values or "prompt" in values:
        return None
    return f"a json format needs `{shown('schema')}`, `{shown('prompt')}`, or both"


def time_or_selector(values: Values, shown: ShownName) -> str | None:
    """Check that a wait action has exactly one of `milliseconds` and `selector`."""
    if ("milliseconds" in values) != ("selector" in values):
        return None
    return f"a wait action takes exactly one of `{shown('milliseconds')}` and `{shown('selector')}`"


def code_or_prompt(values: Values, shown: ShownName) -> str | None:
    """Check that exactly one of `code` and `prompt` is given."""
    if ("code" in values) != ("prompt" in values):
        return None
    how = "both are" if "code" in values else "none is"
    return f"exactly one of `{shown('code')}` and `{shown('prompt')}` is needed, and {how} given"


def domains_one_way(values: Values, shown: ShownName) -> str | None:
    """Check that a search does not both include and exclude domains."""
    if values.get("include_domains") and values.get("exclude_domains"):
        return (
            f"`{shown('include_domains')}` and `{shown('exclude_domains')}` do not go together: leave one of them out"
        )
    return None


def urls_or_prompt(values: Values, shown: ShownName) -> str | None:
    """Check that an extract job has `urls`, `prompt`, or both."""
    if values.get("urls") or values.get("prompt"):
        return None
    return f"`{shown('urls')}`, `{shown('prompt')}`, or both are needed"


def urls_can_be_scraped(values: Values, shown: ShownName) -> str | None:
    """Check that all URLs are valid, or with `ignore_invalid_urls` (the default) at least one of them."""
    urls = [cast(str, url) for url in _list(values, "urls")]
    problems = [(index, url, found) for index, url in enumerate(urls) if (found := url_problem(url))]
    if not problems:
        return None
    index, url, found = problems[0]
    first = f"`{shown('urls')}[{index}]` {found}: {quote_value(url)}"
    if values.get("ignore_invalid_urls", True) is not True:
        return first
    if len(problems) < len(urls):
        return None
    return f"No valid URLs provided in `{shown('urls')}` ({len(urls)} given; {first})"


def _number(values: Values, name: str, default: int) -> int:
    value = values.get(name, default)
    return value if isinstance(value, int) else default


def _list(values: Values, name: str) -> list[object]:
    value = values.get(name)
    return value if isinstance(value, list) else []


def _objects(values: Values, name: str) -> list[Values]:
    return [item for item in _list(values, name) if isinstance(item, Mapping)]


def _kinds(values: Values) -> list[object]:
    return [item.get("type") if isinstance(item, Mapping) else item for item in _list(values, "formats")]
