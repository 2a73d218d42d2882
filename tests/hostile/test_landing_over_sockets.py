"""Random documents, chunks and faults over real sockets: each document lands once, or an error and nothing visible.

A few cases by default, hundreds under `nightly`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from catalogue import proves
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from landing_commands import KEY, published
from scripted_job import JOB, url_of
from simulated_jobs import Made, check_dataset_of, random_cases
from simulated_service_sockets import WIRE_FAULTS, SimulatedServiceOverSockets
from tiers import examples

from weblake import Client, Terms
from weblake.dataset.root import open_dataset
from weblake.errors import LoadIncomplete, WeblakeError
from weblake.loads import load, load_request
from weblake.loads.load_request import LoadRequest, Naming

QUIET = settings(max_examples=examples(100, one_in=20), print_blob=True, suppress_health_check=list(HealthCheck))
CASES = random_cases(WIRE_FAULTS, 8)


def landed(service: SimulatedServiceOverSockets, made: Made, request: LoadRequest) -> None:
    """Land until the faults are used up, and check the dataset."""
    world, content = made
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory, "lake")
        error: WeblakeError | None = None
        for _ in range(60):
            try:
                with Client(service.url, KEY) as client:
                    receipt = load.land(client, open_dataset(root), request, Terms(timeout_s=20)).receipt
                check_dataset_of(root, content, receipt, None)
                return
            except WeblakeError as given_up:
                error = given_up
            assert published(root) == []
            if isinstance(error, LoadIncomplete):
                check_dataset_of(root, content, None, error)
                return
        raise AssertionError(f"it never ended: {error}; {len(world.tape)} faults are left")


def case(made: Made, existing_job: bool, replay: bool) -> None:
    world, content = made
    note(f"the tape: {world.tape}")
    world.replay = replay
    service = SimulatedServiceOverSockets(world)
    try:
        if existing_job:
            world.add("batch_scrape", url_of(0), content, JOB)
            landed(service, made, load_request.existing_job("batch", JOB))
        else:
            count = len(content.documents) + len(content.failed) + content.lost
            landed(service, made, load_request.batch([url_of(n) for n in range(count)], Naming()))
        assert len(world.jobs) == 1, "the job was started twice"
    finally:
        service.stop()


@proves(
    "2.2",
    at="src/weblake/jobs/retry.py",
    line="return not reply.final and (operation.repeatable or not reply.sent)",
    becomes="return not reply.final",
)
@QUIET
@given(CASES, st.booleans(), st.booleans())
def test_random_documents_and_faults_over_sockets(made: Made, existing_job: bool, replay: bool) -> None:
    case(made, existing_job, replay)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@settings(QUIET, max_examples=400)
@given(CASES, st.booleans(), st.booleans())
def test_random_documents_and_faults_over_sockets_hundreds_of_times(
    made: Made, existing_job: bool, replay: bool
) -> None:
    case(made, existing_job, replay)
