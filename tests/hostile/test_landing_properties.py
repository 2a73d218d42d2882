"""Random documents, chunks and faults on a virtual clock: each document lands once, or an error and nothing visible."""

from __future__ import annotations

import tempfile
from pathlib import Path

from catalogue import proves
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from landing_commands import published
from scripted_job import JOB, url_of
from simulated_jobs import Made, check_dataset_of, random_cases
from simulated_service import SimulatedClient, SimulatedService
from tiers import examples

from weblake.dataset.root import open_dataset
from weblake.errors import LoadIncomplete, WeblakeError
from weblake.loads import load, load_request
from weblake.loads.load_request import LoadRequest, Naming, Terms
from weblake.receipt import Receipt


def land_until_done(
    world: SimulatedService, root: Path, request: LoadRequest, terms: Terms
) -> tuple[Receipt | None, WeblakeError | None]:
    """Land until the faults are used up, as a scheduler would, and assert that no partial load is visible."""
    dataset = open_dataset(root)
    error: WeblakeError | None = None
    for _ in range(40):
        before, begun = len(world.jobs), world.clock.passed
        try:
            with world.clock.installed():
                return load.land(SimulatedClient(world), dataset, request, terms).receipt, None
        except LoadIncomplete as incomplete:
            return None, incomplete
        except WeblakeError as given_up:
            error = given_up
            assert published(root) == []
        finally:
            starts = len(world.jobs) - before + 1
            assert world.clock.passed - begun <= terms.timeout_s + (80 * starts if request.start is not None else 0.1)
    raise AssertionError(f"it never ended: {error}")


QUIET = settings(max_examples=examples(60, one_in=4), suppress_health_check=[HealthCheck.too_slow])


@proves(
    "2.2",
    at="src/weblake/loads/staging.py",
    line="if self._reconciler.document(parsed.scrape_id, parsed.source_url, parsed.url, content):",
    becomes="if self._reconciler.document(parsed.scrape_id, parsed.source_url, parsed.url, content) or True:",
)
@QUIET
@given(random_cases(), st.sampled_from([4.0, 60.0, 3600.0]))
def test_a_job_started_elsewhere_with_random_faults_lands_whole_or_not_at_all(made: Made, timeout_s: float) -> None:
    world, content = made
    world.add("batch_scrape", url_of(0), content, JOB)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory, "lake")
        check_dataset_of(
            root,
            content,
            *land_until_done(world, root, load_request.existing_job("batch", JOB), Terms(timeout_s=timeout_s)),
        )


@proves(
    "2.2",
    at="src/weblake/loads/completeness.py",
    line="if account.missing > terms.missing_ratio * account.submitted:",
    becomes="if False:",
)
@QUIET
@given(random_cases())
def test_a_batch_with_random_faults_is_paid_once(made: Made) -> None:
    world, content = made
    count = len(content.documents) + len(content.failed) + content.lost
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory, "lake")
        request = load_request.batch([url_of(n) for n in range(count)], Naming())
        check_dataset_of(root, content, *land_until_done(world, root, request, Terms(timeout_s=3600)))
        assert len(world.jobs) == 1
