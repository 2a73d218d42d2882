"""Line diff of two texts, as a unified diff that `git apply` accepts.

Lines that occur once in each text are matched first, as in patience diff; difflib compares the lines between them.
difflib's worst case is cubic, so its work is bounded; what remains is reported as one replaced block, which is still a
correct diff.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import pairwise

#: Maximum pairs of lines that difflib compares in one diff; this many take about a second.
_MAX_LINE_PAIRS = 1_000_000
_CONTEXT_LINES = 3
_DIFF_HEADER = "diff --git a/page.md b/page.md\n--- a/page.md\n+++ b/page.md\n"
_NO_NEWLINE = "\n\\ No newline at end of file\n"

#: An opcode as in `SequenceMatcher.get_opcodes`: the kind of a block, and its range in both texts.
Step = tuple[str, int, int, int, int]


def unified_diff(before: str, after: str) -> str:
    """Return the unified diff of two texts, with three lines of context around each change; empty if they are equal."""
    if before == after:
        return ""
    old, new = _lines(before), _lines(after)
    steps = _OpcodeGrouper(old, new)
    return _DIFF_HEADER + "".join(
        part for hunk in steps.get_grouped_opcodes(_CONTEXT_LINES) for part in _hunk(hunk, old, new)
    )


class _OpcodeGrouper(SequenceMatcher[str]):
    """Reuses difflib's grouping with precomputed opcodes."""

    def __init__(self, old: Sequence[str], new: Sequence[str]) -> None:
        super().__init__(None, (), (), autojunk=False)
        self._steps = _merge_opcodes(_Comparison(old, new).opcodes())

    def get_opcodes(self) -> list[Step]:  # type: ignore[override]
        return self._steps


class _Comparison:
    """One comparison, with the remaining work budget of difflib."""

    def __init__(self, old: Sequence[str], new: Sequence[str]) -> None:
        self._old, self._new = old, new
        self._work = _MAX_LINE_PAIRS

    def opcodes(self) -> Iterator[Step]:
        """Yield the opcodes from one text to the other, in order; adjacent ones may be of the same kind."""
        start, old_end, new_end = 0, len(self._old), len(self._new)
        while start < min(old_end, new_end) and self._old[start] == self._new[start]:
            start += 1
        while min(old_end, new_end) > start and self._old[old_end - 1] == self._new[new_end - 1]:
            old_end, new_end = old_end - 1, new_end - 1
        yield "equal", 0, start, 0, start
        anchors = _unique_common_lines(self._old[start:old_end], self._new[start:new_end])
        places = [(start - 1, start - 1), *((start + one, start + other) for one, other in anchors), (old_end, new_end)]
        for (old, new), (old_next, new_next) in pairwise(places):
            yield from self._opcodes_between(old + 1, old_next, new + 1, new_next)
            if old_next < old_end:
                yield "equal", old_next, old_next + 1, new_next, new_next + 1
        yield "equal", old_end, len(self._old), new_end, len(self._new)

    def _opcodes_between(self, old: int, old_end: int, new: int, new_end: int) -> Iterator[Step]:
        """Yield the opcodes between two matched lines."""
        work = (old_end - old) * (new_end - new)
        self._work -= work
        if not work or self._work < 0:
            self._work = max(self._work, 0)
            yield "replace", old, old_end, new, new_end
            return
        matcher = SequenceMatcher(None, self._old[old:old_end], self._new[new:new_end])
        for tag, i, i_end, j, j_end in matcher.get_opcodes():
            yield tag, old + i, old + i_end, new + j, new + j_end


def _unique_common_lines(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Return the positions of lines that occur once in either text: the longest sequence in the same order in both."""
    counted_old, counted_new = Counter(old), Counter(new)
    place = {line: index for index, line in enumerate(new) if counted_new[line] == 1}
    pairs = [(index, place[line]) for index, line in enumerate(old) if counted_old[line] == 1 and line in place]
    # Longest increasing subsequence of the second numbers: the last pair of each length, and the predecessor of each
    # pair.
    lengths: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for number, (_, target) in enumerate(pairs):
        length = bisect_left(lengths, target)
        lengths[length : length + 1] = [target]
        ends[length : length + 1] = [number]
        before.append(ends[length - 1] if length else -1)
    chosen = []
    number = ends[-1] if ends else -1
    while number >= 0:
        chosen.append(pairs[number])
        number = before[number]
    return chosen[::-1]


def _merge_opcodes(steps: Iterator[Step]) -> list[Step]:
    """Return the opcodes without empty ones, with adjacent equal ones merged and changes labelled by kind."""
    joined: list[Step] = []
    for tag, i, i_end, j, j_end in steps:
        if i == i_end and j == j_end:
            continue
        equal = tag == "equal"
        if joined and (joined[-1][0] == "equal") == equal:
            _, i, _, j, _ = joined.pop()
        kind = "equal" if equal else "insert" if i == i_end else "delete" if j == j_end else "replace"
        joined.append((kind, i, i_end, j, j_end))
    return joined


def _hunk(steps: Sequence[Step], old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    first, last = steps[0], steps[-1]
    yield f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@\n"
    for tag, i, i_end, j, j_end in steps:
        if tag == "equal":
            yield from (_line(" ", line) for line in old[i:i_end])
            continue
        yield from (_line("-", line) for line in old[i:i_end])
        yield from (_line("+", line) for line in new[j:j_end])


def _range(start: int, end: int) -> str:
    count = end - start
    if count == 1:
        return str(start + 1)
    return f"{start + 1 if count else start},{count}"


def _line(mark: str, line: str) -> str:
    return f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}{_NO_NEWLINE}"


def _lines(text: str) -> list[str]:
    """Return the lines with their line ends; only `\\n` ends a line, as in a diff."""
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]
