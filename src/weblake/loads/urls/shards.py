"""Splits a long list of URLs into shards, one for each mapped task. A shard holds a range of the file, not the URLs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from itertools import islice, repeat
from typing import TypedDict

import msgspec

from weblake.errors import FixRequest, InvalidOption, Remedy, StorageRefused
from weblake.loads.urls.files import UrlFile, open_url_file
from weblake.loads.urls.lists import Format, LocatedUrl, Span, no_urls_error, urls_in, whole_span
from weblake.storage import RootPath

#: Default number of URLs of a shard.
DEFAULT_PER_SHARD = 5000
#: Airflow's `[core] max_map_length`.
MAX_SHARDS = 1024


class UrlShard(TypedDict):
    """One part of a list as a JSON-ready dict of less than 1 KB, whatever its length. `read_shard` returns its URLs."""

    file: str
    """Where the list is: an absolute path or a storage URL; a connection's id, but never a credential."""
    format: Format
    column: str | None
    field: int | None
    """The column's place in a CSV record, from 0."""
    index: int
    """The shard's own number, from 0."""
    of: int
    """How many shards the list was cut into."""
    first: int
    """How many URLs are in the shards before this."""
    count: int
    """How many URLs are in this one, duplicates included."""
    start: int
    """Where it begins: the byte, or the row of a Parquet file, from 0."""
    end: int
    """Where it ends, not included."""
    size: int
    """Bytes of the file when it was cut."""
    digest: str
    """Of its URLs in their order; what is read later is compared to it."""


def url_shards(
    file: RootPath,
    *,
    column: str | None = None,
    per_shard: int | None = None,
    shards: int | None = None,
    max_shards: int = MAX_SHARDS,
) -> list[UrlShard]:
    """Return the shards of a list of URLs; together they hold what `read_urls` returns, in order, with duplicates.

    The file is read incrementally once (twice with `shards`). Do not change it until all shards have been read:
    `read_shard` refuses a shard whose URLs have changed.

    Args:
        file: A local path, a storage URL, or an object with `fs` and `path`. Its extension selects the format: CSV,
            Parquet, or else one URL per line. A shard of a Parquet file is read from the row groups that overlap it;
            if the file has one large row group, every shard is read from its beginning.
        column: The column of a CSV or Parquet file. Default: `url`.
        per_shard: The number of URLs of a shard; the last may have fewer. Default: 5000, unless `shards` is given.
        shards: The number of shards, whose sizes differ by at most one URL; fewer if there are fewer URLs.
        max_shards: The maximum number of shards; longer lists are refused. Orchestrators limit mapped tasks.

    Raises:
        InvalidOption: The file holds no URL, there would be too many shards, or the file is a pipe, which cannot be
            read again.
        FixRequest: The file cannot be read or has no such column.
        FeatureMissing: The extra for its storage is not installed.
    """
    _check_sizes(per_shard, shards, max_shards)
    with open_url_file(file) as opened:
        if not opened.lasting:
            raise InvalidOption(
                f"{opened.name} can be read only once, and a shard is read later.", hint="Write it to a file."
            )
        span = whole_span(opened, column)
        sizes = repeat(per_shard or DEFAULT_PER_SHARD) if shards is None else _even_sizes(opened, span, shards)
        kept: list[UrlShard] = []
        number = urls = 0
        for shard in _split(opened, span, sizes):
            number, urls = number + 1, urls + shard["count"]
            if number <= max_shards:
                kept.append(shard)
    if number > max_shards:
        raise InvalidOption(
            f"{opened.name} holds {urls} URLs, which makes {number} shards; at most {max_shards} are allowed.",
            hint=f"Give per_shard={-(-urls // max_shards)} or more.",
        )
    if not kept:
        raise no_urls_error(opened)
    for shard in kept:
        shard["of"] = number
    return kept


