"""The commands map, search, crawls and preview, which find out what there is to scrape."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from weblake import output
from weblake.cli.app import ContractOptions, Json, ServiceOptions

Limit = Annotated[int | None, typer.Option("--limit", metavar="N", help="Maximum number of results.")]


def map_(
    url: str,
    options: ContractOptions,
    service: ServiceOptions,
    search: Annotated[str | None, typer.Option("--search", help="Sort the URLs by relevance to this text.")] = None,
    limit: Limit = None,
    as_json: Json = False,
) -> None:
    """Lists the URLs of a site, one per line."""
    with service.connect() as client:
        found = client.map_site(url, **options.keyword_arguments(search=search, limit=limit))
    if as_json:
        output.show_json(found.raw)
        return
    _warn(found.warning)
    for link in found.links:
        output.show_text(link.url or "")


def search(
    query: str, options: ContractOptions, service: ServiceOptions, limit: Limit = None, as_json: Json = False
) -> None:
    """Searches the web, or on the embedded service what it scraped, and lists the hits."""
    with service.connect() as client:
        found = client.search(query, **options.keyword_arguments(limit=limit))
    if as_json:
        output.show_json(found.raw)
        return
    _warn(found.warning)
    data = found.data
    rows = [(hit.title, hit.url, hit.description) for hit in data.web]
    rows += [(hit.title, hit.url, hit.snippet) for hit in data.news]
    rows += [(hit.title, hit.url, hit.image_url) for hit in data.images]
    if rows:
        output.show_table("", ("title", "url", "description"), rows)
    else:
        output.note("Nothing was found.")


def crawls(service: ServiceOptions, as_json: Json = False) -> None:
    """Lists the crawls that are running."""
    with service.connect() as client:
        found = client.list_active_crawls()
    if as_json:
        output.show_json(found.raw)
        return
    rows = [(each.id, each.url, each.created_at) for each in found.crawls]
    output.show_table("Active crawls", ("id", "url", "started"), rows, whole="id")


def preview(url: str, prompt: str, service: ServiceOptions, as_json: Json = False) -> None:
    """Turns a prompt into crawl options, without starting a crawl."""
    with service.connect() as client:
        found = client.preview_crawl_params(url, prompt)
    if as_json:
        output.show_json(found.raw)
        return
    data = found.raw.get("data") if isinstance(found.raw, dict) else None
    output.show_table("Crawl options", ("option", "value"), list(data.items()) if isinstance(data, dict) else [])


def _warn(text: str | None) -> None:
    if text:
        output.note(escape(" ".join(text.split())))
