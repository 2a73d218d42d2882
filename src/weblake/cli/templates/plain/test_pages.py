"""The load of pages.py, with the real service and a site on this machine: no account, no network."""

import pages

import weblake


def test_each_page_is_stored(urls, weblake_site, tmp_path):
    pages.load(urls, tmp_path / "lake")
    stored = weblake.read(tmp_path / "lake", "documents", columns=["url"]).to_table()["url"].to_pylist()
    assert sorted(stored) == sorted(weblake_site.urls("/news/"))


def test_a_lost_answer_and_a_second_run_cost_nothing(urls, weblake_service, weblake_faults, tmp_path):
    weblake_faults.add(drop_after=True, method="POST", path="/v2/batch/scrape$")  # the job starts, the answer is lost
    first = pages.load(urls, tmp_path / "lake")
    again = pages.load(urls, tmp_path / "lake")
    assert again.load_id == first.load_id
    assert weblake_service.counts()["batch_scrape_started"] == 1
