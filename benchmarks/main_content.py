"""How much of a page's main content survives, and how fast: word-bag precision, recall and F1 over hand-made answers.

    uv run python benchmarks/main_content.py SAMPLE

SAMPLE is a directory in the layout of the public WCXB benchmark: `html/ID.html.gz` and `ground-truth/ID.json`. Link
targets are taken out of the markdown before words are counted; the mean is over pages, as WCXB reports it.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

from weblake.service.page.document import page_of
from weblake.service.web.fetch import Fetched

Scores = dict[str, list[tuple[float, float, float]]]
WORD = re.compile(r"\w+")
TARGET = re.compile(r"(?<=\])\((?:<[^>]*>|[^()\s]*(?:\([^()]*\)[^()\s]*)*)(?:\s+\"[^\"]*\")?\)|<https?://[^>]*>")


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


def measure(sample: Path, only_main_content: bool) -> tuple[Scores, float]:
    scores: Scores = defaultdict(list)
    spent = 0.0
    for path in sorted((sample / "ground-truth").glob("*.json")):
        truth = json.loads(path.read_bytes())
        html = gzip.decompress((sample / "html" / f"{path.stem}.html.gz").read_bytes())
        began = time.perf_counter()
        markdown = convert(html, truth["url"], only_main_content=only_main_content)
        spent += time.perf_counter() - began
        kind = ((truth.get("_internal") or {}).get("page_type") or {}).get("primary", "unknown")
        scores[kind].append(score(markdown, truth["ground_truth"]["main_content"] or ""))
    return scores, spent


def convert(html: bytes, url: str, *, only_main_content: bool) -> str:
    fetched = Fetched(url, 200, {}, html, "text/html; charset=utf-8")
    return str(page_of(fetched, url, {"only_main_content": only_main_content}).document["markdown"])


def mean(values: list[tuple[float, float, float]]) -> str:
    return " / ".join(f"{sum(column) / len(values):.3f}" for column in zip(*values, strict=True))


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sample = Path(sys.argv[1])
    for label, only_main_content in (("main content", True), ("whole page", False)):
        scores, spent = measure(sample, only_main_content)
        every = [one for kind in scores.values() for one in kind]
        lost = sum(recall < 0.5 for _, recall, _ in every)
        print(f"{label}: {len(every)} pages, {len(every) / spent:.0f} pages/s, P / R / F1 {mean(every)}")
        print(f"  pages that lost more than half of their text: {lost}")
        for kind, values in sorted(scores.items()):
            print(f"  {kind:14} {len(values):4} pages  {mean(values)}")


if __name__ == "__main__":
    main()
