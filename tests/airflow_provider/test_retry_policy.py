"""Tests of the retry policy on errors from real responses: which are retried, and after how long."""

from __future__ import annotations

import inspect
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import DAG, RetryAction, RetryDecision
from airflow.sdk.exceptions import AirflowException
from airflow.serialization.serialized_objects import DagSerialization
from catalogue import proves

import weblake
from airflow_provider_weblake.operators.weblake import WeblakeBatchScrapeOperator
from airflow_provider_weblake.retry_policy import FIRST_S, MAX_BACKOFF_S, TableSyncRetryPolicy, WeblakeRetryPolicy
from airflow_provider_weblake.sensors.weblake import WeblakeCrawlSensor
from weblake import errors, orchestration
from weblake.errors import WeblakeError
from weblake.jobs.retry import SPREAD
from weblake.testing import WeblakeService


def decide(error: BaseException, try_number: int = 1) -> RetryDecision:
    return WeblakeRetryPolicy().evaluate(error, try_number, 5)


def seconds(decision: RetryDecision) -> float:
    assert decision.action is RetryAction.RETRY
    assert decision.retry_delay is not None
    return decision.retry_delay.total_seconds()


def caused_by(service: WeblakeService, effect: dict[str, object]) -> WeblakeError:
    """The error that the client raises for such an answer, at its first try."""
    service.faults({"match": {}, "times": None, "effect": effect})
    once = orchestration.RetryPolicy(tries=1)
    with weblake.Client(service.url, service.key, retry_policy=once) as client, pytest.raises(WeblakeError) as caught:
        client.credit_usage()
    return caught.value


@proves(
    "3.4",
    at="airflow_provider/src/airflow_provider_weblake/retry_policy.py",
    line='return RetryDecision(RetryAction.FAIL, reason=f"{_name(error)}: a retry would end the same way")',
    becomes="return RetryDecision(RetryAction.DEFAULT)",
    case="402",
)
@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 409, 410, 422])
def test_a_refusal_ends_the_retries_and_the_reason_has_its_number(weblake_service: WeblakeService, status: int) -> None:
    decision = decide(caused_by(weblake_service, {"status": status}))
    assert decision.action is RetryAction.FAIL
    assert f"({status})" in str(decision.reason)
    assert "Injected" not in str(decision.reason), "the reason is stored, and says nothing of the service's"


@proves(
    "O7",
    at="src/weblake/jobs/retry.py",
    line="spread = 1 + SPREAD * random.random()",
    becomes="spread = 1",
    case="effect0",
)
@pytest.mark.parametrize("effect", [{"status": 429, "retry_after": 77}, {"status": 429, "body": "retry after 77s"}])
def test_o7_a_rate_limit_is_waited_for_as_long_as_the_service_says(
    weblake_service: WeblakeService, effect: dict[str, object]
) -> None:
    error = caused_by(weblake_service, {**effect, "body": {"success": False, "error": effect.get("body", "Slow.")}})
    assert isinstance(error, errors.RateLimited)
    pauses = {seconds(decide(error, try_number=4)) for _ in range(50)}
    assert 78 <= min(pauses) <= max(pauses) <= 77 * (1 + SPREAD) + 1
    assert len(pauses) > 25, "tasks that were told the same time must not come back together"


@proves(
    "O7",
    at="airflow_provider/src/airflow_provider_weblake/retry_policy.py",
    line="return max(named, backoff * (0.5 + 0.5 * random.random()))",
    becomes="return max(named, backoff)",
    case="effect1",
)
@pytest.mark.parametrize(
    "effect", [{"status": 429}, {"status": 500}, {"status": 503}, {"status": 408}, {"drop_before": True}]
)
def test_o7_failures_are_retried_with_growing_bounded_pauses(
    weblake_service: WeblakeService, effect: dict[str, object]
) -> None:
    error = caused_by(weblake_service, effect)
    for try_number, most in [
        (1, FIRST_S),
        (2, 2 * FIRST_S),
        (4, 8 * FIRST_S),
        (30, MAX_BACKOFF_S),
        (10_000, MAX_BACKOFF_S),
    ]:
        pauses = {seconds(decide(error, try_number)) for _ in range(50)}
        assert min(pauses) >= most / 2
        assert max(pauses) <= most
        assert len(pauses) > 25, "tasks that failed together must not come back together"


