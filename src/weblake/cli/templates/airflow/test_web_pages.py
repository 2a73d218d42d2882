"""The DAG, run with the real service and a site on this machine: no account, no network."""

import json

from web_pages import dag

import weblake


def test_a_lost_answer_costs_nothing(weblake_service, weblake_site, weblake_faults, tmp_path, monkeypatch):
    connection = {"conn_type": "weblake", "host": weblake_service.url, "password": weblake_service.key}
    monkeypatch.setenv("AIRFLOW_CONN_WEBLAKE_DEFAULT", json.dumps(connection))
    (tmp_path / "urls.txt").write_text("\n".join(weblake_site.urls("/news/")))
    weblake_faults.add(drop_after=True, method="POST", path="/v2/batch/scrape$")  # the job starts, the answer is lost
    run = dag.test(run_conf={"urls": str(tmp_path / "urls.txt"), "root": str(tmp_path / "lake")})
    assert run.state == "success"
    assert weblake.read(tmp_path / "lake", "documents").to_table().num_rows == len(weblake_site.urls("/news/"))
    assert weblake_service.counts()["batch_scrape_started"] == 1
