"""Tests of the pages about Dagster: their code lands what the text says."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pytest
import yaml
from component_files import loaded
from gated_site import GatedSite
from in_process import Bench
from polling import until
from project_shell import dagster_home, environment, said

import dagster_weblake
from weblake import orchestration, tables
from weblake.testing import WeblakeService

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
PAGES = {path.stem: path.read_text() for path in sorted((ROOT / "docs" / "site" / "dagster").glob("*.md"))}
EXAMPLE = Path(dagster_weblake.__file__).parent / "example_project"
RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
#: What the text says that the project has.
PAGE_LIST = "import dagster as dg\n\n\n@dg.asset\ndef page_list() -> list[str]:\n    return []\n"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    """The code in this language on a page, without that in tabs, which needs packages of others."""
    return [code for kind, code in BLOCK.findall(PAGES[page]) if kind == language]


@dataclass
class Page:
    """A reader who tries what stands on the pages, at a service and a site of his own."""

    instance: dg.DagsterInstance
    folder: Path
    site: GatedSite

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    @property
    def host(self) -> str:
        return self.site.url.removeprefix("http://")

    def adapted(self, code: str) -> str:
        """The text with the site's address in the place of the example's, and a lake on this machine."""
        return (
            code.replace("https://docs.example.com", self.site.url)
            .replace("https://{partition_key}", "http://{partition_key}")
            .replace("s3://lake/web", str(self.lake))
        )

    def define(self, name: str, number: int = 0) -> Code:
        """A Python block of a page, as the code location that it is."""
        path = self.folder / f"dagster_docs_{len(list(self.folder.glob('*.py')))}.py"
        path.write_text(self.adapted(blocks(name, "python")[number]))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            spec.loader.exec_module(module)
            dg.Definitions.validate_loadable(module.defs)
        return Code(self, module.defs)

    def rows(self, sql: str = "SELECT count(*) FROM read_parquet(?)", table: str = "documents") -> list[Any]:
        with duckdb.connect() as database:
            return database.execute(sql, [f"{self.lake}/{table}/**/*.parquet"]).fetchall()


@dataclass
class Code:
    """The definitions of a block."""

    page: Page
    defs: dg.Definitions

    def run(self, *assets: str, partition: str | None = None, **kwargs: Any) -> dg.ExecuteInProcessResult:
        """Materializes these assets, or all of them."""
        chosen = [dg.AssetKey(name) for name in assets] or None
        result = self.defs.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=self.page.instance, asset_selection=chosen, partition_key=partition, **kwargs
        )
        assert result.success
        return result

    def tick(self, sensor: str, cursor: str | None = None) -> Any:
        """One tick of a sensor."""
        with dg.build_sensor_context(
            instance=self.page.instance,
            instance_ref=self.page.instance.get_ref(),
            cursor=cursor,
            definitions=self.defs,
            sensor_name=sensor,
            resources=dict(self.defs.get_repository_def().get_top_level_resources()),
        ) as context:
            return self.defs.resolve_sensor_def(sensor).evaluate_tick(context)


@pytest.fixture
def page(bench: Bench, tmp_path: Path, site: GatedSite, monkeypatch: pytest.MonkeyPatch) -> Page:
    monkeypatch.setenv("WEBLAKE_BASE_URL", bench.service.url)
    monkeypatch.setenv("WEBLAKE_API_KEY", bench.service.key)
    return Page(bench.instance, tmp_path, site)


def checks_of(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {each.check_name: each.passed for each in result.get_asset_check_evaluations()}


def test_every_block_of_the_pages_is_tested() -> None:
    tried = {
        "assets": {"sh": 1, "python": 4, "yaml": 1},
        "deploy": {"yaml": 4},  # settings for products that are not here; test_pages.py parses them
        "failures": {},
        "partitions": {"python": 1, "yaml": 2},
        "reading-and-checks": {"python": 3},
        "waiting": {"python": 2},
    }
    found = {name: dict(Counter(language for language, _ in BLOCK.findall(text))) for name, text in PAGES.items()}
    assert found == tried


@pytest.mark.parametrize(
    ("number", "lands"),
    [
        (1, "SELECT count(*) = 3, count(html) = 1 FROM read_parquet(?)"),
        (2, "SELECT count(*) = 1, min(job_kind) = 'scrape' FROM read_parquet(?)"),
    ],
)
def test_the_assets_land(page: Page, number: int, lands: str) -> None:
    result = page.define("assets", number).run()
    assert page.rows(lands) == [(True, True)]
    if number == 2:
        assert "page 4" in result.output_for_node("homepage")


def test_the_first_asset_lands_with_the_documented_metadata(page: Page) -> None:
    (made,) = page.define("assets").run("docs").asset_materializations_for_node("docs")
    assert page.rows("SELECT count(*) = 6, count(links) = 6 FROM read_parquet(?)") == [(True, True)]
    reference = (ROOT / "docs" / "site" / "reference" / "dagster.md").read_text()
    known = set(re.findall(r"`([\w/]+)`", reference[reference.index("\n## Metadata\n") :]))
    assert set(made.metadata) - known == set()
    table = reference[reference.index("| key of a load | meaning |") : reference.index("| key of usage | meaning |")]
    # A definition's own, what a partition has in place of row_count, and what only some loads have.
    elsewhere = {"dagster/partition_row_count", "dagster/storage_kind", "dagster/table_name"}
    rare = {"outcomes", *(f"weblake/{name}" for name in ("limit_reached", "page_errors_uri", "new", "changed", "gone"))}
    keys = " ".join(re.findall(r"^\| (.*?) \|", table, re.MULTILINE))
    assert set(re.findall(r"`([\w/]+)`", keys)) - elsewhere - rare - set(made.metadata) == set()


def test_a_subclass_logs_what_it_has_landed(page: Page) -> None:
    names: dict[str, Any] = {}
    exec(blocks("assets", "python")[3], names)
    request = {"url": f"{page.site.url}/", "options": {"limit": 10}}
    component = names["SiteComponent"](asset=dg.AssetSpec("docs"), **request)
    resources = {"weblake": dagster_weblake.WeblakeResource(root=str(page.lake))}
    built = component.build_defs(dg.ComponentTree.for_test().load_context)
    defs = dg.Definitions.merge(built, dg.Definitions(resources=resources))
    assert list(defs.resolve_asset_graph().get(dg.AssetKey("docs")).owners) == ["team:data"]
    result = Code(page, defs).run("docs")
    logged = [
        record.event_log_entry.user_message for record in page.instance.get_records_for_run(result.run_id).records
    ]
    assert "6 pages for 6.0 credits" in logged


def test_partitions_are_jobs_and_months_are_one_request(page: Page, weblake_service: WeblakeService) -> None:
    code = page.define("partitions")
    page.instance.add_dynamic_partitions("sites", [page.host])
    code.run("site_docs", partition=page.host)
    assert page.rows() == [(6,)]
    code.run("usage", tags={RANGE[0]: "2026-04-01", RANGE[1]: "2026-11-01"})
    assert len(page.instance.get_materialized_partitions(dg.AssetKey("usage"))) == 8
    asked = [each for each in weblake_service.requests() if "historical" in str(each["path"])]
    assert len(asked) == 1


def test_a_job_is_landed_by_the_run_that_the_sensor_requests(page: Page) -> None:
    code = page.define("waiting")
    code.run("docs_job")
    (request,) = until(lambda: code.tick("docs_collect").run_requests)
    code.run("docs", tags=dict(request.tags))
    assert page.rows() == [(6,)]


def test_a_lazy_frame_downstream(page: Page) -> None:
    result = page.define("reading-and-checks").run()
    assert result.output_for_node("statuses") == {200: 6}


def test_a_table_is_an_asset_downstream(page: Page) -> None:
    code = page.define("reading-and-checks", 1)
    code.run("docs")
    tables.add(page.lake, "delta")
    code.run("docs_table")
    assert tables.status(page.lake)[0].rows == 6


def test_checks_of_pages_and_of_usage(page: Page) -> None:
    code = page.define("reading-and-checks", 2)
    checks = checks_of(code.run())
    assert set(checks.values()) == {True}
    text = PAGES["reading-and-checks"]
    said_to_be = re.findall(
        r"`(\w+)`", text[text.index("makes the checks") : text.index("Checks read the landed files")]
    )
    names = set(said_to_be) - {"max_credits"}
    assert {name for name in names if not name.startswith("build")} == set(checks)


def test_jobs_and_loads_of_others_are_landed_or_reported(page: Page, weblake_service: WeblakeService) -> None:
    code = page.define("waiting", 1)
    names = ("jobs_elsewhere", "loads_elsewhere")
    assert [code.tick(name).run_requests + code.tick(name).asset_events for name in names] == [[], []]
    with weblake_service.client() as client:
        job = client.start_batch_scrape(page.site.pages(2))
        naming, terms = orchestration.Naming(), orchestration.Terms(poll_s=1)
        load_request = orchestration.crawl_request(f"{page.site.url}/", naming, terms)
        by_hand = orchestration.open_dataset(f"{page.lake}-by-hand")
        landed = orchestration.land(client, by_hand, load_request, terms)
    (request,) = until(lambda: code.tick("jobs_elsewhere").run_requests)
    assert request.run_key == job.id
    code.run("elsewhere", run_config=request.run_config)
    assert page.rows("SELECT count(*) FROM read_parquet(?) WHERE job_kind = 'batch_scrape'") == [(2,)]
    tick = code.tick("loads_elsewhere")
    (event,) = tick.asset_events
    assert event.metadata["weblake/load_id"].value == landed.receipt.load_id
    assert event.metadata["dagster/row_count"].value == landed.receipt.stored
    assert code.tick("loads_elsewhere", tick.cursor).asset_events == []


@pytest.mark.parametrize(
    ("name", "number", "assets"),
    [("assets", 0, ("docs_job", "docs")), ("partitions", 0, ("pages",)), ("partitions", 1, ("usage",))],
)
def test_the_yaml_lands(page: Page, name: str, number: int, assets: tuple[str, ...]) -> None:
    written = yaml.safe_load(page.adapted(blocks(name, "yaml")[number]))
    files = {"pages.csv": "url\n" + "\n".join(page.site.pages(2))}
    with loaded(written["type"], written["attributes"], files) as (_, defs):
        if "resource" not in written["attributes"]:
            ours = dagster_weblake.WeblakeResource(root=str(page.lake))
            defs = dg.Definitions.merge(defs, dg.Definitions(resources={"weblake": ours}))
        code = Code(page, defs)
        months = defs.resolve_asset_graph().get(dg.AssetKey(assets[-1])).partitions_def
        newest = None if months is None else months.get_partition_keys()[-1]
        result = code.run(*assets, partition=newest)
    if name == "assets":
        assert checks_of(result)["rows_above_zero"] is False, "the page asks for a hundred"
        assert page.rows() == [(6,)]
    elif assets == ("pages",):
        assert page.rows() == [(2,)]
    else:
        assert page.instance.get_materialized_partitions(dg.AssetKey("usage")) == {newest}


def test_a_scaffolded_component_passes_its_check_and_lands(
    tmp_path: Path, site: GatedSite, weblake_service: WeblakeService
) -> None:
    project = tmp_path / "project"
    shutil.copytree(EXAMPLE, project, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(project / "web_lake" / "defs")
    (project / "web_lake" / "defs").mkdir()
    (project / "web_lake" / "defs" / "page_list.py").write_text(PAGE_LIST)
    settings = {"WEBLAKE_BASE_URL": weblake_service.url, "WEBLAKE_API_KEY": weblake_service.key}
    env = environment(tmp_path, DAGSTER_HOME=dagster_home(tmp_path), WEBLAKE_ROOT=str(tmp_path / "lake"), **settings)
    (commands,) = blocks("assets", "sh")
    commands = commands.replace("https://docs.example.com/", f"{site.url}/")
    said(subprocess.run(["sh", "-ec", commands], cwd=project, env=env, capture_output=True, text=True, timeout=280))
    written = set(os.listdir(project / "web_lake" / "defs")) - {"__pycache__"}
    assert written == {"docs", "page_list.py", "pages", "usage", "lake.py"}
    for name in ("docs", "pages", "usage"):
        assert "resource" not in (project / "web_lake" / "defs" / name / "defs.yaml").read_text()
    with duckdb.connect() as database:
        found = database.execute("SELECT count(*) FROM read_parquet(?)", [f"{tmp_path}/lake/documents/**/*.parquet"])
        assert found.fetchall() == [(6,)]


def test_the_names_in_the_text_exist() -> None:
    text = "\n".join(PAGES.values())
    named = set(
        re.findall(
            r"(?<!dg\.)\b(Weblake\w+|build_\w+|weblake_assets|DEFAULT_RETRIES|\w+Request)\b", BLOCK.sub("", text)
        )
    )
    public = set(dagster_weblake.__all__)
    assert named - public == set()
    # Each of them is told, but the type of a run's config.
    assert public - set(re.findall(r"\w+", text)) == {"JobConfig"}
