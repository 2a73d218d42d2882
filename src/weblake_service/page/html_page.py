"""Converts HTML or text to a document; harmless bodies in the service process, others in a converter process."""

from __future__ import annotations

from html import escape

from selectolax.lexbor import LexborHTMLParser

from weblake_service.page.ad_removal import drop_ads
from weblake_service.page.content_types import fence_language, html_of, text_of
from weblake_service.page.formulas import keep_tex_scripts
from weblake_service.page.links import base_of, images_in, links_in, resolve_all, set_image_sources
from weblake_service.page.main_content import Content, select_content
from weblake_service.page.markdown import fenced, to_markdown, without_base64_images
from weblake_service.page.metadata import read_metadata
from weblake_service.page.parser_limits import limit_nesting
from weblake_service.page.requested_formats import PageOptions
from weblake_service.page.script_filled import HIDDEN_MARK, script_reason
from weblake_service.page.shadow_roots import unwrap_shadow_roots

_TOO_DEEP_WARNING = "The page nests deeper than can be converted; text at the bottom is missing from the markdown."


def html_document(content_type: str, body: bytes, url: str, wanted: PageOptions) -> tuple[dict[str, object], list[str]]:
    """Return the document without its rawHtml, and all links of the page; relative URLs are resolved against `url`.

    Raises:
        PageFailure: A selector cannot be run on this page.
    """
    source = limit_nesting(html_of(content_type, body))
    tree = parse_html(source)
    base = base_of(tree, url)
    links = links_in(tree, url, base, routes=wanted.rendered)
    metadata = read_metadata(tree, base)
    if reason := script_reason(tree):
        metadata["scriptFilled"] = reason
    content = _content(tree, wanted)
    document: dict[str, object] = {}
    warnings = [content.warning] if content.warning else []
    if "links" in wanted.formats:
        document["links"] = links_in(content.tree, url, base, routes=wanted.rendered)
    if "images" in wanted.formats:
        document["images"] = images_in(content.tree, base)
    resolve_all(content.tree, base)
    if "html" in wanted.formats:
        document = {"html": content.tree.html or "", **document}
    if "markdown" in wanted.formats:
        markdown, whole = to_markdown(content.tree, remove_base64_images=wanted.remove_base64_images)
        if not whole:
            shallow = _content(parse_html(limit_nesting(source, always_scan=True)), wanted)
            resolve_all(shallow.tree, base)
            markdown, whole = to_markdown(shallow.tree, remove_base64_images=wanted.remove_base64_images)
        if not whole:
            warnings.append(_TOO_DEEP_WARNING)
        document = {"markdown": markdown, **document}
    if warnings:
        document["warning"] = " ".join(warnings)
    return {**document, "metadata": metadata}, links


def text_document(content_type: str, body: bytes, url: str, wanted: PageOptions) -> tuple[dict[str, object], list[str]]:
    """Return the document of text that is not HTML, without its rawHtml, and no links: JSON and XML in a code fence,
    everything else unchanged.
    """
    text = text_of(content_type, body)
    document: dict[str, object] = {}
    if "markdown" in wanted.formats:
        language = fence_language(content_type)
        shown = without_base64_images(text) if wanted.remove_base64_images else text
        document["markdown"] = fenced(text, language) if language and text.strip() else shown
    if "html" in wanted.formats:
        document["html"] = f"<pre>{escape(text, quote=False)}</pre>"
    return document, []


READERS = {"html": html_document, "text": text_document}


def without_marks(html: str) -> str:
    """Return the HTML of a browser as the page wrote it."""
    return html.replace(f' {HIDDEN_MARK}=""', "")


def parse_html(source: str) -> LexborHTMLParser:
    """Return the tree of a page, with its declarative shadow roots unwrapped."""
    tree = LexborHTMLParser(source)
    if "shadowrootmode" in source:
        unwrap_shadow_roots(tree)
    return tree


def _content(tree: LexborHTMLParser, wanted: PageOptions) -> Content:
    for node in tree.css(f"[{HIDDEN_MARK}]"):
        node.decompose()
    keep_tex_scripts(tree)
    set_image_sources(tree)
    if wanted.block_ads and not wanted.only_main_content and not wanted.include_tags:
        drop_ads(tree)
    return select_content(
        tree,
        only_main_content=wanted.only_main_content,
        include_tags=wanted.include_tags,
        exclude_tags=wanted.exclude_tags,
    )
