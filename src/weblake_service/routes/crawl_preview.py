"""POST /v2/crawl/params-preview."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weblake.api import options
from weblake_service.components import ServiceComponents, requester
from weblake_service.feature_checks import not_configured
from weblake_service.llm.crawl_params import generate
from weblake_service.responses import json_response, read_object
from weblake_service.routes.request_options import read_options, read_target


class CrawlPreviewRoutes:
    """The crawl preview endpoint."""

    def __init__(self, parts: ServiceComponents) -> None:
        self._parts = parts

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route("/v2/crawl/params-preview", self.preview, methods=["POST"])]

    async def preview(self, request: Request) -> Response:
        """Return the options for POST /v2/crawl that match a prompt; starts no job and is free."""
        parts = self._parts
        body = await read_object(request, parts.config.max_body)
        request_options = read_options(options.CrawlParamsPreviewRequest, body)
        if parts.llm.missing:
            raise not_configured("Crawl parameter preview", parts.llm.missing)
        url = read_target(request_options["url"], parts.config)
        parts.rate.take(requester(request).team)
        found, _ = await generate(parts.llm.require("Crawl parameter preview"), url, str(request_options["prompt"]))
        return json_response({"success": True, "data": {"url": url, **found}})
