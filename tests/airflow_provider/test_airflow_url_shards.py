"""Tests of URL shards: the connection stays in the path, and a mapped task gets its shard through XCom."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from airflow_provider_weblake.url_shards import read_urls_or_shard, url_shards
from weblake.errors import AskPerson, FeatureMissing, FixRequest, InvalidOption

URLS = [f"https://example.org/{n}" for n in range(10)]


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    file = tmp_path / "urls.txt"
    file.write_text("\n".join(URLS))
    return file


@pytest.fixture
def s3_list(s3_root: str, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A CSV list in a bucket that only an Airflow connection opens: the environment has no credentials any more."""
    import boto3
    from airflow.sdk.io import store

    bucket = s3_root.removeprefix("s3://").partition("/")[0]
    body = "n,page\n" + "".join(f'"{n}\n",{url}\n' for n, url in enumerate(URLS))
    boto3.client("s3").put_object(Bucket=bucket, Key="lists/urls.csv", Body=body.encode())
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
    connection = {
        "conn_type": "aws",
        "login": "test-key",
        "password": "test-key",
        "extra": {"endpoint_url": s3_endpoint, "region_name": "us-east-1"},
    }
    conn_id = f"lists_{uuid.uuid4().hex[:8]}"
    monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(connection))
    monkeypatch.setattr(store, "_STORE_CACHE", {})
    return f"s3://{conn_id}@{bucket}/lists/urls.csv"


def test_a_list_behind_an_airflow_connection(s3_list: str) -> None:
    from airflow.sdk import ObjectStoragePath

    shards = url_shards(s3_list, column="page", per_shard=4)
    assert {shard["file"] for shard in shards} == {s3_list}
    assert "test-key" not in json.dumps(shards)
    travelled = json.loads(json.dumps(shards))
    assert [read_urls_or_shard(shard) for shard in travelled] == [URLS[:4], URLS[4:8], URLS[8:]]
    assert url_shards(ObjectStoragePath(s3_list), column="page", per_shard=4) == shards
    assert read_urls_or_shard(s3_list, "page") == read_urls_or_shard(ObjectStoragePath(s3_list), "page") == URLS
    with pytest.raises(FixRequest, match=r"none\.csv does not exist"):
        url_shards(s3_list.replace("urls.csv", "none.csv"))


def test_a_list_that_changed_behind_the_connection_starts_nothing(s3_list: str) -> None:
    from airflow.sdk import ObjectStoragePath

    shard = url_shards(s3_list, column="page", per_shard=4)[1]
    ObjectStoragePath(s3_list).write_bytes(ObjectStoragePath(s3_list).read_bytes().replace(b"org/5", b"org/6"))
    with pytest.raises(FixRequest, match="has changed since it was cut") as caught:
        read_urls_or_shard(shard)
    assert "Clear the task that cut it" in caught.value.hint


def test_every_form_of_urls_is_accepted(listed: Path) -> None:
    from airflow.sdk import ObjectStoragePath

    assert read_urls_or_shard(URLS) == URLS
    assert read_urls_or_shard(tuple(URLS)) == URLS
    assert read_urls_or_shard(json.dumps(URLS)) == URLS
    (shard,) = url_shards(listed)
    assert shard["file"] == str(listed)
    assert read_urls_or_shard(shard) == read_urls_or_shard(json.dumps(shard)) == URLS
    for file in (str(listed), listed, f"file://{listed}", ObjectStoragePath(f"file://{listed}")):
        assert read_urls_or_shard(file) == URLS
        assert url_shards(file) == [shard]


def test_invalid_forms_of_urls_are_refused(listed: Path) -> None:
    with pytest.raises(InvalidOption, match="address of a page") as page:
        read_urls_or_shard("https://example.org/")
    assert "a list that holds it" in page.value.hint
    with pytest.raises(InvalidOption, match="neither JSON nor a path") as rendered:
        read_urls_or_shard(str(URLS))  # what a template without tojson makes of a list
    assert "tojson" in rendered.value.hint
    with pytest.raises(InvalidOption, match="holds a dict"):
        read_urls_or_shard([*url_shards(listed)])  # type: ignore[list-item]
    with pytest.raises(InvalidOption, match="no shard"):
        read_urls_or_shard({"file": str(listed)})
    with pytest.raises(InvalidOption, match="standard input"):
        read_urls_or_shard("-")
    listed.with_suffix(".csv").write_text("page\nhttps://example.org/\n")
    with pytest.raises(FixRequest, match="has no column 'url'") as column:
        url_shards(str(listed.with_suffix(".csv")))
    assert column.value.hint == "Name one with column."  # no flag of the command line
    with pytest.raises(FeatureMissing, match="no file system for gs://"):
        url_shards("gs://lists@bucket/urls.txt")
    with pytest.raises(AskPerson, match="no Airflow connection 'nobody'"):
        url_shards("s3://nobody@bucket/urls.txt")


def test_the_number_of_shards_is_limited_to_what_airflow_maps(listed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "4")
    with pytest.raises(InvalidOption, match="10 shards; at most 4") as caught:
        url_shards(listed, per_shard=1)
    assert caught.value.hint == "Give per_shard=3 or more."
    assert len(url_shards(listed, per_shard=1, max_shards=10)) == 10
