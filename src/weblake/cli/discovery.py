"""map, search, crawls, preview: what there is to scrape."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from weblake import output
from weblake.cli.tree import BaseUrl, Insecure, Json, Options, connect, given_options

Limit = Annotated[int | None, typer.Option("--limit", metavar="N", help="Results at most.")]


def map_site(
    url: str,
    search: Annotated[str | None, typer.Option("--search", help="Order by relevance to this.")] = None,
    limit: Limit = None,
    option: Options = None,
    as_json: Json = False,
    base_url: BaseUrl = None,
    insecure: Insecure = False,
) -> None:
    """Lists the URLs of a site, one a line."""
    given = given_options(option)
    given |= {name: value for name, value in (("search", search), ("limit", limit)) if value is not None}
    with connect(base_url, insecure) as client:
        found = client.map_site(url, **given)  # type: ignore[arg-type]
    if as_json:
        output.show_json(found.raw)
        return
    if found.warning:
        _warn(found.warning)
    for link in found.links:
        output.show_text(link.url or "")


def search(
    query: str,
    limit: Limit = None,
    option: Options = None,
    as_json: Json = False,
    base_url: BaseUrl = None,
    insecure: Insecure = False,
) -> None:
    """Searches the web, or on the embedded service what it scraped, and lists the hits."""
    given = given_options(option)
    if limit is not None:
        given["limit"] = limit
    with connect(base_url, insecure) as client:
        found = client.search(query, **given)  # type: ignore[arg-type]
    if as_json:
        output.show_json(found.raw)
        return
    if found.warning:
        _warn(found.warning)
    data = found.data
    rows = [(hit.title, hit.url, hit.description) for hit in data.web]
    rows += [(hit.title, hit.url, hit.snippet) for hit in data.news]
    rows += [(hit.title, hit.url, hit.image_url) for hit in data.images]
    if rows:
        output.show_table("", ("title", "url", "description"), rows)
    else:
        output.note("Nothing was found.")


def crawls(as_json: Json = False, base_url: BaseUrl = None, insecure: Insecure = False) -> None:
    """Lists the crawls that are running."""
    with connect(base_url, insecure) as client:
        found = client.list_active_crawls()
    if as_json:
        output.show_json(found.raw)
        return
    output.show_table(
        "Active crawls", ("id", "url", "started"), [(c.id, c.url, c.created_at) for c in found.crawls], whole="id"
    )


def preview(url: str, prompt: str, as_json: Json = False, base_url: BaseUrl = None, insecure: Insecure = False) -> None:
    """Turns a prompt into crawl options, without starting a crawl."""
    with connect(base_url, insecure) as client:
        found = client.preview_crawl_params(url, prompt)
    if as_json:
        output.show_json(found.raw)
        return
    data = found.raw.get("data") if isinstance(found.raw, dict) else None
    output.show_table("Crawl options", ("option", "value"), list(data.items()) if isinstance(data, dict) else [])


def _warn(text: str) -> None:
    output.note(escape(" ".join(text.split())))


def register(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.command("map")(map_site)
    for command in (search, crawls, preview):
        app.command()(command)
