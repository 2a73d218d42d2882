"""Dagster's terms for the core's remedies."""

from __future__ import annotations

from functools import partial

from weblake.errors import in_terms_of
from weblake.orchestration import Interface

DAGSTER = Interface(
    name="Dagster",
    run_again="Re-execute the run from failure",
    start_afresh="materialize the asset in a new run",
    another_job="a new run",
    cut_again="Cut it again with url_shards",
    timeout="deadline",
    base_url="the resource's base_url",
    api_key="the resource's api_key",
    insecure="WeblakeResource(insecure=True)",
    ca_bundle="the file that the resource's ca_bundle names",
    land="an asset of a JobRequest",
    in_activity="with an asset of an ActivityRequest",
)

#: A context manager in which errors of the core are worded for Dagster.
in_dagster_terms = partial(in_terms_of, DAGSTER)
