"""Tests of loads that are requested with `new`: after an error they go on with the key that its remedy names.

With `new` again, the same call would start and pay for another job.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from command_in_process import run_command
from landing_lab import LandingLab, landing_lab
from polling import until

import weblake
from weblake import Terms, errors
from weblake.api.steps import Flow
from weblake.dataset.history import history
from weblake.jobs import cancelling, polling
from weblake.jobs.polling import JobRef
from weblake.loads import intents, load, load_request
from weblake.loads.load_request import Naming

URLS = [f"http://pages.test/{n}" for n in range(3)]
TERMS = Terms(poll_s=0.1, timeout_s=60)


class Lab(LandingLab):
    @property
    def started(self) -> int:
        return self.service.counts().get("batch_scrape_started", 0)

    def run(self, *args: str) -> tuple[int, str, str]:
        return run_command(
            [*args, "--json"], {"WEBLAKE_BASE_URL": self.service.url, "WEBLAKE_API_KEY": self.service.key}
        )

    def cancel_with_two_pages(self, job_id: str) -> None:
        until(lambda: self.client.get_batch_scrape(job_id).completed == 2)
        self.client.run(cancelling.cancel(JobRef("batch_scrape", job_id), self.client.retry))
        self.web.held.clear()


@contextmanager
def time_limit_passes() -> Iterator[None]:
    """Let the time limit pass while a job is waited for, however long its start takes."""
    wait = polling.wait

    def short_wait(*args: Any, until: float, **options: Any) -> Flow[dict[str, object]]:
        return wait(*args, until=min(until, time.monotonic() + 0.1), **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load, "wait", short_wait)
        yield


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with landing_lab(Lab, tmp_path / "lake") as made:
        made.web.held.add(URLS[2])  # a page whose response is held keeps its job running
        yield made


def key_named_by(text: str, pattern: str) -> str:
    found = re.search(pattern, text)
    assert found is not None, text
    return found[1]


def test_a_refused_new_load_is_published_with_its_key(lab: Lab) -> None:
    with time_limit_passes(), pytest.raises(errors.DeadlineExceeded) as running:
        weblake.land_batch(URLS, to=lab.root, client=lab.client, terms=TERMS, new=True)
    assert running.value.receipt is not None
    lab.cancel_with_two_pages(str(running.value.receipt.job_id))
    key = key_named_by(running.value.hint, r"goes on with key (\w+) in place")
    with pytest.raises(errors.JobEnded, match="allow_partial=True, to publish them"):
        weblake.land_batch(URLS, to=lab.root, client=lab.client, terms=TERMS, key=key)
    partial = Terms(allow_partial=True)
    assert weblake.land_batch(URLS, to=lab.root, client=lab.client, terms=partial, key=key).stored == 2
    assert lab.started == 1


def test_a_new_load_goes_on_with_its_key_on_the_command_line(lab: Lab, tmp_path: Path) -> None:
    """Its remedy and `weblake orphans` name the key; the list of URLs may have changed by then."""
    urls = tmp_path / "urls.txt"
    urls.write_text("\n".join(URLS))
    same = ["batch", "--urls", str(urls), "--to", str(lab.root)]
    with time_limit_passes():
        code, out, _ = lab.run(*same, "--new")
    assert code == 1
    key = key_named_by(json.loads(out)["error"]["hint"], r"goes on with --key (\w+) in place of --new\. Run the same")
    (orphan,) = json.loads(lab.run("orphans", str(lab.root))[1])["orphans"]
    assert f"again, with --key {key} in place of --new" in orphan["next"][0]
    lab.web.held.clear()
    urls.write_text("\n".join([*URLS, "http://pages.test/more"]))
    code, out, err = lab.run(*same, "--key", key)
    assert (code, json.loads(out)["stored"], lab.started) == (0, 3, 1), err


def test_a_new_load_of_a_command_with_a_key_goes_on_only_without_that_key(lab: Lab) -> None:
    """With both keys the last one counted, so the command that had replaced --new as it was told to paid again."""
    same = ["batch", *URLS, "--to", str(lab.root)]
    with time_limit_passes():
        out = lab.run(*same, "--new", "--key", "monday")[1]
    key = key_named_by(json.loads(out)["error"]["hint"], r"goes on with --key (\w+) in place of --new")
    lab.web.held.clear()
    code, out, _ = lab.run(*same, "--key", key, "--key", "monday")
    assert (code, lab.started) == (2, 1)
    assert "--key is given 2 times" in json.loads(out)["error"]["message"]
    code, out, err = lab.run(*same, "--key", key)
    assert (code, json.loads(out)["stored"], lab.started) == (0, 3, 1), err


def test_the_key_of_a_refused_new_load_is_listed(lab: Lab) -> None:
    to = ["--to", str(lab.root)]
    job_id = json.loads(lab.run("batch", *URLS, *to, "--new", "--detach")[1])["job_id"]
    lab.cancel_with_two_pages(job_id)
    (cancelled,) = json.loads(lab.run("orphans", str(lab.root))[1])["cancelled"]
    key = key_named_by(cancelled["next"][0], r"with --key (\w+) in place of --new .*, with --allow-partial\.")
    assert lab.run("batch", *URLS, *to, "--key", key)[0] == 1
    shown = json.loads(lab.run("orphans", str(lab.root))[1])
    assert shown["refused_keys"] == {shown["refused"][0]: key}
    assert lab.run("batch", *URLS, *to, "--key", key, "--allow-partial")[0] == 0
    assert lab.started == 1


@pytest.mark.parametrize("fails", ["start", "before the intent"])
def test_only_a_load_that_has_begun_goes_on(lab: Lab, fails: str) -> None:
    effect = {"status": 402}
    lab.service.faults({"match": {"method": "POST" if fails == "start" else "GET"}, "effect": effect})
    request = load_request.batch(URLS, Naming(new=True))
    with pytest.raises(errors.CreditsExhausted) as caught:
        intents.start_load(lab.client, lab.dataset, request)
    assert (f"key {request.new_key} in place" in caught.value.hint) is (fails == "start")


@pytest.mark.parametrize(
    "make",
    [
        lambda naming: load_request.batch(URLS, naming),
        lambda naming: load_request.crawl(URLS[0], naming),
        lambda naming: load_request.scrape(URLS[0], naming),
    ],
)
def test_each_new_load_has_another_key(make: Callable[[Naming], load_request.LoadRequest]) -> None:
    first, second = make(Naming(new=True)), make(Naming(new=True))
    assert len({first.load_id, second.load_id, make(Naming()).load_id}) == 3
    assert make(Naming(key=first.new_key)).load_id == first.load_id
    assert make(Naming(key="k")).new_key is None


@pytest.mark.parametrize("key", [None, "nightly"])
def test_a_load_with_path_keys_replaces_the_earlier_one_of_the_same_command(lab: Lab, key: str | None) -> None:
    """As in Airflow and Dagster: otherwise the pages would be in the partition twice."""
    lab.web.held.clear()
    days = [{"day": "2026-11-21"}, {"day": "2026-11-22"}]
    first, other = (land_of_day(lab, day, key=key) for day in days)
    second = land_of_day(lab, days[0], new=True, key=key)
    assert loads_read(lab) == {other.load_id, second.load_id}
    assert {path.name.partition("-")[0] for path in Path(lab.root).glob("documents/*/*.parquet")} == loads_read(lab)
    assert [row.replaced_by for row in history(lab.dataset)] == [second.load_id, None, None]
    assert (first.stored, lab.started) == (3, 3)


def test_loads_of_other_keys_and_requests_are_added(lab: Lab) -> None:
    lab.web.held.clear()
    day = {"day": "2026-11-21"}
    landed = [land_of_day(lab, day, key=key) for key in (None, "a", "b")]
    landed.append(land_of_day(lab, day, urls=URLS[:2]))
    assert loads_read(lab) == {each.load_id for each in landed}
    changed = land_of_day(lab, day, key="a", urls=URLS[:1])  # the list of a key may change
    assert loads_read(lab) == {landed[0].load_id, changed.load_id, landed[2].load_id, landed[3].load_id}


def test_the_pages_of_one_command_do_not_replace_each_other(lab: Lab) -> None:
    lab.web.held.clear()
    options = ("--to", str(lab.root), "--key", "k", "--partition", "day=2026-11-21")
    assert lab.run("scrape", *URLS, *options)[0] == 0
    assert len(loads_read(lab)) == len(URLS)


def land_of_day(lab: Lab, day: dict[str, str], urls: list[str] = URLS, **naming: Any) -> weblake.Receipt:
    return weblake.land_batch(urls, to=lab.root, client=lab.client, terms=TERMS, partition=day, **naming)


def loads_read(lab: Lab) -> set[str]:
    return set(weblake.read(lab.root).to_table()["load_id"].to_pylist())