@pytest.mark.parametrize(
    ("settings", "try_number", "least", "most"),
    [
        ({"retry_delay": timedelta(minutes=10)}, 1, 600, 600),
        ({"retry_delay": 600}, 2, 600, 600),
        ({}, 1, 300, 300),
        ({"retry_delay": timedelta(seconds=1)}, 1, FIRST_S / 2, FIRST_S),
        ({"retry_delay": timedelta(minutes=10), "max_retry_delay": timedelta(minutes=1)}, 3, 600, 600),
        ({"retry_delay": timedelta(seconds=0), "max_retry_delay": timedelta(seconds=3)}, 9, 1.5, 3),
        ({"retry_delay": timedelta(minutes=1), "retry_exponential_backoff": True}, 5, 960, 1920),
        ({"retry_delay": timedelta(minutes=1), "retry_exponential_backoff": 3.0}, 4, 27 * 60, 54 * 60),
        (
            {"retry_delay": 60, "retry_exponential_backoff": 3.0, "max_retry_delay": timedelta(minutes=20)},
            4,
            1200,
            1200,
        ),
        ({"retry_delay": 60, "retry_exponential_backoff": True}, 10_000, 86_400, 86_400),
    ],
)
def test_no_retry_is_sooner_than_the_task_allows(
    settings: dict[str, Any], try_number: int, least: float, most: float
) -> None:
    task = WeblakeBatchScrapeOperator(task_id="land", urls=["https://example.com"], to="/data/lake", **settings)
    context: Any = {"task": task}
    for policy in (WeblakeRetryPolicy(), TableSyncRetryPolicy()):
        for error in (errors.ServiceUnreachable("It is down."), errors.RateLimited("Slow.", status=429)):
            decisions = [policy.evaluate(error, try_number, 5, context) for _ in range(20)]
            assert all(least <= seconds(decision) <= most for decision in decisions)
    named = errors.RateLimited("Slow.", status=429, retry_after=3)
    assert seconds(WeblakeRetryPolicy().evaluate(named, try_number, 5, context)) >= (least if least > FIRST_S else 3)


def test_a_failed_job_is_left_to_the_settings_of_the_task() -> None:
    assert decide(errors.JobEnded("It failed.", job_status="failed")).action is RetryAction.DEFAULT
    assert decide(errors.JobEnded("Cancelled.", job_status="cancelled")).action is RetryAction.DEFAULT


def test_other_errors_are_left_to_the_settings_of_the_task() -> None:
    for error in (ValueError("x"), AirflowException("y"), KeyboardInterrupt()):
        assert decide(error).action is RetryAction.DEFAULT


def test_every_error_has_a_decision() -> None:
    """None is left to chance: a class that is added later must be thought of."""
    found = {name: decide(kind("It failed.")).action for name, kind in vars(errors).items() if is_error(kind)}
    again = {name for name, action in found.items() if action is RetryAction.RETRY}
    left = {name for name, action in found.items() if action is RetryAction.DEFAULT}
    assert again == {"RetryLater", "RateLimited", "ServiceUnavailable", "ServiceUnreachable"}
    assert left == {"JobEnded"}
    assert {"OutcomeUnknown", "StorageRefused", "LoadIncomplete", "DeadlineExceeded", "JobGone"} <= set(found)


def is_error(kind: object) -> bool:
    return inspect.isclass(kind) and issubclass(kind, WeblakeError)


def test_the_cause_of_an_error_decides() -> None:
    def wrapped(inner: BaseException) -> AirflowException:
        outer = AirflowException("the task failed")
        outer.__cause__ = inner
        return outer

    assert decide(wrapped(errors.CreditsExhausted("No credits.", status=402))).action is RetryAction.FAIL
    assert decide(wrapped(wrapped(errors.ServiceUnreachable("It is down.")))).action is RetryAction.RETRY
    circle = wrapped(ValueError())
    assert circle.__cause__ is not None
    circle.__cause__.__cause__ = circle
    assert decide(circle).action is RetryAction.DEFAULT


def test_operators_and_sensors_serialise_with_the_retry_policy(tmp_path: object) -> None:
    with DAG("with_policy", schedule=None) as dag:
        WeblakeBatchScrapeOperator(task_id="mine", urls=["https://example.com"], to=str(tmp_path))
        WeblakeCrawlSensor(task_id="sensor", job_id="00000000-0000-4000-8000-000000000000")
        WeblakeBatchScrapeOperator(
            task_id="theirs", urls=["https://example.com"], to=str(tmp_path), retry_policy=PolicyOfADag()
        )
    assert isinstance(dag.get_task("mine").retry_policy, WeblakeRetryPolicy)
    assert isinstance(dag.get_task("sensor").retry_policy, WeblakeRetryPolicy)
    assert isinstance(dag.get_task("theirs").retry_policy, PolicyOfADag)
    seen = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert all(seen.get_task(name).has_retry_policy for name in ("mine", "sensor", "theirs"))
    again = WeblakeRetryPolicy.deserialize(WeblakeRetryPolicy().serialize())
    assert again.evaluate(errors.FixRequest("It is wrong."), 1, 1).action is RetryAction.FAIL


class PolicyOfADag(WeblakeRetryPolicy):
    """A DAG's own."""
