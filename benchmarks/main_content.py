"""How much of a page's main content survives, and how fast: word-bag precision, recall and F1 over hand-made answers.

    uv run python benchmarks/main_content.py SAMPLE
    npm install --prefix DIRECTORY @mozilla/readability defuddle jsdom linkedom
    uv run --with trafilatura --with resiliparse --with readability-lxml --with chromerag \\
        python benchmarks/main_content.py SAMPLE --against --node DIRECTORY

SAMPLE is a directory in the layout of the public WCXB benchmark: `html/ID.html.gz` and `ground-truth/ID.json`. Link
targets are taken out of the markdown before words are counted; the mean is over pages, as WCXB reports it. Speed is
processor time of one thread, so that a busy machine says the same as an idle one. `kept` is the share of the snippets
that belong to the content and are there, `rejected` the share of those that do not belong to it and are not.
`--against` measures other extractors, where they are installed, in the same run; those that run in Node.js are timed by
the clock, because their work is done in another process.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "labs"))

from converted_pages import convert as converted

WORD = re.compile(r"\w+")
TARGET = re.compile(r"(?<=\])\((?:<[^>]*>|[^()\s]*(?:\([^()]*\)[^()\s]*)*)(?:\s+\"[^\"]*\")?\)|<https?://[^>]*>")

#: The bytes and the address of a page in, its text out.
Extractor = Callable[[bytes, str], str]


@dataclass(frozen=True, slots=True)
class Sample:
    """One page with its answer."""

    url: str
    kind: str
    html: bytes
    content: str
    belongs: Sequence[str]
    foreign: Sequence[str]


@dataclass(frozen=True, slots=True)
class Score:
    """How one page came out; `kept` and `rejected` are None where the answer names no snippets."""

    kind: str
    precision: float
    recall: float
    f1: float
    kept: float | None
    rejected: float | None


def samples(directory: Path) -> Iterator[Sample]:
    for path in sorted((directory / "ground-truth").glob("*.json")):
        told = json.loads(path.read_bytes())
        truth = told["ground_truth"]
        kind = ((told.get("_internal") or {}).get("page_type") or {}).get("primary", "unknown")
        html = gzip.decompress((directory / "html" / f"{path.stem}.html.gz").read_bytes())
        yield Sample(
            told["url"], kind, html, truth["main_content"] or "", truth.get("with") or (), truth.get("without") or ()
        )


def words(text: str) -> Counter[str]:
    return Counter(WORD.findall(text.lower()))


def score(got: str, wanted: str) -> tuple[float, float, float]:
    mine, theirs = words(TARGET.sub(" ", got)), words(wanted)
    if not theirs:
        return (1.0, 1.0, 1.0) if not mine else (0.0, 1.0, 0.0)
    both = sum((mine & theirs).values())
    precision = both / sum(mine.values()) if mine else 0.0
    recall = both / sum(theirs.values())
    return precision, recall, 2 * precision * recall / (precision + recall) if both else 0.0


def share_there(snippets: Sequence[str], got: str) -> float | None:
    if not snippets:
        return None
    text = " ".join(WORD.findall(TARGET.sub(" ", got).lower()))
    return sum(" ".join(WORD.findall(snippet.lower())) in text for snippet in snippets) / len(snippets)


def measure(
    pages: Sequence[Sample], extract: Extractor, clock: Callable[[], float] = time.thread_time
) -> tuple[list[Score], float]:
    """The scores in order, and the seconds of processor time that they took, or of another clock."""
    for page in pages[:3]:
        extract(page.html, page.url)
    scores, spent = [], 0.0
    for page in pages:
        began = clock()
        got = extract(page.html, page.url)
        spent += clock() - began
        foreign = share_there(page.foreign, got)
        rejected = None if foreign is None else 1 - foreign
        scores.append(Score(page.kind, *score(got, page.content), share_there(page.belongs, got), rejected))
    return scores, spent


def own(html: bytes, url: str) -> str:
    return convert(html, url, only_main_content=True)


def whole_page(html: bytes, url: str) -> str:
    return convert(html, url, only_main_content=False)


def convert(html: bytes, url: str, *, only_main_content: bool) -> str:
    return str(converted(html, url=url, only_main_content=only_main_content).document["markdown"])


def others(node_modules: Path | None) -> Iterator[tuple[str, Extractor, Callable[[], float]]]:
    """The other extractors that are installed, each as its own documentation calls it, and the clock to time it."""
    for package, make in (
        ("trafilatura", _trafilatura),
        ("resiliparse", _resiliparse),
        ("readability-lxml", _readability),
        ("chromerag", _chromerag),
    ):
        try:
            number = version(package)
        except PackageNotFoundError:
            print(f"{package}: not installed; add `--with {package}` to `uv run`.")
            continue
        for label, extract in make():
            yield f"{package} {number}, {label}", extract, time.thread_time
    if node_modules is None:
        return
    for package in ("@mozilla/readability", "defuddle"):
        number = json.loads((node_modules / package / "package.json").read_bytes())["version"]
        yield f"{package} {number}", _in_node(node_modules, package), time.perf_counter


def _trafilatura() -> Iterator[tuple[str, Extractor]]:
    extract = importlib.import_module("trafilatura").extract
    yield "text", lambda html, url: extract(html, url=url, include_comments=False) or ""
    yield "markdown", lambda html, url: extract(html, url=url, output_format="markdown", include_links=True) or ""


def _resiliparse() -> Iterator[tuple[str, Extractor]]:
    extract = importlib.import_module("resiliparse.extract.html2text").extract_plain_text
    yield "main content", lambda html, _: extract(html.decode("utf-8", "replace"), main_content=True)


def _readability() -> Iterator[tuple[str, Extractor]]:
    document = importlib.import_module("readability").Document
    to_text = importlib.import_module("lxml.html").fromstring

    def extract(html: bytes, url: str) -> str:
        try:
            return str(to_text(document(html.decode("utf-8", "replace"), url=url).summary()).text_content())
        except Exception:  # noqa: BLE001
            return ""  # It raises on pages in which it finds nothing; that counts as nothing found.

    yield "text", extract


def _chromerag() -> Iterator[tuple[str, Extractor]]:
    extractor = importlib.import_module("chromerag").ChromeRAG()
    yield "markdown", lambda html, url: extractor.extract(html.decode("utf-8", "replace"), url=url).markdown


def _in_node(node_modules: Path, package: str) -> Extractor:
    script = Path(__file__).with_name("main_content.mjs")
    command = ["node", str(script), str(node_modules.resolve()), package]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert worker.stdin is not None
    assert worker.stdout is not None
    pages, texts = worker.stdin, worker.stdout

    def extract(html: bytes, url: str) -> str:
        pages.write(json.dumps({"html": html.decode("utf-8", "replace"), "url": url}).encode() + b"\n")
        pages.flush()
        return str(json.loads(texts.readline()))

    return extract


def mean(values: Sequence[float | None]) -> str:
    there = [value for value in values if value is not None]
    return f"{sum(there) / len(there):.3f}" if there else "-"


def report(label: str, scores: Sequence[Score], spent: float) -> None:
    lost = sum(one.recall < 0.5 for one in scores)
    print(f"{label}: {len(scores)} pages, {len(scores) / spent:.0f} pages/s, P / R / F1 {_means(scores)}")
    print(f"  kept {mean([s.kept for s in scores])}, rejected {mean([s.rejected for s in scores])}, lost half: {lost}")
    kinds = defaultdict(list)
    for one in scores:
        kinds[one.kind].append(one)
    for kind, of_kind in sorted(kinds.items()):
        print(f"  {kind:14} {len(of_kind):4} pages  {_means(of_kind)}")


def _means(scores: Sequence[Score]) -> str:
    return (
        f"{mean([s.precision for s in scores])} / {mean([s.recall for s in scores])} / {mean([s.f1 for s in scores])}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sample", type=Path, help="a directory with html/ and ground-truth/")
    parser.add_argument("--against", action="store_true", help="measure other extractors too")
    parser.add_argument("--node", type=Path, help="a directory with node_modules/ of readability and defuddle")
    parser.add_argument("--whole", action="store_true", help="measure the whole page too, nothing filtered")
    asked = parser.parse_args()
    pages = list(samples(asked.sample))
    if not pages:
        parser.error(
            f"{asked.sample} has no ground-truth/*.json. Name the directory that holds html/ and ground-truth/."
        )
    contestants: list[tuple[str, Extractor, Callable[[], float]]] = [("weblake", own, time.thread_time)]
    if asked.whole:
        contestants.append(("weblake, whole page", whole_page, time.thread_time))
    if asked.against:
        contestants += others(asked.node / "node_modules" if asked.node else None)
    for label, extract, clock in contestants:
        report(label, *measure(pages, extract, clock))


if __name__ == "__main__":
    main()
