"""Tests of the resource: the sources of its settings, and where they are visible."""

from __future__ import annotations

import secrets
import uuid

import dagster as dg
import pytest
from catalogue import proves
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster._serdes import serialize_value
from error_texts import all_texts_of
from gated_site import GatedSite
from hypothesis import given as for_all
from hypothesis import strategies as st
from in_process import Bench
from pydantic import Field
from secret_search import contains_secret

import weblake
from dagster_weblake import (
    BatchScrapeRequest,
    WeblakeParquetIOManager,
    WeblakeResource,
    build_weblake_assets,
    connection,
    secret_config,
)
from weblake.errors import AskPerson, InvalidOption, StorageRefused

pytestmark = pytest.mark.system

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def resource_with(**fields: object) -> WeblakeResource:
    return WeblakeResource(**{"base_url": "http://127.0.0.1:1", "api_key": "test-key", **fields})  # type: ignore[arg-type]


def call_service(resource: WeblakeResource) -> list[bool]:
    """Call the service in an op; return [True], or an empty list if the run failed."""
    seen: list[bool] = []

    @dg.op
    def look(weblake: WeblakeResource) -> None:
        seen.append(weblake.client.credit_usage().success)

    @dg.job
    def looking() -> None:
        look()

    result = looking.execute_in_process(resources={"weblake": resource}, raise_on_error=False)
    assert result.success is bool(seen)
    return seen


@pytest.fixture
def canary() -> str:
    return f"canary-{secrets.token_hex(12)}"


def test_the_environment_is_the_default(monkeypatch: pytest.MonkeyPatch, bench: Bench) -> None:
    monkeypatch.setenv("WEBLAKE_BASE_URL", bench.service.url)
    monkeypatch.setenv("WEBLAKE_API_KEY", bench.service.key)
    with WeblakeResource().get_client() as client:
        assert client.credit_usage().success
    assert call_service(WeblakeResource()) == [True]


def test_a_missing_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEBLAKE_BASE_URL", raising=False)
    monkeypatch.delenv("WEBLAKE_API_KEY", raising=False)
    with pytest.raises(AskPerson, match="WEBLAKE_BASE_URL"):
        WeblakeResource(api_key="test-key").get_client()
    with pytest.raises(AskPerson, match="OTHER_KEY"):
        resource_with(api_key=dg.EnvVar("OTHER_KEY")).get_client()
    with pytest.raises(AskPerson, match="no base_url"):
        resource_with(base_url=" ").get_client()
    with pytest.raises(AskPerson, match="root"):
        resource_with().dataset()
    with pytest.raises(InvalidOption, match="call_timeout_s"):
        resource_with(call_timeout_s=-1).get_client()
    with pytest.raises(InvalidOption, match=r"WeblakeResource\(insecure=True\)"):
        resource_with(base_url="http://far.example.com").get_client()
    with pytest.raises(RuntimeError, match="get_client"):
        _ = resource_with().client


@proves(
    "S3",
    at="dagster_resources/src/dagster_weblake/connection.py",
    line="insecure=self.insecure,",
    becomes="insecure=True,",
)
def test_s3_a_resource_needs_insecure_for_plain_http() -> None:
    for make in (WeblakeResource.get_client, WeblakeResource.get_async_client):
        with pytest.raises(InvalidOption, match="in the clear"):
            make(resource_with(base_url="http://far.example.com"))
        make(resource_with(base_url="http://far.example.com", insecure=True))


@proves(
    "S1",
    at="dagster_resources/src/dagster_weblake/secret_config.py",
    line="return placeholder",
    becomes="return value",
    case="False",
)
@pytest.mark.parametrize("nested", [False, True])
def test_s1_secrets_given_as_text_are_in_no_snapshot_and_no_repr(canary: str, nested: bool) -> None:
    options = {"client_kwargs": {"password": canary}} if nested else {"secret": canary}
    proxy = f"http://test-user:{canary}@proxy.example:3128"
    resource = resource_with(api_key=canary, storage_options=options, root="s3://lake/web", proxy=proxy)
    reader = WeblakeParquetIOManager(root="s3://lake/web", storage_options=options)
    shown = dg.Definitions(resources={"weblake": resource, "io_manager": reader})
    snap = serialize_value(RepositorySnap.from_def(shown.get_repository_def()))
    assert "s3://lake/web" in snap
    assert canary not in snap
    assert canary not in repr(resource) + str(resource) + repr(reader)
    assert resource.options_of_storage() == options
    with resource.get_client() as client:
        assert client._settings is not None
        assert canary not in repr(client._settings)


