"""The core's hints in the words of a DAG."""

from __future__ import annotations

from weblake import orchestration

in_words_of_a_dag = orchestration.Words(
    {
        "Run the same command again": "Retry or clear the task",
        "start afresh with --new": "trigger a new DAG run",
        "`weblake land` it": "land it with WeblakeLandOperator",
        "`weblake land`": "WeblakeLandOperator",
        "in `weblake activity`": "with WeblakeActivityOperator",
        "--new starts another job": "clearing the task starts another job",
        "--new starts another one": "clearing the task starts another one",
        "--new tries again": "clearing the task tries again",
        "Land this job with another --key.": "Land this job into another root.",
        "with --insecure (WEBLAKE_INSECURE=1)": "in the connection's extra: insecure",
        "from WEBLAKE_BASE_URL": "as the connection's host",
        "WEBLAKE_BASE_URL": "the connection's host",
        "WEBLAKE_API_KEY": "the connection's password",
        "--new": "a new DAG run",
    }
)
speaking = in_words_of_a_dag.speaking
