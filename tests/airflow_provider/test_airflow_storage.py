"""Tests of an operator's `to`: local paths, Airflow connections to object storage, and errors for missing parts."""

from __future__ import annotations

import json
import os
import socket
import uuid
from pathlib import Path
from typing import Any

import boto3
import pytest
from dag_runs import Run, run_one
from gated_site import GatedSite

import weblake
from weblake import orchestration
from weblake.errors import AskPerson, FeatureMissing, InvalidOption, StorageRefused
from weblake.testing import WeblakeService


@pytest.fixture
def connected(s3_root: str, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A root on the S3 server that only an Airflow connection reaches: the environment has nothing for it."""
    name = f"lake_{uuid.uuid4().hex[:8]}"  # Airflow keeps a file system for each connection id as long as it lives
    extra = {"endpoint_url": s3_endpoint, "region_name": "us-east-1"}
    connection = {"conn_type": "aws", "login": "test-key", "password": "test-key", "extra": extra}
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(connection))
    for variable in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(variable)
    return s3_root.replace("s3://", f"s3://{name}@")


def objects(root: str, endpoint: str) -> dict[str, bytes]:
    """Return the objects of the bucket, read without Airflow and without weblake."""
    bucket = root.partition("://")[2].rpartition("@")[2].partition("/")[0]
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id="test-key",
        aws_secret_access_key="test-key",
        region_name="us-east-1",
    )
    listed = client.list_objects_v2(Bucket=bucket).get("Contents", [])
    return {each["Key"]: client.get_object(Bucket=bucket, Key=each["Key"])["Body"].read() for each in listed}


def test_roots_without_a_connection_are_unchanged(tmp_path: Path) -> None:
    from airflow.sdk import ObjectStoragePath

    from airflow_provider_weblake.storage import root_path

    local = ObjectStoragePath(f"file://{tmp_path}/lake")
    unchanged = (
        *(str(tmp_path), "relative/lake", f"file://{tmp_path}", tmp_path, local),
        *("memory://here/lake", "gs://bucket/lake", "abfs://container@account.dfs.core.example/lake"),
    )
    for place in unchanged:
        assert root_path(place) is place
    assert orchestration.open_dataset(root_path(local)).storage.url == f"{tmp_path}/lake"


@pytest.mark.system
def test_a_connection_in_the_url_selects_its_file_system(connected: str, s3_endpoint: str) -> None:
    from airflow.sdk import ObjectStoragePath

    from airflow_provider_weblake.storage import root_path

    for place in (connected, ObjectStoragePath(connected)):
        dataset = orchestration.open_dataset(root_path(place))
        dataset.preflight(None)
        assert "@" not in dataset.storage.url
    assert {name.partition("/")[0] for name in objects(connected, s3_endpoint)} == {"lake"}


def test_a_missing_connection_or_package_is_named() -> None:
    from airflow.sdk import ObjectStoragePath

    from airflow_provider_weblake.storage import root_path

    for place in ("gs://conn@bucket/lake", ObjectStoragePath("gs://conn@bucket/lake")):
        with pytest.raises(FeatureMissing, match="apache-airflow-providers-google"):
            root_path(place)
    with pytest.raises(FeatureMissing, match="apache-airflow-providers-microsoft-azure"):
        root_path("abfs://conn@container/lake")
    with pytest.raises(FeatureMissing, match="no file system for ftp://"):
        root_path("ftp://conn@host/lake")
    for place in ("s3://no_such@bucket/lake", ObjectStoragePath("s3://no_such@bucket/lake")):
        with pytest.raises(AskPerson, match="no Airflow connection 'no_such'"):
            root_path(place)
    secret = uuid.uuid4().hex
    with pytest.raises(InvalidOption) as caught:
        root_path(f"s3://user:{secret}@bucket/lake")
    assert secret not in str(caught.value)
    with pytest.raises(StorageRefused, match="ftp:// is not a storage"):
        orchestration.open_dataset(root_path("ftp://host/lake"))


def write_small(path: Any, data: bytes) -> str:
    from airflow_provider_weblake.storage import small_file

    file = small_file(path)
    file.write(data)
    return file.name


def test_a_small_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = write_small(str(tmp_path / "lists" / "a.txt"), b"old")
    assert name == str(tmp_path / "lists" / "a.txt")

    def full(descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(StorageRefused, match="No space left on device"):
            write_small(name, b"new" * 1000)
    assert [each.name for each in (tmp_path / "lists").iterdir()] == ["a.txt"]
    assert Path(name).read_bytes() == b"old"
    write_small(f"file://{name}", b"new")
    assert Path(name).read_bytes() == b"new"
    monkeypatch.chdir(tmp_path)
    assert write_small("b.txt", b"here") == str(tmp_path / "b.txt")


@pytest.mark.system
def test_small_files_on_object_storage_and_in_memory(connected: str, s3_endpoint: str) -> None:
    from airflow.sdk import ObjectStoragePath

    name = f"{connected}/lists/a.txt"
    assert write_small(name, b"old") == name
    assert write_small(ObjectStoragePath(name), b"new") == name
    assert objects(connected, s3_endpoint) == {"lake/lists/a.txt": b"new"}
    memory = f"memory://{uuid.uuid4().hex}/lists/a.txt"
    assert write_small(memory, b"here") == memory
    assert orchestration.open_dataset(memory.rpartition("/")[0]).storage.read("a.txt") == b"here"


def test_a_path_that_is_not_a_file_is_refused_before_a_payment(tmp_path: Path) -> None:
    from airflow_provider_weblake.storage import small_file

    (tmp_path / "here").mkdir()
    for path in (f"{tmp_path}/", f"{tmp_path}/..", "s3://bucket", ""):
        with pytest.raises(InvalidOption, match="names no file"):
            small_file(path)
    with pytest.raises(InvalidOption, match="is a directory"):
        small_file(tmp_path / "here")
    with pytest.raises(StorageRefused, match="Create its directory"):
        small_file(tmp_path / "no" / "such" / "a.txt")
    assert not (tmp_path / "no").exists()


@pytest.mark.system
def test_memory_is_a_root_for_one_process_only(
    run_dag: Run, weblake_connection: WeblakeService, site: GatedSite
) -> None:
    """`dag.test()` runs its tasks here; what they land is here afterwards."""
    from airflow_provider_weblake.operators.weblake import WeblakeBatchScrapeOperator

    root = f"memory://{uuid.uuid4().hex}/lake"
    run = run_one(run_dag, lambda: WeblakeBatchScrapeOperator(task_id="land", urls=site.pages(2), to=root))
    assert run.state == "success"
    assert weblake.read(root).to_table().num_rows == 2


def test_memory_is_refused_in_a_process_of_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import CommsDecoder

    from airflow_provider_weblake.storage import dataset_of_task, small_file

    ours, theirs = socket.socketpair()
    with ours, theirs:
        # What the process that Airflow makes for a task speaks to its supervisor with.
        monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", CommsDecoder(socket=ours), raising=False)
        for use, place in ((dataset_of_task, "memory://lake"), (small_file, "memory://lake/urls.txt")):
            with pytest.raises(StorageRefused, match="gone") as caught:
                use(place)
            assert "s3://" in str(caught.value.hint)
            assert "dag.test()" in str(caught.value.hint)
