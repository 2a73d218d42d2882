"""The site of the pytest plugin: it serves the content that it declares, and obeys the test."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest
from polling import until

import weblake
from weblake.testing import WeblakeService, WeblakeSite
from weblake.testing.site_pages import known_pages
from weblake.testing.site_special_paths import ENCODINGS, REDIRECTS


def scraped(service: WeblakeService, url: str, **options: Any) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {service.key}"}
    body = {"url": url, "maxAge": 0, **options}
    reply = httpx.post(f"{service.url}/v2/scrape", json=body, headers=headers, timeout=120, verify=False)
    assert reply.status_code == 200, reply.text
    return dict(reply.json()["data"])


@pytest.mark.parametrize("sitemap", ["skip", "only"])
def test_a_crawl_finds_exactly_the_pages_of_the_site(
    weblake_service: WeblakeService, weblake_site: WeblakeSite, tmp_path: Any, sitemap: Any
) -> None:
    with weblake_service.client() as client:
        receipt = weblake.land_crawl(weblake_site.url, to=tmp_path, client=client, sitemap=sitemap)
    assert (receipt.failed, receipt.robots_blocked) == (0, 1 if sitemap == "skip" else 0)
    rows = weblake.read(tmp_path, "documents").to_table().to_pylist()
    assert {row["source_url"] for row in rows} == set(weblake_site.urls())
    for row in rows:
        page = weblake_site.pages[row["source_url"].removeprefix(weblake_site.url)]
        assert (row["title"], row["description"]) == (page.title, page.description)
        for paragraph in page.paragraphs:
            assert paragraph in row["markdown"]
        metadata = dict(row["metadata"])
        assert metadata["ogImage"] == f"{weblake_site.url}/media/picture.png"
        assert row["language"] == "en"
        if page.published:
            assert metadata["publishedTime"] == page.published.isoformat()


def test_the_seed_determines_the_site(weblake_site: WeblakeSite) -> None:
    with WeblakeSite(seed=1) as same, WeblakeSite(seed=2) as other:
        assert same.pages == weblake_site.pages
        assert same.pages.keys() == other.pages.keys()
        assert all(same.pages[path].text != other.pages[path].text for path in same.pages)
        assert [same.change("/about").text, same.change("/about").text] == [
            weblake_site.change("/about").text,
            weblake_site.change("/about").text,
        ]
        for path in ("/files/report.pdf", "/files/letter.docx", "/media/picture.png"):
            assert (
                httpx.get(same.url + path, verify=False).content
                == httpx.get(weblake_site.url + path, verify=False).content
            )
    titles = [page.title for page in known_pages(1)]
    assert len(set(titles)) == len(titles)


def test_the_files_of_the_site_are_scraped(weblake_service: WeblakeService, weblake_site: WeblakeSite) -> None:
    for path, texts in weblake_site.files.items():
        markdown = " ".join(scraped(weblake_service, weblake_site.url + path)["markdown"].split())
        for text in texts:
            assert text in markdown, path


@pytest.mark.parametrize("path", [path for path in REDIRECTS if "loop" not in path])
def test_the_redirects_of_the_site_lead_to_their_targets(
    weblake_service: WeblakeService, weblake_site: WeblakeSite, path: str
) -> None:
    end = path
    while end in REDIRECTS:
        end = REDIRECTS[end][1]
    document = scraped(weblake_service, weblake_site.url + path)
    assert document["metadata"]["url"] == weblake_site.url + end
    assert document["metadata"]["title"] == weblake_site.pages[end].title


@pytest.mark.system
def test_a_batch_of_failing_pages_reports_each_page(weblake_service: WeblakeService, weblake_site: WeblakeSite) -> None:
    wrong = ["/errors/drop", "/errors/truncated", "/redirects/loop"]
    told = ["/errors/403", "/errors/404", "/errors/410", "/errors/500"]
    fine = [*ENCODINGS, "/huge", "/slow", "/copy-of-about", "/cookies/set", "/catalogue?color=red"]
    with weblake_service.client() as client:
        job = client.start_batch_scrape([weblake_site.url + path for path in (*wrong, *told, *fine)]).id
        until(lambda: client.get_batch_scrape(job).status == "completed")
        failed = client.get_batch_scrape_errors(job).errors
        assert {one.url for one in failed} == {weblake_site.url + path for path in wrong}
        documents = {
            str(one.metadata.source_url).removeprefix(weblake_site.url): one
            for one in client.get_batch_scrape(job).data
        }
    assert {path: documents[path].metadata.status_code for path in told} == {
        path: int(path.rpartition("/")[2]) for path in told
    }
    for path, (_, text) in ENCODINGS.items():
        assert text in str(documents[path].markdown)
    assert "visited=yes" in str(documents["/cookies/set"].markdown), "the cookie was sent"
    assert "in red color" in str(documents["/catalogue?color=red"].markdown)
    assert len(str(documents["/huge"].markdown)) > 1_500_000


def test_robots_txt_excludes_crawlers_and_can_be_replaced(
    weblake_service: WeblakeService, weblake_site: WeblakeSite
) -> None:
    with weblake_service.client() as client:

        def crawled() -> tuple[int, list[str]]:
            job = client.start_crawl(weblake_site.url + "/", sitemap="skip", limit=3).id
            until(lambda: client.get_crawl(job).status != "scraping")
            return len(client.get_crawl(job).data), list(client.get_crawl_errors(job).robots_blocked)

        assert crawled()[0] == 3
        weblake_site.robots("User-agent: *\nDisallow: /\n")
        weblake_service.advance(1)
        assert crawled() == (0, [weblake_site.url + "/"])


def test_pages_are_held_and_released(weblake_service: WeblakeService, weblake_site: WeblakeSite) -> None:
    weblake_site.hold("/contact")
    with weblake_service.client() as client:
        job = client.start_batch_scrape([f"{weblake_site.url}/about", f"{weblake_site.url}/contact"]).id
        until(lambda: client.get_batch_scrape(job).completed == 1 and weblake_site.requests("/contact"))
        assert client.get_batch_scrape(job).status == "scraping"
        weblake_site.release("/contact")
        until(lambda: client.get_batch_scrape(job).status == "completed")


def test_pages_fail_a_number_of_times_and_recover(weblake_site: WeblakeSite) -> None:
    def status(path: str) -> int:
        return httpx.get(weblake_site.url + path, verify=False, timeout=60).status_code

    weblake_site.fail("/about", status=503, times=2, headers={"Retry-After": "1"})
    assert [status("/about") for _ in range(3)] == [503, 503, 200]
    weblake_site.fail("/news/", drop=True)
    for path in ("/news/", "/news/?page=2"):
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(weblake_site.url + path, verify=False)
    weblake_site.mend("/news/")
    assert status("/news/?page=2") == 200
    weblake_site.fail("/about", truncate=100)
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(f"{weblake_site.url}/about", verify=False)
    weblake_site.mend()
    assert status("/about") == 200
    assert [status("/errors/503-then-200") for _ in range(2)] == [503, 200]
    begun = time.monotonic()
    weblake_site.delay("/contact", seconds=0.2)
    assert status("/contact") == 200
    assert time.monotonic() - begun >= 0.2


def test_pages_are_added_changed_and_removed(weblake_service: WeblakeService, weblake_site: WeblakeSite) -> None:
    url = weblake_site.add("/mine", "<title>Mine</title><main><p>My own page.</p></main>")
    elsewhere = weblake_site.add("/old", status=301, headers={"Location": "/mine"})
    weblake_site.add("/raw", b"\x00\x01", content_type="application/octet-stream")
    assert scraped(weblake_service, elsewhere)["metadata"]["url"] == url
    assert weblake_site.urls()[-1] == url
    assert f"<loc>{url}</loc>" in httpx.get(f"{weblake_site.url}/sitemap-pages.xml", verify=False).text
    before = weblake_site.pages["/products/prices"]
    after = weblake_site.change("/products/prices")
    assert weblake_site.pages["/products/prices"] == after
    assert before.table != after.table
    markdown = scraped(weblake_service, f"{weblake_site.url}/products/prices")["markdown"]
    assert "This page was changed 1 times." in markdown
    assert before.paragraphs[-1] not in markdown
    weblake_site.remove("/about")
    assert f"{weblake_site.url}/about" not in weblake_site.urls()
    assert httpx.get(f"{weblake_site.url}/about", verify=False).status_code == 404
    with pytest.raises(KeyError, match="add"):
        weblake_site.change("/mine")
    with pytest.raises(ValueError, match="slash"):
        weblake_site.add("mine", "")


def test_the_site_records_its_requests(weblake_site: WeblakeSite) -> None:
    echoed = httpx.get(f"{weblake_site.url}/echo?a=1", headers={"X-Mine": "yes"}, verify=False).json()
    assert echoed["path"] == "/echo?a=1"
    assert echoed["headers"]["x-mine"] == "yes"
    (request,) = weblake_site.requests("/echo")
    assert (request.method, request.path, request.headers["x-mine"]) == ("GET", "/echo?a=1", "yes")
    assert weblake_site.requests("/about") == []