def test_s1_secrets_in_the_defaults_of_a_subclass_and_in_addresses_are_in_no_snapshot_and_no_repr(canary: str) -> None:
    class Mine(WeblakeResource):
        api_key: str = canary
        proxy: str | None = Field(default=f"http://test-user:{canary}@proxy.example:3128")

    class Reader(WeblakeParquetIOManager):
        root: str = f"s3://test-user:{canary}@lake/web"

    mine = Mine(base_url="http://127.0.0.1:1", root="s3://lake/web")
    wrong = resource_with(base_url=f"http://test-user:{canary}@h", root=f"s3://test-user:{canary}@lake/web")
    shown = dg.Definitions(resources={"weblake": mine, "wrong": wrong, "io_manager": Reader()})
    assert canary not in serialize_value(RepositorySnap.from_def(shown.get_repository_def()))
    assert canary not in repr(mine) + repr(wrong) + repr(Reader())
    with mine.get_client() as client:
        assert client._settings is not None
    assert mine._endpoint() == ("http://127.0.0.1:1", canary)
    for use in (wrong.get_client, wrong.dataset):  # the reason is named where they are used
        with pytest.raises((InvalidOption, StorageRefused), match="user"):
            use()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"base_url": "https://u@h"}, "The base URL is not usable"),
        ({"api_key": "CANARY x"}, "The API key is empty or holds"),
        ({"ca_bundle": "/no/such.pem"}, "WeblakeResource: `ca_bundle` cannot be used: /no/such.pem: "),
        ({"client_key": "/no/such.pem"}, "WeblakeResource: `client_key` is given without `client_certificate`"),
        ({"proxy": "socks5://test-user:CANARY@h"}, "WeblakeResource: `proxy` names a proxy that weblake cannot use"),
    ],
)
def test_s1_a_setting_that_cannot_be_used_is_named_without_a_secret(
    canary: str, wrong: dict[str, str], message: str
) -> None:
    resource = resource_with(**{name: text.replace("CANARY", canary) for name, text in wrong.items()})
    for make in (resource.get_client, resource.get_async_client):
        with pytest.raises(InvalidOption) as caught:
            make()
        assert message in caught.value.message
        assert [each for each in all_texts_of(caught.value) if contains_secret(each.encode(), canary)] == []


def test_storage_options_may_name_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_SECRET", "test-secret")
    resource = resource_with(
        storage_options={"secret": dg.EnvVar("LAKE_SECRET"), "client_kwargs": {"x": {"env": "LAKE_SECRET"}}}
    )
    assert resource.options_of_storage() == {"secret": "test-secret", "client_kwargs": {"x": "test-secret"}}
    monkeypatch.delenv("LAKE_SECRET")
    with pytest.raises(AskPerson, match="LAKE_SECRET"):
        resource.options_of_storage()


@for_all(st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS, st.lists))
def test_hidden_values_are_restored_unchanged(value: object) -> None:
    stands_for = secret_config.hide(value)
    assert repr(secret_config.reveal(stands_for)) == repr(value)
    assert secret_config.hide(stands_for) == stands_for
    text = str(value)
    assert len(text) < 8 or text not in str(stands_for)


def test_a_memory_root_is_accepted_in_one_process_only(
    bench: Bench, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = f"memory://{uuid.uuid4().hex}/lake"
    docs = build_weblake_assets("docs", BatchScrapeRequest(urls=site.pages(2)), retry_policy=None)
    resource = resource_with(base_url=bench.service.url, api_key=bench.service.key, root=root)
    assert bench.run(docs, resources={"weblake": resource}).success
    assert weblake.read(root).to_table().num_rows == 2
    # The executor of dg.materialize cannot be chosen; any other one has another name.
    monkeypatch.setattr(connection, "_IN_ONE_PROCESS", "another executor")
    told = str(bench.run(docs, resources={"weblake": resource}).failure().description)
    assert all(words in told for words in (root, "gone", "s3://", "materialize")), told
    assert bench.started == 1
