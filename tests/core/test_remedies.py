"""Tests of the remedies: every template in terms of Python and the command line, and errors with a remedy."""

from __future__ import annotations

import copy
import importlib.metadata
import pickle
from dataclasses import asdict, fields
from email.message import Message

import pytest
from remedy_templates import TEMPLATES, Template, names_command_line_term, templates_in, texts, texts_in

from weblake import errors
from weblake.cli.remedies import COMMAND_LINE, in_command_line_terms
from weblake.credentials import ApiKey, redact_error
from weblake.errors import (
    PYTHON,
    Interface,
    JobEnded,
    LoadIncomplete,
    RateLimited,
    Remedy,
    RetryLater,
    WeblakeError,
    in_terms_of,
)

#: Names of all terms.
TERMS = frozenset(each.name for each in fields(Interface)) - {"name"}
KEPT = Remedy("{allow_partial} publishes what there is; {another_job} starts another job.")
IN_PYTHON = "allow_partial=True publishes what there is; new=True starts another job."
TYPED = "--allow-partial publishes what there is; --new starts another job."


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.place)
def test_a_template_is_a_literal_whose_fields_are_known(template: Template) -> None:
    assert template.text is not None
    assert template.values is not None
    assert TERMS.isdisjoint(template.values)
    assert template.fields <= TERMS | set(template.values)
    assert set(template.values) <= template.fields


def test_every_term_is_used_by_a_template() -> None:
    assert {name for template in TEMPLATES for name in template.fields} >= TERMS


def test_no_message_of_the_core_names_the_command_line() -> None:
    assert [(place, text) for place, text in texts() if names_command_line_term(text)] == []


def test_templates_are_found_in_source_code() -> None:
    source = 'first = E(f"a {b} --new", hint=Remedy("{x} {size}", {"size": 1}))\nsecond = Remedy(text, {**more})'
    assert {*templates_in(source, "m")} == {Template("m:1", "{x} {size}", ("size",)), Template("m:2", None, None)}
    assert "a … --new" in [*texts_in(source)]
    assert all(map(names_command_line_term, ("a --new b", "`weblake land` it", "Set WEBLAKE_API_KEY.")))
    assert not any(map(names_command_line_term, ("WEBLAKE_API_KEY", "`weblake serve` printed", "a -- b")))


def test_values_are_inserted_unchanged() -> None:
    remedy = Remedy("Give {max_credits} {credits}, or use {another_root}.", {"credits": 64})
    assert remedy.text_for(PYTHON) == "Give max_credits 64, or use another root."
    assert remedy.text_for(COMMAND_LINE) == "Give --max-credits 64, or use another root."
    assert Remedy("{what}", {"what": "{land} {what} \\1"}).text_for(PYTHON) == "{land} {what} \\1"
    assert Remedy.of_text("jobs/{kind}/{land}").text_for(COMMAND_LINE) == "jobs/{kind}/{land}"


def test_an_unknown_field_does_not_hide_the_error() -> None:
    assert Remedy("{nothing} {land}").text_for(PYTHON) == "{nothing} weblake.land"


@pytest.mark.parametrize("change", [{"land": None}, {"unknown": "x"}])
def test_an_interface_defines_exactly_the_terms_in_use(change: dict[str, str | None]) -> None:
    words = {name: text for name, text in (asdict(PYTHON) | change).items() if text is not None}
    with pytest.raises(TypeError):
        Interface(**words)


def test_an_error_uses_python_terms_until_an_interface_is_set() -> None:
    error = LoadIncomplete("3 of 4 pages arrived.", hint=KEPT)
    assert (error.remedy, error.interface, error.hint) == (KEPT, PYTHON, IN_PYTHON)
    assert str(error) == f"3 of 4 pages arrived. {IN_PYTHON} See errors#load-incomplete in the documentation."
    error.interface = COMMAND_LINE
    assert f"It ends: {error}" == f"It ends: 3 of 4 pages arrived. {TYPED}"  # the other message has its own section
    assert error.to_dict() == {"type": "LoadIncomplete", "message": "3 of 4 pages arrived.", "hint": TYPED}


