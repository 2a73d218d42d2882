"""Tests that downstream assets read the table of a table asset with dagster-deltalake and dagster-iceberg.

These packages ask for older versions of pandas and pyiceberg than the workspace has, so the reading takes place in an
environment of its own. What it runs are the examples of docs/dagster.md.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from gated_site import GatedSite
from own_environment import environment
from test_dagster_docs import ROOT, blocks

import weblake
from weblake import tables
from weblake.testing import WeblakeService

pytestmark = pytest.mark.nightly

PROGRAM = Path(__file__).with_name("table_readers.py")
PACKAGES = (
    f"{ROOT}[s3,delta,iceberg]",
    f"{ROOT}/dagster_resources",
    "pyiceberg[sql-sqlite]",
    "dagster-deltalake",
    "dagster-deltalake-pandas",
    "dagster-deltalake-polars",
    "dagster-iceberg[pandas,polars]",
)
CATALOG = '{"type": "rest", "uri": "https://catalog.example.com", "warehouse": "prod"}'


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    return environment(tmp_path_factory.mktemp("readers") / "env", PACKAGES)


@pytest.fixture
def lake(s3_root: str, weblake_service: WeblakeService, site: GatedSite, monkeypatch: pytest.MonkeyPatch) -> str:
    """The bucket with the dataset `web`, in which one page has landed."""
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    bucket = s3_root.rpartition("/")[0]
    with weblake_service.client() as client:
        weblake.land_batch(site.pages(1), to=f"{bucket}/web", client=client)
    return bucket


def read(
    python: str, service: WeblakeService, site: GatedSite, bucket: str, code: str, others: object, folder: Path
) -> dict[str, Any]:
    block = folder / "block.py"
    code = code.replace("https://docs.example.com", site.url)
    block.write_text(code.replace('"s3://lake/web"', repr(f"{bucket}/web")).replace('"s3://lake"', repr(bucket)))
    env = {**os.environ, "WEBLAKE_BASE_URL": service.url, "WEBLAKE_API_KEY": service.key}
    done = subprocess.run(
        [python, str(PROGRAM), str(block), json.dumps(others)],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def check(found: dict[str, Any]) -> None:
    assert found["by_status"] == {"200": 7}, "six pages of the crawl, and one of an earlier load"
    assert (found["in_arrow"], found["by_resource"], found["in_pandas"]) == (7, 7, 6), "one page is in both loads"
    metadata = found["metadata"]
    assert (metadata["dagster/row_count"], metadata["weblake/loads_added"]) == ("7", "2")


def test_a_delta_lake_table(
    python: str, weblake_service: WeblakeService, site: GatedSite, lake: str, tmp_path: Path
) -> None:
    tables.add(f"{lake}/web", "delta")
    code = blocks("Delta Lake and Iceberg tables", "python")[1]
    found = read(python, weblake_service, site, lake, code, {"delta": {"root_uri": lake}}, tmp_path)
    check(found)
    assert found["metadata"]["dagster/uri"] == f"{lake}/web/documents"


def test_an_iceberg_table(
    python: str, weblake_service: WeblakeService, site: GatedSite, lake: str, tmp_path: Path
) -> None:
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"{lake}/warehouse",
        "s3.endpoint": os.environ["AWS_ENDPOINT_URL"],
        "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "s3.region": "us-east-1",
    }
    tables.add(f"{lake}/web", "iceberg", catalog="prod", identifier="web.documents", table_options=catalog)
    code = blocks("Delta Lake and Iceberg tables", "python")[2]
    assert CATALOG in code
    code = code.replace(CATALOG, repr(catalog))
    found = read(
        python,
        weblake_service,
        site,
        lake,
        code,
        {"iceberg": {"name": "prod", "properties": catalog}},
        tmp_path,
    )
    check(found)
    assert found["metadata"]["dagster/table_name"] == "web.documents"
