"""Converts documents that are not web pages, such as PDFs and office files, into scrape documents."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from weblake_service.files.conversion_messages import ConversionResult, ConversionTask
from weblake_service.files.converter_pool import ConverterPool
from weblake_service.page.requested_formats import PageOptions
from weblake_service.page_failure import PageFailure

#: Maximum number of page numbers that a warning lists.
_MAX_LISTED_PAGES = 10
_PROBLEMS = {
    "encrypted": "is protected with a password, and files are only read without one. Take the protection off",
    "broken": "is damaged or not the kind of file that it says it is. Save it anew",
    "unsupported": "is a kind of file that is not converted. Save it as another kind",
    "large": "holds more than one file may hold once it is unpacked. Split it",
}


@dataclass(frozen=True, slots=True)
class FileDocument:
    """A converted document."""

    #: A complete HTML document; empty if HTML was not requested.
    html: str
    #: None if the markdown is to be made from the HTML.
    markdown: str | None
    #: Additional fields of the document: `pages`.
    extra: dict[str, object]
    metadata: dict[str, object]
    links: list[str]
    warning: str
    credits: int


async def convert_file(
    converters: ConverterPool, body: bytes, name: str, wanted: PageOptions, *, pdf: bool
) -> FileDocument:
    """Convert a PDF or an office file; `name` identifies it in messages, and its extension gives the kind.

    Raises:
        PageFailure: It is empty, encrypted, damaged, or too large.
    """
    if not body:
        raise PageFailure("SCRAPE_UNSUPPORTED_FILE_ERROR", f"{name} is empty: it has no bytes at all. Save it anew.")
    task = ConversionTask(
        kind="pdf" if pdf else "office",
        named=name.rpartition(".")[2].lower()[:8],
        max_pages=wanted.max_pages,
        html=bool(wanted.selectors) or not wanted.formats <= {"markdown"},
        pictures=bool(wanted.formats & {"html", "rawHtml"}) or not wanted.remove_base64_images,
    )
    result = await converters.convert(task, body)
    if result.problem:
        detail = f" ({result.detail[:200].rstrip('.')})" if result.detail and result.problem != "encrypted" else ""
        message = f"{name} {_PROBLEMS.get(result.problem, _PROBLEMS['broken'])}{detail}."
        raise PageFailure("SCRAPE_UNSUPPORTED_FILE_ERROR", message)
    return _as_document(result, wanted, pdf)


def as_base64(body: bytes, wanted: PageOptions) -> dict[str, object]:
    """Return an unconverted PDF as base64."""
    encoded = base64.b64encode(body).decode("ascii")
    return dict.fromkeys(sorted(wanted.formats & {"markdown", "html", "rawHtml"}), encoded)


def _as_document(result: ConversionResult, wanted: PageOptions, pdf: bool) -> FileDocument:
    pages = result.pages
    metadata: dict[str, object] = dict(result.metadata)
    if "subject" in metadata:
        metadata.setdefault("description", metadata["subject"])
    extra: dict[str, object] = {}
    if pdf and pages is not None:
        metadata |= {"numPages": len(pages), "totalPages": result.total_pages}
        if wanted.pages:
            extra["pages"] = [{"pageNumber": at, "markdown": page} for at, page in enumerate(pages, 1)]
    return FileDocument(
        html=result.html,
        markdown=None if pages is None or wanted.selectors else _join_pages(pages, wanted.page_markers and pdf),
        extra=extra,
        metadata=metadata,
        links=result.links,
        warning=" ".join(part for part in (result.warning, _scanned_pdf_failure(result.scanned)) if part),
        credits=max(1, len(pages)) if pdf and pages is not None else 1,
    )


def _join_pages(pages: list[str], markers: bool) -> str:
    if markers:
        return "\n\n".join(f"<!-- page {at} -->\n\n{page}".rstrip() for at, page in enumerate(pages, 1))
    return "\n\n".join(page for page in pages if page)


def _scanned_pdf_failure(pages: list[int]) -> str:
    if not pages:
        return ""
    more = f" and {len(pages) - _MAX_LISTED_PAGES} more" if len(pages) > _MAX_LISTED_PAGES else ""
    named = ", ".join(str(page) for page in pages[:_MAX_LISTED_PAGES])
    return (
        f"No text was found on page {named}{more}: scanned pages need text recognition (OCR), "
        "which this service does not have."
    )
