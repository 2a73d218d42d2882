"""The asset, materialized with the real service and a site on this machine: no account, no network."""

from pathlib import Path

import dagster as dg
import web_pages

import weblake


def test_a_lost_answer_costs_nothing(
    weblake_service, weblake_environment, weblake_site, weblake_faults, tmp_path, monkeypatch
):
    (tmp_path / "urls.txt").write_text("\n".join(weblake_site.urls("/news/")))
    monkeypatch.setenv("URLS", str(tmp_path / "urls.txt"))
    monkeypatch.setenv("WEBLAKE_ROOT", str(tmp_path / "lake"))
    weblake_faults.add(drop_after=True, method="POST", path="/v2/batch/scrape$")  # the job starts, the answer is lost
    definitions = dg.load_from_defs_folder(path_within_project=Path(web_pages.__file__))
    with dg.DagsterInstance.ephemeral() as instance:
        assert definitions.resolve_implicit_global_asset_job_def().execute_in_process(instance=instance).success
    assert weblake.read(tmp_path / "lake", "documents").to_table().num_rows == len(weblake_site.urls("/news/"))
    assert weblake_service.counts()["batch_scrape_started"] == 1
