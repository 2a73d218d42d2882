"""Options of a request that shape its document: formats, content selection, file parsing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from weblake_service.page_failure import PageFailure

#: Formats made by this package; the others need a browser or a language model.
FORMATS = frozenset(["markdown", "html", "rawHtml", "links", "images"])


@dataclass(frozen=True, slots=True)
class PageOptions:
    """The options that determine the content of a document."""

    formats: frozenset[str]
    only_main_content: bool
    include_tags: tuple[str, ...]
    exclude_tags: tuple[str, ...]
    remove_base64_images: bool
    block_ads: bool
    #: Whether a PDF is converted; otherwise it is returned as base64.
    parse_pdf: bool
    #: Maximum number of PDF pages that are converted; None for all.
    max_pages: int | None = None
    #: Whether the document gets a list of the PDF's pages, each with its markdown.
    pages: bool = False
    #: Whether the markdown marks the beginning of each PDF page.
    page_markers: bool = False
    #: Whether the page is the DOM of a browser, in which a route in a fragment is a page of its own.
    rendered: bool = False

    @property
    def selectors(self) -> tuple[str, ...]:
        """Return the CSS selectors that select the content."""
        return (*self.include_tags, *self.exclude_tags)


def read_page_options(options: Mapping[str, object]) -> PageOptions:
    """Return the options (snake_case) as `PageOptions`.

    Raises:
        PageFailure: 400; a format is not supported by this package.
    """
    parsers = options.get("parsers")
    pdf = next((one for one in items(parsers) if isinstance(one, Mapping) and one.get("type") == "pdf"), {})
    max_pages = pdf.get("max_pages")
    return PageOptions(
        formats=_formats(format_names(options)),
        only_main_content=options.get("only_main_content") is not False,
        include_tags=tuple(str(tag) for tag in items(options.get("include_tags"))),
        exclude_tags=tuple(str(tag) for tag in items(options.get("exclude_tags"))),
        remove_base64_images=options.get("remove_base64_images") is not False,
        block_ads=options.get("block_ads") is not False,
        parse_pdf=parsers is None or any(format_name(parser) == "pdf" for parser in items(parsers)),
        max_pages=max_pages if isinstance(max_pages, int) else None,
        pages=bool(pdf.get("pages")),
        page_markers=bool(pdf.get("page_markers")),
    )


def format_names(options: Mapping[str, object]) -> list[str]:
    """Return the requested formats; markdown by default."""
    formats = options.get("formats")
    return [format_name(entry) for entry in items(["markdown"] if formats is None else formats)]


def format_entry(options: Mapping[str, object], name: str) -> Mapping[str, Any] | None:
    """Return the options of a requested format; empty for its short form, None if it is not requested."""
    for entry in items(options.get("formats")):
        if format_name(entry) == name:
            return entry if isinstance(entry, Mapping) else {}
    return None


def left_out_warnings(options: Mapping[str, object], failures: Mapping[str, PageFailure]) -> list[str]:
    """Return a warning for each part of a page, a format or the actions, that could not be made.

    Raises:
        PageFailure: Nothing that was asked for could be made; the failure of the first part.
    """
    wanted = format_names(options) + ["actions"] * bool(options.get("actions"))
    if wanted and all(name in failures for name in wanted):
        raise failures[wanted[0]]
    return [f"`{name}` was left out: {failure.message}" for name, failure in failures.items()]


def items(value: object) -> list[object]:
    """Return the members of a list; an empty list for anything else."""
    return list(value) if isinstance(value, list | tuple | set | frozenset) else []


def number(value: object, default: float) -> float:
    """Return a positive number, or the default."""
    return float(value) if isinstance(value, int | float) and value > 0 else default


def _formats(given: Iterable[str]) -> frozenset[str]:
    names = ["rawHtml" if name == "raw_html" else name for name in given]
    for name in names:
        if name not in FORMATS:
            message = f"The format {name!r} is not made by this part of the service. Choose from {sorted(FORMATS)}."
            raise PageFailure("BAD_REQUEST", message, status=400)
    return frozenset(names)


def format_name(entry: object) -> str:
    """Return the name of a format or parser, in either of its forms."""
    return str(entry.get("type", "")) if isinstance(entry, Mapping) else str(entry)
