"""The terms of remedies in the words of the command line."""

from __future__ import annotations

from functools import partial

from weblake.errors import Interface, in_terms_of

COMMAND_LINE = Interface(
    name="the command line",
    run_again="Run the same command again",
    start_afresh="start afresh with --new",
    another_job="--new",
    cut_again="Cut it again",
    allow_partial="--allow-partial",
    missing_ratio="--missing-ratio",
    max_credits="--max-credits",
    timeout="--timeout",
    column="--column",
    key="--key",
    new="--new",
    since="--since",
    base_url="WEBLAKE_BASE_URL",
    api_key="WEBLAKE_API_KEY",
    insecure="--insecure (WEBLAKE_INSECURE=1)",
    ca_bundle="the file that SSL_CERT_FILE names",
    land="`weblake land`",
    in_activity="in `weblake activity`",
    add_table="`weblake table add`",
    remove_table="`weblake table remove`",
)

#: A context manager: errors that the block raises use the words of the command line.
in_command_line_terms = partial(in_terms_of, COMMAND_LINE)
