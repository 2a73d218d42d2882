"""Tests of docs/dagster.md: its commands run, and its code lands what the text says."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import warnings
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
from lab_resources import free_port
from polling import until
from project_shell import dagster_home, environment, said

import dagster_weblake
from weblake import orchestration, tables
from weblake.testing import WeblakeService

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "dagster.md").read_text()
EXAMPLE = Path(dagster_weblake.__file__).parent / "example_project"
RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
#: What the text says that the project has.
PAGE_LIST = "import dagster as dg\n\n\n@dg.asset\ndef page_list() -> list[str]:\n    return []\n"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(section: str, language: str) -> list[str]:
    """The code in this language that stands below a heading."""
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    return [code for kind, code in BLOCK.findall(text) if kind == language]


@dataclass
class Page:
    """A reader who tries what stands on the page, at a service and a site of his own."""

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

    def define(self, section: str, number: int = 0) -> Code:
        """A Python block, as the code location that it is."""
        path = self.folder / f"dagster_docs_{len(list(self.folder.glob('*.py')))}.py"
        path.write_text(self.adapted(blocks(section, "python")[number]))
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


def test_every_block_of_the_page_is_tested() -> None:
    tried = {
        "Getting started": {"sh": 4, "python": 1},
        "The resource": {"python": 1},
        "Assets": {"python": 2},
        "Components": {"sh": 1, "yaml": 3, "python": 1},  # overrides: test_components.py
        "Partitions and backfills": {"python": 1},
        "Waiting": {"python": 1},
        "Reading": {"python": 1},
        "Delta Lake and Iceberg tables": {"python": 3},  # two of them read with packages of others
        "Checks and freshness": {"python": 1},
        "Sensors": {"python": 1},
    }
    found: dict[str, dict[str, int]] = {}
    for section in re.findall(r"^## (.*)$", TEXT, re.MULTILINE):
        for language in ("sh", "python", "yaml"):
            if number := len(blocks(section, language)):
                found.setdefault(section, {})[language] = number
    assert found == tried
    assert sum(sum(each.values()) for each in tried.values()) == len(BLOCK.findall(TEXT))


@pytest.mark.parametrize(
    ("section", "number", "lands"),
    [
        ("Assets", 0, "SELECT count(*) = 3, count(html) = 1 FROM read_parquet(?)"),
        ("Assets", 1, "SELECT count(*) = 1, min(job_kind) = 'scrape' FROM read_parquet(?)"),
    ],
)
def test_the_assets_land(page: Page, section: str, number: int, lands: str) -> None:
    page.define(section, number).run()
    assert page.rows(lands) == [(True, True)]


def test_the_first_asset_lands_with_the_documented_metadata(page: Page) -> None:
    (made,) = page.define("Getting started").run("docs").asset_materializations_for_node("docs")
    assert page.rows("SELECT count(*) = 6, count(links) = 6 FROM read_parquet(?)") == [(True, True)]
    table = TEXT[TEXT.index("| of a load | |") : TEXT.index("| of usage | |")]
    known = {name.removeprefix("weblake/") for name in re.findall(r"`([\w/]+)`", table)}
    ours = {name.removeprefix("weblake/") for name in made.metadata}
    # A definition's own, what a partition has in place of row_count, and what only a load with errors has.
    elsewhere = {"dagster/partition_row_count", "dagster/storage_kind", "dagster/table_name", "outcomes"}
    # Only where they are not 0 or false.
    rare = {"limit_reached", "missing", "duplicates", "robots_blocked", "rejected", "lost_starts"}
    assert known - elsewhere - rare - ours == set()
    assert ours - known == set()


def test_the_resource_alone_reads_a_page(page: Page) -> None:
    result = page.define("The resource").run()
    assert "page 4" in result.output_for_node("homepage")


def test_partitions_are_jobs_and_months_are_one_request(page: Page, weblake_service: WeblakeService) -> None:
    code = page.define("Partitions and backfills")
    page.instance.add_dynamic_partitions("sites", [page.host])
    code.run("site_docs", partition=page.host)
    assert page.rows() == [(6,)]
    code.run("usage", tags={RANGE[0]: "2026-04-01", RANGE[1]: "2026-11-01"})
    assert len(page.instance.get_materialized_partitions(dg.AssetKey("usage"))) == 8
    asked = [each for each in weblake_service.requests() if "historical" in str(each["path"])]
    assert len(asked) == 1


def test_a_job_is_landed_by_the_run_that_the_sensor_requests(page: Page) -> None:
    code = page.define("Waiting")
    code.run("docs_job")
    (request,) = until(lambda: code.tick("docs_collect").run_requests)
    code.run("docs", tags=dict(request.tags))
    assert page.rows() == [(6,)]


def test_a_lazy_frame_downstream(page: Page) -> None:
    result = page.define("Reading").run()
    assert result.output_for_node("statuses") == {200: 6}


def test_a_table_is_an_asset_downstream(page: Page) -> None:
    code = page.define("Delta Lake and Iceberg tables")
    code.run("docs")
    tables.add(page.lake, "delta")
    code.run("docs_table")
    assert tables.status(page.lake)[0].rows == 6


def test_checks_of_pages_and_of_usage(page: Page) -> None:
    code = page.define("Checks and freshness")
    checks = checks_of(code.run())
    assert set(checks.values()) == {True}
    said_to_be = re.findall(r"`(\w+)`", TEXT[TEXT.index("makes the checks") : TEXT.index("They read the landed files")])
    names = set(said_to_be) - {"max_credits"}
    assert {name for name in names if not name.startswith("build")} == set(checks)


def test_jobs_and_loads_of_others_are_landed_or_reported(page: Page, weblake_service: WeblakeService) -> None:
    code = page.define("Sensors")
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


@pytest.mark.parametrize(("number", "assets"), [(0, ("docs_job", "docs")), (1, ("pages",)), (2, ("usage",))])
def test_the_yaml_lands(page: Page, number: int, assets: tuple[str, ...]) -> None:
    written = yaml.safe_load(page.adapted(blocks("Components", "yaml")[number]))
    files = {"pages.csv": "url\n" + "\n".join(page.site.pages(2))}
    with loaded(written["type"], written["attributes"], files) as (_, defs):
        if "resource" not in written["attributes"]:
            ours = dagster_weblake.WeblakeResource(root=str(page.lake))
            defs = dg.Definitions.merge(defs, dg.Definitions(resources={"weblake": ours}))
        code = Code(page, defs)
        months = defs.resolve_asset_graph().get(dg.AssetKey(assets[-1])).partitions_def
        newest = None if months is None else months.get_partition_keys()[-1]
        result = code.run(*assets, partition=newest)
    if number == 0:
        assert checks_of(result)["rows_above_zero"] is False, "the page asks for a hundred"
        assert page.rows() == [(6,)]
    elif number == 1:
        assert page.rows() == [(2,)]
    else:
        assert page.instance.get_materialized_partitions(dg.AssetKey("usage")) == {newest}


def test_the_commands_run_as_they_stand(tmp_path: Path, site: GatedSite) -> None:
    export, serve, try_it, copy = blocks("Getting started", "sh")
    assert export.startswith("export WEBLAKE_BASE_URL=")
    port = str(free_port())
    env = environment(tmp_path, DAGSTER_HOME=dagster_home(tmp_path))
    # The site lies on loopback, as those of the text do not.
    command = f"{serve.strip()} --allow-private".replace("8900", port).replace("WEBLAKE_API", "exec env WEBLAKE_API", 1)
    service = subprocess.Popen(["sh", "-c", command], cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert service.stdout is not None
        assert json.loads(service.stdout.readline())["url"].endswith(port)
        commands = f"{try_it}\n{copy}".replace("8900", port).replace("https://example.org/", f"{site.url}/")
        out = said(
            subprocess.run(["sh", "-ec", commands], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=280)
        )
    finally:
        service.terminate()
        service.wait(30)
    told = json.loads(out.splitlines()[0])
    assert told["state"] == "success"
    landed = [receipt for receipt in told["loads"].values() if receipt["submitted"]]
    assert len(landed) == len(told["loads"]) - 1, "nothing of `new_pages` is due after the crawl"
    for receipt in landed:
        assert receipt["load_id"] in out.partition("\n")[2], "`weblake loads` lists it"
    assert "All definitions loaded successfully" in out
    assert (tmp_path / "my_project" / "web_lake" / "definitions.py").is_file()
    count = "SELECT count(DISTINCT load_id) FROM read_parquet(?)"
    with duckdb.connect() as database:
        (loads,) = database.execute(count, [f"{tmp_path}/lake/documents/**/*.parquet"]).fetchall()
    assert loads == (5,), "three of run_example, and two of `dg launch`"


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
    (commands,) = blocks("Components", "sh")
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
    prose = BLOCK.sub("", TEXT)
    named = set(re.findall(r"(?<!dg\.)\b(Weblake\w+|build_\w+|weblake_assets|DEFAULT_RETRIES|\w+Request)\b", prose))
    public = set(dagster_weblake.__all__)
    assert named - public == set()
    # Each of them is told, but the type of a run's config.
    told = set(re.findall(r"\w+", TEXT))
    assert public - told == {"JobConfig"}


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)]+)\)", BLOCK.sub("", TEXT)))))
def test_links_lead_to_existing_targets(link: str) -> None:
    assert (ROOT / "docs" / link.partition("#")[0]).exists()
