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


def test_errors_raised_in_airflow_use_its_terms() -> None:
    from weblake.loads.load_request import check_cost

    with (
        pytest.raises(WeblakeError, match="Raise max_credits, or ask") as caught,
        in_airflow_terms(),
    ):
        check_cost(2, 1.0, 1.0)
    assert caught.value.interface is AIRFLOW
    assert LoadIncomplete("x").interface is not AIRFLOW
