"""The keys file of `weblake serve --keys`: the API keys, and the limits of each team.

TOML, or JSON of the same shape:

    [[keys]]
    name = "etl"               # the name in the by-key reports
    key_env = "ETL_KEY"        # the variable that holds the key; or: key = "…"
    team = "data"              # keys of one team share jobs, credits and limits; by default "local"

    [teams.data]               # every line is optional: the default is the service's own limit
    credits = 100000
    requests_per_minute = 100
    reads_per_minute = 5000
    concurrency = 5
    max_queued_pages = 50000
    zero_data_retention = true
    webhook_secret_env = "DATA_WEBHOOK_SECRET"

Messages contain only names from the file, never other values.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn

import msgspec
from msgspec import Meta, Struct

from weblake.credentials import home
from weblake.errors import InvalidOption
from weblake_service.config import DEFAULT_TEAM, ServiceKey, TeamPlan, read_keys

_MAX_FILE_BYTES = 1 << 20
#: Maximum value of a limit, so that sums do not overflow SQLite's integers.
_MAX_LIMIT = 10**12

_Name = Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")]
_Limit = Annotated[int, Meta(ge=1, le=_MAX_LIMIT)]


@dataclass(frozen=True, slots=True)
class KeysFile:
    """The content of a keys file."""

    keys: list[ServiceKey]
    teams: Mapping[str, TeamPlan]
    #: A warning about the file for its owner; None if there is none.
    warning: str | None = None


class _Key(Struct, forbid_unknown_fields=True):
    name: _Name
    key: str | None = None
    key_env: str | None = None
    team: _Name = DEFAULT_TEAM


class _Team(Struct, forbid_unknown_fields=True):
    credits: Annotated[int, Meta(ge=0, le=_MAX_LIMIT)] | None = None
    requests_per_minute: _Limit | None = None
    reads_per_minute: _Limit | None = None
    concurrency: Annotated[int, Meta(ge=1, le=1000)] | None = None
    max_queued_pages: _Limit | None = None
    zero_data_retention: bool | None = None
    webhook_secret: str | None = None
    webhook_secret_env: str | None = None


_LIMITS = frozenset(field.name for field in msgspec.structs.fields(_Team) if "webhook" not in field.name)


class _File(Struct, forbid_unknown_fields=True):
    keys: Annotated[list[_Key], Meta(min_length=1, max_length=10_000)]
    teams: dict[_Name, _Team] = {}


def read_keys_file(path: str | Path, environment: Mapping[str, str] = os.environ) -> KeysFile:
    """Read a keys file; `*.json` is JSON, everything else TOML.

    Raises:
        InvalidOption: It cannot be read, is malformed, names a variable that is not set, has two equal keys, or is a
            file that other users of this machine may change.
    """
    text, warning = _read(home(path))
    file = _parse(text, path)
    keys = [
        ServiceKey(_secret(path, f"the key {one.name!r}", "key", one.key, one.key_env, environment), one.name, one.team)
        for one in file.keys
    ]
    for team in file.teams:
        if team not in {one.team for one in keys}:
            _refuse(path, f"the team {team!r} has limits and no key", "Give one of the keys this team.")
    teams = {name: _plan(path, name, one, environment) for name, one in file.teams.items()}
    literal = [one.key for one in file.keys] + [one.webhook_secret for one in file.teams.values()]
    return KeysFile(read_keys(keys), teams, warning if any(literal) else None)


def _read(path: Path) -> tuple[bytes, str | None]:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidOption(f"The keys file {path} cannot be read: {error.strerror}.") from None
    if len(text) > _MAX_FILE_BYTES:
        _refuse(path, f"it is larger than {_MAX_FILE_BYTES} bytes", "Name a file with keys.")
    if not stat.S_ISREG(mode):
        return text, None
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        _refuse(path, "other users of this machine may change it", f"chmod 600 {path}")
    if mode & (stat.S_IRGRP | stat.S_IROTH):
        return text, f"Other users of this machine can read the keys in {path}: chmod 600 {path}"
    return text, None


def _parse(text: bytes, path: str | Path) -> _File:
    try:
        if str(path).endswith(".json"):
            return msgspec.json.decode(text, type=_File)
        return msgspec.toml.decode(text, type=_File)
    except msgspec.ValidationError as error:
        _refuse(path, str(error), "`weblake serve --help` shows the form.")
    except (ValueError, RecursionError) as error:
        # The decoder's message may quote a key, so only the position is used.
        place = str(error).rpartition("(")[2].rstrip(")") if "(" in str(error) else type(error).__name__
        _refuse(path, f"it cannot be decoded ({place})", "Write TOML, or JSON in a file that ends in .json.")


def _plan(path: str | Path, name: str, team: _Team, environment: Mapping[str, str]) -> TeamPlan:
    secret = None
    if team.webhook_secret is not None or team.webhook_secret_env is not None:
        what = f"the webhook secret of the team {name!r}"
        secret = _secret(path, what, "webhook_secret", team.webhook_secret, team.webhook_secret_env, environment)
    limits = {name: value for name, value in msgspec.structs.asdict(team).items() if name in _LIMITS}
    return TeamPlan(**limits, webhook_secret=secret)


def _secret(
    path: str | Path, what: str, field: str, literal: str | None, variable: str | None, environment: Mapping[str, str]
) -> str:
    if (literal is None) == (variable is None):
        _refuse(path, f"{what} needs either `{field}` or `{field}_env`", "Write one of them.")
    value = literal if variable is None else environment.get(variable)
    if not value:
        empty = "is empty" if variable is None else f"is in the variable {variable}, which is not set"
        _refuse(path, f"{what} {empty}", "Set it.")
    return value


def _refuse(path: str | Path, what: str, hint: str) -> NoReturn:
    raise InvalidOption(f"The keys file {path} cannot be used: {what}.", hint=hint)
