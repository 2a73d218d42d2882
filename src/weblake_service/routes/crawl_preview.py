"""POST /v2/crawl/params-preview."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weblake.api import options
from weblake_service.components import Parts, asker
from weblake_service.feature_checks import missing
from weblake_service.llm.crawl_params import generate
from weblake_service.responses import answer, read_object
from weblake_service.routes.request_options import read_options, read_target


class CrawlPreviewRoutes:
    """The preview of a crawl's options."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def routes(self) -> list[Route]:
        """The routes."""
        return [Route("/v2/crawl/params-preview", self.preview, methods=["POST"])]

    async def preview(self, request: Request) -> Response:
        """Turns a prompt into options that POST /v2/crawl takes; starts nothing, and costs nothing."""
        parts = self._parts
        body = await read_object(request, parts.config.max_body)
        asked = read_options(options.CrawlParamsPreviewRequest, body)
        if parts.llm.lacks:
            raise missing("Crawl parameter preview", parts.llm.lacks)
        url = read_target(asked["url"], parts.config)
        parts.rate.take(asker(request).team)
        found, _ = await generate(parts.llm.needed("Crawl parameter preview"), url, str(asked["prompt"]))
        return answer({"success": True, "data": {"url": url, **found}})
