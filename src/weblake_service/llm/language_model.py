"""The language model of one service, or the settings that are missing for one."""

from __future__ import annotations

from weblake_service.config import ServiceConfig
from weblake_service.llm.interface import ModelFailure
from weblake_service.llm.openai_endpoint import OpenAIEndpoint
from weblake_service.llm.settings import check, missing_settings


class LanguageModel:
    """Holds the configured model, if any. Created on the event loop that uses it.

    Args:
        config: The fields that begin with `llm_`.

    Raises:
        InvalidOption: The endpoint cannot be used.
    """

    def __init__(self, config: ServiceConfig) -> None:
        #: The missing settings, as part of a refusal; empty if there is a model.
        self.missing = missing_settings(config)
        self._endpoint: OpenAIEndpoint | None = None
        if config.llm_base_url:
            check(config)
        if not self.missing:
            self._endpoint = OpenAIEndpoint(config)

    @property
    def model(self) -> OpenAIEndpoint | None:
        """Return the model; None if a setting is missing."""
        return self._endpoint

    def require(self, what: str) -> OpenAIEndpoint:
        """Return the model.

        Args:
            what: The feature that needs it, for the message.

        Raises:
            ModelFailure: 503 with the name of the missing setting.
        """
        if self._endpoint is None:
            raise ModelFailure(
                "FEATURE_NOT_CONFIGURED", f"{what} needs {self.missing}, which this service does not have.", status=503
            )
        return self._endpoint

    async def aclose(self) -> None:
        """Close the model's connections."""
        if self._endpoint is not None:
            await self._endpoint.aclose()
