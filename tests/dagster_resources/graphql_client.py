"""GraphQL requests to a running Dagster, and waits for their results."""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import httpx

T = TypeVar("T")

#: How often a waiting method looks, in seconds.
POLL = 0.2

#: The fields of an error that `said` reads.
ERROR = "message stack causes { message stack }"


class GraphqlClient(abc.ABC):
    """Requests to an instance that has one code location."""

    url: str

    def __init__(self) -> None:
        # A proxy of the environment has no part in what happens on loopback.
        self._http = httpx.Client(timeout=240, trust_env=False)

    @abc.abstractmethod
    def dead(self) -> Mapping[str, str]:
        """Processes that ended by themselves: name -> how."""

    @abc.abstractmethod
    def tails(self) -> str:
        """The ends of the logs of the instance's processes."""

    # Asking

    def until(self, what: str, done: Callable[[], T], timeout: float = 240, why: Callable[[], str] | None = None) -> T:
        """Waits for the first true value and returns it; AssertionError when it is late, or when Dagster died."""
        deadline = time.monotonic() + timeout
        while not (value := done()):
            if dead := self.dead():
                raise AssertionError(f"waiting for {what}, but: " + "\n".join(f"{k} {v}" for k, v in dead.items()))
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}: not within {timeout:g} s\n{(why or self.tails)()}".rstrip())
            time.sleep(POLL)
        return value

    def graphql(self, query: str, variables: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The data of one request; AssertionError says what was refused."""
        try:
            reply = self._http.post(f"{self.url}/graphql", json={"query": query, "variables": dict(variables or {})})
        except httpx.HTTPError as error:
            raise AssertionError(f"no answer from {self.url}: {error!r}\n{self.dead() or self.tails()}") from error
        is_json = "json" in reply.headers.get("content-type", "")
        answer: dict[str, Any] = reply.json() if is_json else {"errors": reply.text[:2000]}
        assert not answer.get("errors"), f"GraphQL {reply.status_code}: {answer['errors']}\n{query}"
        data: dict[str, Any] = answer["data"]
        return data

    def ask(self, field: str, wanted: str, /, **variables: tuple[str, Any]) -> dict[str, Any]:
        """One field of the root and its answer; an answer that is no `wanted` fails with what Dagster said.

        :param field: the field with its arguments and selection, as `runOrError(runId: $run) { … on Run { status } }`;
            a mutation starts with the word `mutation`.
        :param variables: name -> (GraphQL type, value).
        """
        kind, _, body = field.partition(" ") if field.startswith("mutation ") else ("query", "", field)
        opening = body.index("{") + 1
        errors = f"__typename ... on Error {{ message ... on PythonError {{ {ERROR} }} }}"
        declared = ", ".join(f"${name}: {kind}" for name, (kind, _) in variables.items())
        head = f"{kind}({declared})" if declared else kind
        query = f"{head} {{ {body[:opening]} {errors} {body[opening:]} }}"
        (answer,) = self.graphql(query, {name: value for name, (_, value) in variables.items()}).values()
        assert answer["__typename"] == wanted, f"{body.split('(')[0]}: {said(answer)}"
        found: dict[str, Any] = answer
        return found

    # The code location

    def location(self) -> dict[str, str]:
        """The selector of the only code location; AssertionError with its traceback if it does not load."""
        entries = self.ask(
            f"""workspaceOrError {{ ... on Workspace {{ locationEntries {{ name locationOrLoadError {{
                __typename ... on RepositoryLocation {{ repositories {{ name }} }} ... on PythonError {{ {ERROR} }}
            }} }} }} }}""",
            "Workspace",
        )["locationEntries"]
        assert len(entries) == 1, f"a lab has one code location, found: {[entry['name'] for entry in entries]}"
        loaded = entries[0]["locationOrLoadError"]
        assert loaded is not None, "the code is not loaded yet"
        assert loaded["__typename"] == "RepositoryLocation", f"the code does not load: {said(loaded)}"
        return {"repositoryLocationName": entries[0]["name"], "repositoryName": loaded["repositories"][0]["name"]}

    def reload(self) -> None:
        """Loads the definitions anew, as the button does."""
        field = (
            "mutation reloadRepositoryLocation(repositoryLocationName: $name) { ... on WorkspaceLocationEntry { id } }"
        )
        self.ask(field, "WorkspaceLocationEntry", name=("String!", self.location()["repositoryLocationName"]))
        self.location()


def said(answer: Mapping[str, Any]) -> str:
    """Return the text of an error response, with the tracebacks of the error and its causes."""
    lines = [answer.get("__typename", "")]
    for error in (answer, *answer.get("causes", ())):
        lines += [error.get("message", ""), *error.get("stack", ())]
    lines += [error["message"] for error in answer.get("errors", ())]
    return "\n".join(line.rstrip() for line in lines if line)
