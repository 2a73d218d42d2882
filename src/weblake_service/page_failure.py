"""The exception for a page that could not be scraped."""

from __future__ import annotations


class PageFailure(Exception):
    """The page could not be scraped at all; a target that answers 404 is not a failure but a document."""

    def __init__(self, code: str, message: str, *, status: int = 500, reached: bool = True) -> None:
        super().__init__(message)
        #: One of the contract's known error codes.
        self.code = code
        #: What happened, to what, and what to do next.
        self.message = message
        #: What a single POST /v2/scrape answers.
        self.status = status
        #: False where it failed before anything was sent: no such name, no connection, or not allowed.
        self.reached = reached
