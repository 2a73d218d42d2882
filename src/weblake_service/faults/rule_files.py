"""Parses fault rules from JSON and from TOML or JSON files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from weblake.errors import InvalidOption
from weblake_service.faults.rules import Effect, Match, Rule, quote_names

#: Alternative names of effects, as used by other emulators.
ALIASES = {"drop": "drop_before", "malformed_json": "garbage"}
#: Read-only fields of a listed rule, which are accepted and ignored on input.
_READ_ONLY_FIELDS = ("id", "seen", "hit")


def read_rules(value: object) -> list[Rule]:
    """Return rules from decoded JSON: a list, or an object with the list under `rules`.

    Raises:
        ValueError: A rule is invalid; the message says which and why.
    """
    if isinstance(value, Mapping):
        value = value.get("rules")
    if not isinstance(value, list):
        raise ValueError("a list of rules was expected, or an object with the list under `rules`")
    return [read_rule(one, f"rule {number}: ") for number, one in enumerate(value, 1)]


def read_rule(value: object, begin: str = "") -> Rule:
    """Return one rule from decoded JSON; `begin` is the beginning of error messages.

    Raises:
        ValueError: The rule is invalid.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"{begin}a rule is an object, and this is {type(value).__name__}")
    given = {key: part for key, part in value.items() if key not in _READ_ONLY_FIELDS}
    effect = given.get("effect")
    if isinstance(effect, Mapping):
        given["effect"] = {ALIASES.get(key, key): part for key, part in effect.items()}
    try:
        rule = msgspec.convert(given, Rule)
        rule.check()
    except ValueError as error:
        raise ValueError(f"{begin}{error}{_known_names(str(error))}") from None
    return rule


def read_file(path: str | Path) -> list[Rule]:
    """Return the rules in a TOML file (tables `[[rules]]`) or a JSON file (a list, or an object with `rules`).

    Raises:
        InvalidOption: The file cannot be read, or a rule in it is invalid.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        decode = msgspec.toml.decode if path.suffix.lower() == ".toml" else msgspec.json.decode
        value = decode(text)
        return read_rules(value)
    except OSError as error:
        raise InvalidOption(
            f"The fault rules in {path} cannot be read: {error.strerror}.", hint="Name a TOML or JSON file."
        ) from None
    except (ValueError, RecursionError) as error:
        raise InvalidOption(
            f"The fault rules in {path} cannot be used: {error}.", hint="`pydoc weblake.testing.faults` has examples."
        ) from None


def _known_names(error: str) -> str:
    """Return the valid names, for an error about an unknown one."""
    if "unknown field" not in error:
        return ""
    of = Effect if "effect" in error else Match if "match" in error else Rule
    return f"; known are {quote_names(field.name for field in msgspec.structs.fields(of))}"
