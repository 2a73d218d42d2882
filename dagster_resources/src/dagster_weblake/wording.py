"""The core's hints in the words of a Dagster project."""

from __future__ import annotations

from weblake import orchestration

in_words_of_dagster = orchestration.Words(
    {
        "Run the same command again": "Re-execute the run from failure",
        "start afresh with --new": "materialize the asset in a new run",
        "`weblake land` it": "land it with an asset of a JobRequest",
        "`weblake land`": "an asset of a JobRequest",
        "in `weblake activity`": "with an asset of an ActivityRequest",
        "--new starts another job": "a new run starts another job",
        "--new starts another one": "a new run starts another one",
        "--new tries again": "a new run tries again",
        "Land this job with another --key.": "Land this job into another root.",
        "with --insecure (WEBLAKE_INSECURE=1)": "with WeblakeResource(insecure=True)",
        "from WEBLAKE_BASE_URL": "as the resource's base_url",
        "WEBLAKE_BASE_URL": "the resource's base_url",
        "WEBLAKE_API_KEY": "the resource's api_key",
        "--new": "a new run",
    }
)
speaking = in_words_of_dagster.speaking
