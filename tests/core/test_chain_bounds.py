"""However the chunks of a job are linked, reading them is no busy loop and ends: on a clock that the flow moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from catalogue import proves
from scripted_line import Line, reply, retry

from weblake import waiting
from weblake.errors import DeadlineExceeded, ServiceUnreachable
from weblake.pages import Walk
from weblake.steps import NoReply, Reply, Request
from weblake.waiting import JobRef

JOB = JobRef("crawl", "0b8f3c52-6f0d-4a41-9d1c-3f5a7e9b2c11")


@dataclass
class Linked(Line):
    """Answers each offset with a chunk of one document that links to another offset."""

    following: Callable[[int], int] = lambda skip: skip
    word: str = "scraping"
    empty: bool = False

    def send(self, request: Request) -> Reply:
        self.sent.append(request)
        self.at += 0.01
        skip = int(dict(request.query).get("skip", 0))
        data: list[object] = [] if self.empty else [{"markdown": f"{skip}"}]
        link = f"http://else.test{request.path}?skip={self.following(skip)}"
        return reply(200, {"status": self.word, "next": link, "data": data})

    def waited(self, seconds: float) -> int:
        """Waits for the end that never comes, and returns how many requests that took."""
        with pytest.raises(DeadlineExceeded):
            self.run(waiting.wait(JOB, retry(), until=self.at + seconds))  # type: ignore[arg-type]
        assert self.at < 1000 + seconds + 1
        return len(self.sent)


@proves(
    "H17",
    at="src/weblake/waiting.py",
    line="if not head.empty and following is not None and following not in visited:",
    becomes="if not head.empty and following is not None:",
)
def test_h17_a_running_job_in_a_circle_is_polled_with_pauses() -> None:
    assert Linked([], following=lambda skip: (skip + 1) % 3).waited(600) < 100


@proves(
    "H17",
    at="src/weblake/waiting.py",
    line="if not head.empty and following is not None and following not in visited:",
    becomes="if following is not None:",
)
def test_h17_a_running_job_without_news_is_polled_with_pauses() -> None:
    assert Linked([], empty=True).waited(600) < 100


@proves("H17", at="src/weblake/waiting.py", line="if len(visited) % MAX_HOPS:", becomes="if True:")
def test_h17_a_running_job_whose_chunks_never_end_is_polled_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MAX_HOPS", 10)
    assert Linked([], following=lambda skip: skip + 1).waited(600) < 1000


@proves(
    "H17",
    at="src/weblake/pages.py",
    line="Patience(tries=8, cap_s=30.0, timeouts=MAX_TIMEOUTS, until=until)",
    becomes="Patience(tries=8, cap_s=30.0, timeouts=MAX_TIMEOUTS)",
)
def test_h17_a_chain_of_new_documents_ends_with_the_time_limit() -> None:
    line = Linked([], following=lambda skip: skip + 1, word="completed")
    walk = Walk(JOB, retry(), until=line.at + 10)

    def read() -> None:
        for _ in range(3000):
            line.run(walk.step())  # type: ignore[arg-type]
            walk.fresh(1)

    with pytest.raises(DeadlineExceeded):
        read()
    assert len(line.sent) <= 1001


@proves(
    "5.5",
    at="src/weblake/pages.py",
    line="Patience(tries=8, cap_s=30.0, timeouts=MAX_TIMEOUTS, until=until)",
    becomes="Patience(tries=8, cap_s=30.0, until=until)",
)
def test_a_chunk_that_drips_for_ever_is_given_up_after_minutes() -> None:
    """Each try ends with its own deadline of two minutes: three of them, and the pauses between."""

    class Dripping(Line):
        def send(self, request: Request) -> NoReply:
            self.sent.append(request)
            self.at += request.deadline_s
            return NoReply("no answer in time")

    line = Dripping([])
    walk = Walk(JOB, retry(), until=line.at + 24 * 3600)
    begun = line.at
    with pytest.raises(ServiceUnreachable, match="was given up"):
        line.run(walk.step())  # type: ignore[arg-type]
    assert len(line.sent) == 3
    assert line.at - begun < 8 * 60
