"""Long lists of URLs for mapped tasks, from files that an Airflow connection opens.

    @task
    def shards() -> list[UrlShard]:
        return url_shards("s3://aws_default@lists/urls.parquet", per_shard=5000)

    WeblakeBatchScrapeOperator.partial(task_id="scrape", to=...).expand(urls=shards())

XCom carries the position of each shard in the file, not the URLs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

from airflow_provider_weblake.features import conf
from airflow_provider_weblake.remedies import in_airflow_terms
from airflow_provider_weblake.storage import LakePath, root_path
from weblake import orchestration
from weblake.errors import InvalidOption
from weblake.orchestration import UrlShard

#: The types that an operator accepts as `urls`.
Urls = Sequence[str] | LakePath | Mapping[str, object]

__all__ = ["UrlShard", "read_urls_or_shard", "url_shards"]


@in_airflow_terms()
def url_shards(
    path: LakePath,
    *,
    column: str | None = None,
    per_shard: int | None = None,
    shards: int | None = None,
    max_shards: int | None = None,
) -> list[UrlShard]:
    """Return the shards of a list of URLs, one for each mapped task; return them from a task and `expand` over them.

    Each shard is a small dict that an operator takes as its `urls`. Together they are the list, in its order, with its
    duplicates. Cleared or retried, a mapped task reads its shard again; if the file has changed by then, it
    lands the job that it had started, or else fails and starts nothing: clear the task that cut it too.

    :param path: a local path that every worker has, or an object storage path, with the connection in it
        (``s3://conn_id@bucket/urls.csv``). Its ending gives the format: ``.csv``, ``.parquet``, or else one URL a line,
        where empty lines and lines that begin with ``#`` do not count.
    :param column: the column of a CSV or Parquet file (default: ``url``).
    :param per_shard: URLs of one shard (default: 5000, if ``shards`` is not given).
    :param shards: the number of shards; their sizes differ by one URL at most.
    :param max_shards: how many are allowed (default: ``[core] max_map_length``, which is 1024 unless configured).
    :raises weblake.errors.AskPerson: its connection does not exist, or no installed provider opens it.
    :raises weblake.errors.InvalidOption: there is no URL in it, or there would be too many shards.
    :raises weblake.errors.FixRequest: the file cannot be read or has no such column.
    """
    if max_shards is None:
        max_shards = conf.getint("core", "max_map_length", fallback=1024)
    return orchestration.url_shards(
        _opened(path), column=column, per_shard=per_shard, shards=shards, max_shards=max_shards
    )


@in_airflow_terms()
def read_urls_or_shard(urls: Urls, column: str | None = None) -> list[str]:
    """Return the URLs that an operator's ``urls`` stands for, in order, duplicates included.

    :param urls: the URLs themselves; the path of a file that lists them, as in :func:`url_shards`; one shard; or a list
        or shard as JSON text, as a template with ``| tojson`` renders it.
    :param column: the column of a CSV or Parquet file (default: ``url``). A shard has its own.
    :raises weblake.errors.InvalidOption: it is none of these, or it is the address of a page instead of a list.
    :raises weblake.errors.FixRequest: the file cannot be read, or has changed since it was cut into shards.
    """
    if isinstance(urls, str) and urls.lstrip()[:1] in ("[", "{"):
        urls = _from_json(urls)
    if isinstance(urls, Mapping):
        file = urls.get("file")
        return orchestration.read_shard(urls, _opened(file) if isinstance(file, str) else None)
    if not isinstance(urls, str | os.PathLike) and isinstance(urls, Sequence):
        return _listed(urls)
    return orchestration.read_urls(_opened(urls), column)


def _opened(path: LakePath) -> LakePath:
    """Return a storage URL with the file system of its Airflow connection; a local path is returned unchanged."""
    if isinstance(path, str) and not path.strip():
        raise InvalidOption("`urls` is empty.", hint="Give a list of URLs, or the path of a file of them.")
    if path == "-":
        raise InvalidOption("A task has no standard input to read a list from.", hint="Give the path of a file.")
    page = isinstance(path, str) and path.lower().startswith(("http://", "https://"))
    return path if page else root_path(path)  # the core's error says what to do with a page


def _listed(urls: Sequence[object]) -> list[str]:
    listed = [url for url in urls if isinstance(url, str)]
    if len(listed) < len(urls):
        other = next(type(url).__name__ for url in urls if not isinstance(url, str))
        raise InvalidOption(f"The list of URLs holds a {other}.", hint="Give texts, or one shard for each mapped task.")
    return listed


def _from_json(text: str) -> list[str] | dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, list | dict):
        raise InvalidOption(
            "`urls` was rendered to a text that is neither JSON nor a path.",
            hint="Pass the upstream task's output itself, or add `| tojson` to the template.",
        )
    return value
