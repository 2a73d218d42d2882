"""Reads the `next` link of a chunk. Only its query is used, so requests never leave the client's own base URL."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

from weblake.credentials import one_line
from weblake.errors import MalformedReply

#: Maximum characters of a link; its query holds only an offset and a size.
MAX_LINK_CHARS = 4096

Query = tuple[tuple[str, str], ...]


def query_of(link: object, path: str) -> Query | None:
    """Return the query of a `next` link, to be requested at the client's own base URL and path, or None at the end.

    Scheme and host are ignored: servers build them from the Host header, which a proxy may change. The path must end
    with the kind and id of the job, else the link belongs to another job.

    Args:
        link: The value of `next`: null or absent at the end; some services send an empty text or false instead.
        path: The path of the job's status, such as `/v2/crawl/<id>`.

    Raises:
        MalformedReply: The link is not a text, is too long, or has another path.
    """
    if link is None or link is False or link == "":  # three encodings of "no link"
        return None
    try:
        if not isinstance(link, str) or len(link) > MAX_LINK_CHARS or re.search(r"[\x00-\x20\x7f\\]", link):
            raise ValueError
        parts = urlsplit(link)
        if not parts.path.lower().endswith(path.removeprefix("/v2").lower()):
            raise ValueError
        return tuple(
            parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query), max_num_fields=32)
        )
    except ValueError:
        shown = one_line(link, 120) if isinstance(link, str) else type(link).__name__
        raise MalformedReply(
            f"The service's `next` does not lead to another chunk of this job: {shown!r}.",
            hint="Nothing was followed and nothing was published; report it to the operator of the service.",
        ) from None
