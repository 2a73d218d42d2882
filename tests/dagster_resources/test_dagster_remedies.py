"""Tests of the core's remedies in Dagster's terms."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from remedy_templates import TEMPLATES, Template, names_command_line_term

from dagster_weblake.remedies import DAGSTER, in_dagster_terms
from weblake.errors import LoadIncomplete, WeblakeError
from weblake.orchestration import Interface


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.place)
def test_remedies_name_assets_and_the_resource(template: Template) -> None:
    assert not names_command_line_term(str(template.text).format(**_terms_and_values(template)))


def _terms_and_values(template: Template) -> dict[str, str]:
    return {**asdict(DAGSTER), **dict.fromkeys(template.values or (), "a value")}


def test_the_interface_has_every_term() -> None:
    assert isinstance(DAGSTER, Interface)
    assert all(asdict(DAGSTER).values())


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{run_again} when the service is up: it", "Re-execute the run from failure when the service is up: it"),
        (
            "land it with {land}; otherwise {start_afresh}.",
            "an asset of a JobRequest; otherwise materialize the",
        ),
        ("has of the job by its id, with {land}.", "of the job by its id, with an asset of a JobRequest."),
        ("{another_job} starts one.", "a new run starts one."),
        ("Raise {max_credits}, or ask for fewer pages.", "Raise max_credits, or ask for fewer pages."),
        ("Check {base_url} and that the service is up.", "Check the resource's base_url and that the service is up."),
        ("Check {api_key}.", "Check the resource's api_key."),
        ("or allow it with {insecure}.", "or allow it with WeblakeResource(insecure=True)."),
        ("Look for the job {in_activity} before", "Look for the job with an asset of an ActivityRequest before"),
    ],
)
def test_the_terms_of_the_dagster_interface(template: str, words: str) -> None:
    found = [each for each in TEMPLATES if template in str(each.text)]
    assert found
    assert words in str(found[0].text).format(**_terms_and_values(found[0]))


def test_errors_raised_in_dagster_use_its_terms() -> None:
    from weblake.loads.load_request import check_cost

    with (
        pytest.raises(WeblakeError, match="Raise max_credits, or ask") as caught,
        in_dagster_terms(),
    ):
        check_cost(2, 1.0, 1.0)
    assert caught.value.interface is DAGSTER
    assert LoadIncomplete("x").interface is not DAGSTER
