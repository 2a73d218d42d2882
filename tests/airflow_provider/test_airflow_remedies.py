"""Tests of the core's remedies in Airflow's terms."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from remedy_templates import TEMPLATES, Template, names_command_line_term

from airflow_provider_weblake.remedies import AIRFLOW, in_airflow_terms
from weblake.errors import LoadIncomplete, WeblakeError


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.place)
def test_remedies_name_operator_parameters_and_the_connection(template: Template) -> None:
    assert not names_command_line_term(str(template.text).format(**_terms_and_values(template)))


def _terms_and_values(template: Template) -> dict[str, str]:
    return {**asdict(AIRFLOW), **dict.fromkeys(template.values or (), "a value")}


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{run_again} when the service is up: it will", "Clear the task when the service is up: it will"),
        (
            "land it with {land}; otherwise {start_afresh}.",
            "WeblakeLandOperator; otherwise trigger a new DAG run.",
        ),
        ("{another_job} starts one.", "clearing the task starts one."),
        ("Raise {max_credits}, or ask for fewer pages.", "Raise max_credits, or ask for fewer pages."),
        ("Check {base_url} and that the service is up.", "Check the connection's host and that the service is up."),
        ("Check {api_key}.", "Check the connection's password."),
        ("or allow it with {insecure}.", 'or allow it with "insecure": true in the connection\'s extra.'),
        ("Look for the job {in_activity} before", "Look for the job with WeblakeActivityOperator before"),
        ("{cut_again}, or put", "Clear the task that cut it together with this one, or put"),
    ],
)
def test_the_terms_of_the_airflow_interface(template: str, words: str) -> None:
    found = [each for each in TEMPLATES if template in str(each.text)]
    assert found
    assert words in str(found[0].text).format(**_terms_and_values(found[0]))


def test_errors_raised_in_airflow_use_its_terms() -> None:
    from weblake.loads.load_request import check_cost

    with (
        pytest.raises(WeblakeError, match="Raise max_credits, or ask") as caught,
        in_airflow_terms(),
    ):
        check_cost(2, 1.0, 1.0)
    assert caught.value.interface is AIRFLOW
    assert LoadIncomplete("x").interface is not AIRFLOW
