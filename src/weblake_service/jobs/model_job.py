"""Input and result of a job that a language model runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from sqlite3 import Connection
from typing import Any

from weblake_service.jobs.web_tools import WebTools
from weblake_service.llm.interface import Model

#: Records a step at a place: its body, its credits, and the cache and search entries that are stored with it.
Record = Callable[[int, dict[str, object], int, Callable[[Connection, float], None] | None], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ModelJob:
    """One job with its recorded steps."""

    id: str
    model: Model
    gathering: WebTools
    #: The job's own options and its scrape options, by snake_case name.
    plan: Mapping[str, Any]
    options: Mapping[str, Any]
    #: The steps that an earlier run recorded, by place.
    steps: dict[int, dict[str, Any]]
    record: Record


@dataclass(frozen=True, slots=True)
class ModelJobResult:
    """The result of a successful job."""

    #: `data`, and the additional fields of the status.
    shown: dict[str, object]
    #: Credits in addition to those of the steps.
    credits: int
