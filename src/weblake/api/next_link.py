"""Where the next chunk is: only ever below our own base, whatever the service writes."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

from weblake.compat import re
from weblake.credentials import one_line
from weblake.errors import MalformedReply

#: Nothing but an offset and a size has to fit.
MAX_QUERY = 4096

Query = tuple[tuple[str, str], ...]

#: A link as services write them, without a letter that stands for anything but itself.
_WORD = r"[A-Za-z0-9_-]++"
_PLAIN = re.compile(
    rf"https?://[A-Za-z0-9.-]++(?::[0-9]++)?((?:/{_WORD})++)\?({_WORD}={_WORD}(?:&{_WORD}={_WORD}){{0,31}}+)"
)


def query_of(link: object, path: str) -> Query | None:
    """The query of a `next` link, to be asked on our own base and path; None at the end of the chain.

    Scheme and host are ignored: servers build them from a Host header, and a proxy in between makes them name another
    one. The path has to end as our own does, in kind and job id, or the link belongs to something else.

    Args:
        link: What stands in `next`: null or absent at the end, and with some an empty text or false.
        path: The path of the job's own status read, such as `/v2/crawl/<id>`.

    Raises:
        MalformedReply: The link is no text, too long, or leads elsewhere.
    """
    if link is None or link is False or link == "":  # three ways to write none
        return None
    if not isinstance(link, str) or len(link) > MAX_QUERY:
        raise _elsewhere(link)
    leads_to, query = _plain(link) or _parsed(link)
    if not leads_to.lower().endswith(path.removeprefix("/v2").lower()):
        raise _elsewhere(link)
    return query


def _plain(link: str) -> tuple[str, Query] | None:
    """Path and query of a plain link, without which a chunk costs a twentieth more; None for any other one."""
    found = _PLAIN.fullmatch(link)
    if found is None:
        return None
    pairs = (pair.partition("=") for pair in found[2].split("&"))
    return found[1], tuple((name, value) for name, _, value in pairs)


def _parsed(link: str) -> tuple[str, Query]:
    """The same of any link."""
    if re.search(r"[\x00-\x20\x7f\\]", link):
        raise _elsewhere(link)
    try:
        parts = urlsplit(link)
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query), max_num_fields=32)
    except ValueError:
        raise _elsewhere(link) from None
    return parts.path, tuple(pairs)


def _elsewhere(link: object) -> MalformedReply:
    shown = one_line(link, 120) if isinstance(link, str) else type(link).__name__
    return MalformedReply(
        f"The service's `next` does not lead to another chunk of this job: {shown!r}.",
        hint="Nothing was followed and nothing was published; report it to whoever runs the service.",
    )
