"""The exception for a page that could not be scraped."""

from __future__ import annotations


class PageFailure(Exception):
    """The page could not be scraped at all; a target that returns 404 is not a failure but a document."""

    def __init__(self, code: str, message: str, *, status: int = 500, reached: bool = True) -> None:
        super().__init__(message)
        #: One of the contract's known error codes.
        self.code = code
        #: What happened, to what, and what to do next.
        self.message = message
        #: The status code of the response to a single POST /v2/scrape.
        self.status = status
        #: False if it failed before a request was sent: unknown name, no connection, or a private target.
        self.reached = reached
