"""Airflow assets for the tables of a dataset, with the URI `weblake://<storage>/<place>/<table>`.

A table has one URI, whether or not its root names an Airflow connection or ends with a slash. A DAG that is scheduled
on the asset therefore runs whichever connection the producing DAG lands with.

    s3://aws_default@lake/web    ->  weblake://s3/lake/web/documents
    gs://lake/web/               ->  weblake://gs/lake/web/documents
    abfs://azure@lake/web        ->  weblake://abfs/lake/web/documents
    /data/lake                   ->  weblake://file/data/lake/documents
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypedDict, Unpack
from urllib.parse import SplitResult, quote, unquote, urlsplit, urlunsplit

from airflow.sdk import Asset

from weblake.errors import InvalidOption

if TYPE_CHECKING:
    from airflow.sdk import AssetAccessControl, AssetWatcher, BaseHook, ObjectStoragePath
    from openlineage.client.event_v2 import Dataset
    from pydantic.types import JsonValue

#: The tables that a dataset may have. They are repeated here because the core's schemas import Arrow.
TABLES = ("documents", "page_errors", "usage_periods", "activity")
SCHEME = "weblake"
_STORAGES = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "gcs": "gs",
    "abfs": "abfs",
    "abfss": "abfs",
    "az": "abfs",
    "file": "file",
    "local": "file",
}
#: Characters that are not percent-encoded in a path segment, besides letters, digits and `_.-~`.
_PLAIN = "=+,@!$'()*:"
_FORM = "It has the form weblake://<s3|gs|abfs|file>/<bucket or path>/<table>, with a table of " + ", ".join(TABLES)


class AssetOptions(TypedDict, total=False):
    """Optional arguments of `airflow.sdk.Asset` that `weblake_asset` passes on."""

    group: str
    extra: dict[str, JsonValue] | None
    watchers: list[AssetWatcher]
    access_control: AssetAccessControl


def weblake_asset(
    root: str | os.PathLike[str] | ObjectStoragePath,
    table: str = "documents",
    *,
    name: str | None = None,
    **options: Unpack[AssetOptions],
) -> Asset:
    """Return the asset that stands for a table of the dataset at a root, for `outlets`, `inlets` and `schedule`.

    :param root: the value that operators get as `to`, without templates: an absolute local path, or an s3://, gs:// or
        abfs:// URL. An Airflow connection in it, as in `s3://aws_default@lake/web`, is left out of the URI.
    :param table: `documents` (default), `page_errors`, `usage_periods` or `activity`.
    :param name: the asset's name; by default its URI.
    :param options: further arguments of `Asset`: group, extra, watchers, access_control.

    Raises:
        InvalidOption: The root is relative, in memory or on an unsupported kind of storage, or there is no such table.
    """
    uri = asset_uri(root, table)
    return Asset(name or uri, uri, **options)


def asset_uri(root: str | os.PathLike[str] | ObjectStoragePath, table: str = "documents") -> str:
    """Return the asset URI of a table of the dataset at a root; raise as `weblake_asset` does."""
    storage, segments = _place(os.fspath(root) if isinstance(root, os.PathLike) else str(root))
    return urlunsplit(_address(storage, [*segments, table]))


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """Return the canonical form of an asset URI; Airflow calls this for every asset of the scheme.

    Raises:
        InvalidOption: The URI is not a table of a dataset. The error is a ValueError too, as Airflow expects.
    """
    storage = uri.netloc.rpartition("@")[2].lower()
    if storage not in _STORAGES or uri.query:
        raise _no_dataset(uri.geturl())
    return _address(_STORAGES[storage], [unquote(part) for part in uri.path.split("/")])


def convert_asset_to_openlineage(asset: Asset, lineage_context: BaseHook | ObjectStoragePath | None) -> Dataset:
    """Return the OpenLineage dataset of a table, named by its storage: `s3://lake` and `web/documents`."""
    from openlineage.client.event_v2 import Dataset

    namespace, name = openlineage_name(asset.uri)
    return Dataset(namespace=namespace, name=name)


def openlineage_name(uri: str) -> tuple[str, str]:
    """Return OpenLineage's namespace and name for an asset URI of this scheme."""
    found = sanitize_uri(urlsplit(uri))
    segments = [unquote(part) for part in found.path.strip("/").split("/")]
    if found.netloc == "file":
        return "file", "/" + "/".join(segments)
    container, _, account = segments[0].partition("@")
    scheme = "abfss" if account else found.netloc  # with the account, Azure's own tools use abfss
    return f"{scheme}://{container}{'@' * bool(account)}{account}", "/".join(segments[1:])


def _place(root: str) -> tuple[str, list[str]]:
    """Return the storage name and the path segments of a root."""
    scheme, colon, rest = root.partition(":")
    if not colon or "/" in scheme:
        scheme, rest = "file", root
    storage = _STORAGES.get(scheme.lower())
    if storage is None:
        raise InvalidOption(
            f"A root on {scheme}:// cannot be an asset: other tasks and DAGs cannot reach it.",
            hint="Use a local path, or an s3://, gs:// or abfs:// URL.",
        )
    if storage == "file":
        if rest.startswith("//"):
            host, _, rest = rest[2:].partition("/")
            rest = f"/{rest}" if host in ("", "localhost") else ""
        if not rest.startswith("/"):
            raise InvalidOption(
                f"The root {root!r} is a relative path, and each process may have another working directory.",
                hint="Give the asset an absolute path.",
            )
        return storage, rest.split("/")
    bucket, _, key = rest.lstrip("/").partition("/")
    return storage, [_bucket(storage, bucket), *key.split("/")]


def _bucket(storage: str, bucket: str) -> str:
    """Return a bucket name without the connection or credentials before it; Azure's container@account is kept."""
    first, at, last = bucket.rpartition("@")
    if storage == "abfs" and at and "." in last:  # a container's name has no dot; the host of an account has one
        return f"{first.rpartition('@')[2]}@{last}".lower()
    return last


def _address(storage: str, parts: list[str]) -> SplitResult:
    segments: list[str] = []
    for part in parts:
        if part == "..":
            if not segments:
                raise _no_dataset(f"{SCHEME}://{storage}{'/'.join(parts)}")
            segments.pop()
        elif part not in ("", "."):
            segments.append(part)
    if storage != "file" and segments:
        segments[0] = _bucket(storage, segments[0])
    if len(segments) < 2 or segments[-1] not in TABLES or any("/" in part or "\0" in part for part in segments):
        raise _no_dataset(f"{SCHEME}://{storage}/{'/'.join(segments)}")
    return SplitResult(SCHEME, storage, "/" + "/".join(quote(part, safe=_PLAIN) for part in segments), "", "")


def _no_dataset(uri: str) -> InvalidOption:
    shown = urlsplit(uri)._replace(query="")
    shown = shown._replace(netloc=shown.netloc.rpartition("@")[2])
    return InvalidOption(f"{shown.geturl()!r} is not a table of a weblake dataset.", hint=f"{_FORM}.")
