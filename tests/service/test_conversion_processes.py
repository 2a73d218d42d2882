"""The processes that convert files are few, bounded and replaced, and end with the service."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import parse_lab
import pytest
from catalogue import proves
from polling import until

from weblake_service.files.conversion_messages import ConversionTask
from weblake_service.files.converter_pool import ConverterPool
from weblake_service.page import parse_process
from weblake_service.page.requested_formats import read_page_options
from weblake_service.page_failure import PageFailure


def converting(work: Callable[[ConverterPool], Coroutine[Any, Any, Any]], **options: Any) -> Any:
    async def main() -> Any:
        converters = ConverterPool(**options)
        try:
            return await work(converters)
        finally:
            await converters.aclose()

    return asyncio.run(main())


def document(name: str) -> bytes:
    return (parse_lab.DOCUMENTS / name).read_bytes()


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


@pytest.mark.system
@proves(
    "S9",
    at="src/weblake_service/files/converter_pool.py",
    line="killing = asyncio.create_task(process.kill())",
    becomes="killing = asyncio.create_task(asyncio.sleep(0))",
)
def test_s9_a_process_beyond_its_deadline_is_killed() -> None:
    sheet = parse_lab.wide_sheet()

    async def work(converters: ConverterPool) -> tuple[list[int], list[int]]:
        await converters.convert(ConversionTask("office"), document("tides.docx"))
        before = converters.pids
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await converters.convert(ConversionTask("office", html=True), sheet)
        after = converters.pids
        assert (await converters.convert(ConversionTask("office"), document("tides.docx"))).html
        return before, after

    before, after = converting(work, max_processes=1)
    assert (len(before), after) == (1, [])
    assert gone(before[0])


@proves(
    "S9",
    at="src/weblake_service/page/parse_process.py",
    line="if is_harmless(body, [selector for selector, _ in attribute_selectors(options)]):",
    becomes="if True:",
    case="attributes",
)
@proves(
    "S9",
    at="src/weblake_service/page/parse_process.py",
    line="if is_harmless(body, wanted.selectors):",
    becomes="if True:",
    case="page",
)
@pytest.mark.parametrize("what", ["page", "attributes"])
def test_s9_a_large_page_is_converted_in_a_process(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def here(*_: object) -> None:
        raise AssertionError("a large page was read in the service's own process")

    monkeypatch.setitem(parse_process.READERS, "html", here)
    monkeypatch.setattr(parse_process, "read_attributes", here)
    body = b"<title>T</title><p class=x>text" + b"<!-- -->" * 60_000
    options = {"formats": [{"type": "attributes", "selectors": [{"selector": "p", "attribute": "class"}]}]}

    async def work(converters: ConverterPool) -> object:
        if what == "page":
            wanted = read_page_options({"formats": ["markdown", "rawHtml"]})
            document, _ = await parse_process.read_page(
                converters, "html", "text/html", body, "https://a.example/", wanted, "it"
            )
            assert (document["markdown"], document["rawHtml"]) == ("text", body.decode())
            return document["metadata"]
        return await parse_process.attributes_of(converters, "text/html", body, options, "it")

    told: dict[str, object] = {"page": {"title": "T"}}
    told["attributes"] = {"attributes": [{"selector": "p", "attribute": "class", "values": ["x"]}]}
    assert converting(work) == told[what]


def test_s9_errors_of_large_pages_equal_those_of_small_ones() -> None:
    wanted = read_page_options({"include_tags": ["p["]})

    async def work(converters: ConverterPool) -> None:
        with pytest.raises(PageFailure, match="cannot be read") as caught:
            await parse_process.read_page(
                converters, "html", "text/html", b"<p>" * 100_000, "https://a.example/", wanted, "it"
            )
        assert (caught.value.code, caught.value.status) == ("BAD_REQUEST", 400)

    converting(work)


@pytest.mark.system
@proves(
    "S9",
    at="src/weblake_service/files/worker.py",
    line="resource.setrlimit(resource.RLIMIT_AS, (memory, memory))",
    becomes="pass",
)
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds the address space of a process reliably")
def test_s9_a_process_beyond_its_memory_limit_is_replaced() -> None:
    sheet = parse_lab.wide_sheet()

    async def work(converters: ConverterPool) -> None:
        with pytest.raises(PageFailure, match="more memory"):
            await converters.convert(ConversionTask("office", html=True), sheet)
        assert (await converters.convert(ConversionTask("office"), document("tides.docx"))).html

    converting(work, memory=200 << 20)


def test_few_processes_convert_many_files() -> None:
    async def work(converters: ConverterPool) -> list[int]:
        for _ in range(5):
            await converters.convert(ConversionTask("office"), document("tides.docx"))
        assert len(converters.pids) == 1
        await asyncio.gather(*(converters.convert(ConversionTask("pdf"), document("tides.pdf")) for _ in range(12)))
        return converters.pids

    pids = converting(work, max_processes=2)
    assert len(set(pids)) == 2
    assert all(gone(pid) for pid in pids)


def test_a_conversion_cancelled_twice_ends_its_process() -> None:
    async def work() -> list[int]:
        converters = ConverterPool()
        page = ConversionTask(
            "page", content_type="text/html", base="http://a.test/", options={"formats": ["markdown"]}
        )
        converting = asyncio.create_task(converters.convert(page, b"<p>x</p>" * 400_000))
        while not (pids := converters.pids):  # noqa: ASYNC110 - nothing tells when it has started
            await asyncio.sleep(0.001)
        converting.cancel()
        await asyncio.sleep(0)
        converting.cancel()
        await asyncio.gather(converting, return_exceptions=True)
        await converters.aclose()
        assert converters.pids == []
        return pids

    loop = asyncio.new_event_loop()  # not asyncio.run, which would clean up
    try:
        pids = loop.run_until_complete(work())
    finally:
        loop.close()
    assert all(gone(pid) for pid in pids)


def test_an_idle_process_ends() -> None:
    async def work(converters: ConverterPool) -> None:
        await converters.convert(ConversionTask("office"), document("tides.docx"))
        pid = converters.pids[0]
        async with asyncio.timeout(90):
            while not gone(pid):  # noqa: ASYNC110 - the system tells nobody
                await asyncio.sleep(0.005)
        assert converters.pids == []
        assert (await converters.convert(ConversionTask("office"), document("tides.docx"))).html

    converting(work, idle=0.01)


def test_a_process_that_died_is_replaced() -> None:
    async def work(converters: ConverterPool) -> None:
        await converters.convert(ConversionTask("office"), document("tides.docx"))
        pid = converters.pids[0]
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(90):
            while not gone(pid):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        result = None
        with suppress(PageFailure):
            result = await converters.convert(ConversionTask("office"), document("tides.docx"))
        result = result or await converters.convert(ConversionTask("office"), document("tides.docx"))
        assert result.html

    converting(work)


def test_a_conversion_process_gets_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBLAKE_API_KEY", "test-key")

    def environment_of(pid: int) -> str:
        return Path(f"/proc/{pid}/environ").read_text()

    async def work(converters: ConverterPool) -> str:
        await converters.convert(ConversionTask("office"), document("tides.docx"))
        return environment_of(converters.pids[0])

    environment = converting(work)
    assert "PATH=" in environment
    assert "test-key" not in environment


@pytest.mark.system
def test_conversion_processes_end_with_a_killed_service(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from weblake_service.files.converter_pool import ConverterPool\n"
        "from weblake_service.files.conversion_messages import ConversionTask\n"
        "async def main():\n"
        "    converters = ConverterPool()\n"
        "    body = open(sys.argv[1], 'rb').read()\n"
        "    task = asyncio.create_task(converters.convert(ConversionTask('office', html=True), body))\n"
        "    while not converters.pids: await asyncio.sleep(0.01)\n"
        "    await asyncio.sleep(0.3)\n"
        "    print(converters.pids[0], flush=True)\n"
        "    await task\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    sheet = tmp_path / "wide.xlsx"
    sheet.write_bytes(parse_lab.wide_sheet())
    with subprocess.Popen([sys.executable, "-c", program, str(sheet)], stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        pid = int(service.stdout.readline())
        assert not gone(pid)
        service.kill()
        until(lambda: gone(pid))