def read_shard(shard: UrlShard | Mapping[str, object], file: RootPath | None = None) -> list[str]:
    """Return the URLs of a shard, in order, with duplicates; only the range of the shard is read.

    Args:
        shard: A shard that `url_shards` returned; it may have been serialised as JSON in between.
        file: The list, if the shard's own `file` cannot be opened in this process, such as a path with credentials.

    Raises:
        InvalidOption: `shard` is not a shard.
        FixRequest: The list does not exist any more, or has changed since it was split. No URL is returned then.
        FeatureMissing: The extra for its storage is not installed.
    """
    try:
        part = msgspec.convert(shard, UrlShard)
    except msgspec.ValidationError as error:
        raise InvalidOption(f"This is no shard of a list of URLs: {error}.", hint="Make it with url_shards.") from None
    with open_url_file(part["file"] if file is None else file) as opened:
        span = Span(part["format"], part["start"], part["end"], part["column"], part["field"])
        if span.format != "parquet" and span.end > opened.size:
            raise _changed_error(opened, part)
        try:
            urls = [url for _, _, url in urls_in(opened, span)]
        except StorageRefused:
            raise
        except FixRequest:  # this range was readable when the list was split
            raise _changed_error(opened, part) from None
    digest = _Digest()
    for url in urls:
        digest.add(url)
    if (len(urls), digest.text()) != (part["count"], part["digest"]):
        raise _changed_error(opened, part)
    return urls


class _Digest:
    """Digest of a sequence of texts. Each text is preceded by its length, because texts may contain any separator."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)

    def add(self, text: str) -> None:
        self._hash.update(f"{len(text)}:{text}".encode())

    def text(self) -> str:
        return self._hash.hexdigest()


def _check_sizes(per_shard: int | None, shards: int | None, max_shards: int) -> None:
    if per_shard is not None and shards is not None:
        raise InvalidOption("per_shard and shards exclude each other.", hint="Give one of them.")
    for name, value in (("per_shard", per_shard), ("shards", shards), ("max_shards", max_shards)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise InvalidOption(f"{name} is {value!r}.", hint="Give a whole number of at least 1.")
    if shards is not None and shards > max_shards:
        raise InvalidOption(
            f"shards={shards} is more than max_shards={max_shards}.", hint="Give fewer shards, or raise max_shards."
        )


def _even_sizes(file: UrlFile, span: Span, shards: int) -> Iterator[int]:
    total = sum(1 for _ in urls_in(file, span))
    size, larger = divmod(total, shards)
    return (size + (number < larger) for number in range(min(shards, total)))


def _split(file: UrlFile, span: Span, sizes: Iterator[int]) -> Iterator[UrlShard]:
    found = urls_in(file, span)
    first = 0
    for index, size in enumerate(sizes):
        shard = _build_shard(file, span, islice(found, size))
        if shard is None:
            return
        yield shard | {"index": index, "first": first}
        first += shard["count"]
    if next(found, None) is not None:
        raise FixRequest(
            f"{file.name} grew while it was split into shards.", hint="Run it again when the file is complete."
        )


def _build_shard(file: UrlFile, span: Span, found: Iterator[LocatedUrl]) -> UrlShard | None:
    digest, count, start, end = _Digest(), 0, 0, 0
    for begins, ends, url in found:
        digest.add(url)
        start, end, count = start if count else begins, ends, count + 1
    if not count:
        return None
    return UrlShard(
        file=file.address,
        format=span.format,
        column=span.column,
        field=span.field,
        index=0,
        of=0,
        first=0,
        count=count,
        start=start,
        end=end,
        size=file.size,
        digest=digest.text(),
    )


def _changed_error(file: UrlFile, shard: UrlShard) -> FixRequest:
    return FixRequest(
        f"{file.name} has changed since it was cut: shard {shard['index']} of {shard['of']} holds other URLs now "
        f"(the file had {shard['size']} bytes and has {file.size}).",
        hint=Remedy("{cut_again}, or put the former file back."),
    )
