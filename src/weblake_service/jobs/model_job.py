"""Input and result of a job that a language model runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from sqlite3 import Connection
from typing import Any

from weblake_service.jobs.web_tools import WebTools
from weblake_service.llm.interface import Model

#: Records a step at a place: its body, its credits, and what is kept with it.
Record = Callable[[int, dict[str, object], int, Callable[[Connection, float], None] | None], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ModelJob:
    """One job, from where it stands."""

    id: str
    model: Model
    gathering: WebTools
    #: Its own options, and its scrape options, by snake_case name.
    plan: Mapping[str, Any]
    options: Mapping[str, Any]
    #: What an earlier run recorded, by place.
    steps: dict[int, dict[str, Any]]
    record: Record


@dataclass(frozen=True, slots=True)
class ModelJobResult:
    """How a job ends well."""

    #: `data`, and what else the status shows.
    shown: dict[str, object]
    #: Credits on top of the steps'.
    credits: int
