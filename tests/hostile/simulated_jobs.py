"""Random cases of one job with faults, and assertions for what is visible of it in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from hypothesis import strategies as st
from landing_commands import page_errors, published
from scripted_job import url_of
from simulated_service import FAULTS, Content, SimulatedService, split_into_chunks

from weblake import read
from weblake.errors import LoadIncomplete, WeblakeError
from weblake.receipt import Receipt

Made = tuple[SimulatedService, Content]


@st.composite
def random_cases(draw: st.DrawFn, faults: Sequence[str] = FAULTS, most: int = 12) -> Made:
    """Draw a simulated service and what its only job delivers."""
    count = draw(st.integers(0, 12))
    ids = draw(st.booleans())
    documents: list[dict[str, object]] = []
    for n in range(count):
        metadata = {"sourceURL": url_of(n), "title": draw(st.text(max_size=3))} | ({"scrapeId": f"s{n}"} if ids else {})
        documents.append({"markdown": draw(st.text(max_size=8)), "metadata": metadata})
    failed = list(range(count, count + draw(st.integers(0, 3))))
    lost = draw(st.sampled_from([0, 0, 0, 1, 3]))
    if count + len(failed) + lost == 0:
        lost = 1
    sizes = draw(st.lists(st.integers(0, 5), max_size=6))
    back = draw(st.lists(st.integers(0, 3), min_size=len(sizes), max_size=len(sizes)))
    calm, wild = st.none(), st.sampled_from(faults)
    tape = draw(st.lists(calm | wild, max_size=most)) + draw(st.lists(wild, max_size=most))
    content = Content(documents, [url_of(n) for n in failed], lost, split_into_chunks(documents, sizes, back))
    return SimulatedService(lambda urls: content, tape), content


def check_dataset_of(root: Path, content: Content, receipt: Receipt | None, error: WeblakeError | None) -> None:
    documents = content.documents
    if receipt is None:
        assert published(root) == []
        assert isinstance(error, LoadIncomplete)
        assert content.lost or not documents
        assert error.receipt is not None
        assert error.receipt.missing == content.lost
        return
    assert content.lost == 0
    assert (receipt.stored, receipt.failed, receipt.missing) == (len(documents), len(content.failed), 0)
    assert receipt.submitted == receipt.stored + receipt.failed
    table = read(root, "documents").to_table().to_pylist()
    expected = Counter((d["metadata"]["sourceURL"], d["markdown"]) for d in documents)  # type: ignore[index]
    assert Counter((row["source_url"], row["markdown"]) for row in table) == expected
    assert sorted(row["position"] for row in table) == list(range(len(documents)))
    assert len(page_errors(root)) == len(content.failed)