@pytest.mark.parametrize(
    ("url", "section"),
    [
        ("https://a.example/b/blob/v1/docs/site/index.md", "https://a.example/b/blob/v1/docs/site/reference/errors.md"),
        ("https://docs.a.example/", "https://docs.a.example/reference/errors/"),
    ],
)
def test_a_message_ends_with_the_address_of_its_class_if_the_distribution_has_one(
    url: str, section: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OfAnIntegrationError(RateLimited):
        """A class without a section of its own."""

    links = Message()
    links["Project-URL"] = "Homepage, https://a.example/"
    links["Project-URL"] = f"Documentation, {url}"
    monkeypatch.setattr(importlib.metadata, "metadata", lambda _: links)
    errors._section.cache_clear()
    assert str(OfAnIntegrationError("Too many.")) == f"Too many. See {section}#rate-limited"
    errors._section.cache_clear()


def test_a_remedy_may_follow_another_one() -> None:
    both = Remedy("{run_again}: {why}.", {"why": "a"}).followed_by(Remedy("Or {start_afresh}: {else}.", {"else": "b"}))
    assert both.text_for(COMMAND_LINE) == "Run the same command again: a. Or start afresh with --new: b."
    assert KEPT.followed_by(Remedy("")) == Remedy("").followed_by(KEPT) == KEPT


def test_a_plain_hint_is_the_same_in_every_interface() -> None:
    error = WeblakeError("It is over.", hint="Write {land}.")
    error.interface = COMMAND_LINE
    assert error.hint == "Write {land}."
    error.hint = "Otherwise."
    assert str(error) == "It is over. Otherwise."
    assert str(WeblakeError("It is over.")) == "It is over."


def test_an_interface_is_set_on_errors_that_pass_and_on_their_causes() -> None:
    cause = RateLimited("Too many.", hint=Remedy("Check {api_key}."))
    error = JobEnded("Failed.", hint=KEPT, job_status="cancelled")
    error.__cause__ = OSError()
    error.__cause__.__cause__ = cause
    with pytest.raises(JobEnded) as caught, in_command_line_terms():
        raise error
    assert caught.value is error
    assert (error.hint, error.job_status, cause.hint) == (TYPED, "cancelled", "Check WEBLAKE_API_KEY.")
    with pytest.raises(ZeroDivisionError), in_terms_of(COMMAND_LINE):
        _ = 1 / 0


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_a_copy_of_an_error_has_its_remedy_and_interface(copied: object) -> None:
    assert callable(copied)
    error = RetryLater("Busy.", hint=KEPT, status=503, retry_after=2.0)
    error.interface = COMMAND_LINE
    other = copied(error)
    assert type(other) is RetryLater
    assert vars(other) == vars(error)
    assert str(other) == str(error)


def test_the_key_is_hidden_in_values_and_plain_hints_and_the_terms_stay() -> None:
    key = ApiKey("test-key-12345678")
    error = WeblakeError("m", hint=Remedy("{allow_partial}: {said}", {"said": "test-key-12345678!"}))
    error.__cause__ = cause = WeblakeError("c test-key-12345678", hint="plain test-key-12345678")
    redact_error(error, key.redact)
    assert error.hint == "allow_partial=True: ***!"
    error.interface = COMMAND_LINE
    assert error.hint == "--allow-partial: ***!"
    assert (str(cause), cause.args) == ("c *** plain ***", ("c ***",))
    assert "12345678" not in repr([vars(error), vars(cause)])


def test_a_text_of_the_service_and_the_remedy_are_two_sentences() -> None:
    assert str(WeblakeError("Refused. The service says: Invalid token", hint="Check the key.")) == (
        "Refused. The service says: Invalid token. Check the key."
    )
    assert str(WeblakeError("Is it `a`?", hint="Write it.")) == "Is it `a`? Write it."
    assert str(WeblakeError("Invalid token")) == "Invalid token"
