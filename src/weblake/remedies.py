"""Remedies of errors as data, formatted in the words of an interface: the command line, Python, Airflow, Dagster.

The core raises a `Remedy` with named terms. An `Interface` has a text for each term
(docs/decisions/056-remedies.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace

_FIELD = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True, kw_only=True)
class Interface:
    """The text of each remedy term in one interface. A missing term without a default is a TypeError at import."""

    name: str

    # Actions
    #: Begins a sentence: repeats the call, which continues from the records of the ledger.
    run_again: str
    #: Within a sentence: makes a new load of the same request, which is paid again.
    start_afresh: str
    #: The subject of "… starts one", of another job.
    another_job: str
    #: Begins a sentence: cuts a changed list of URLs into shards again.
    cut_again: str

    # Parameters; the defaults are their names in Python, which Airflow and Dagster use as well.
    allow_partial: str = "allow_partial=True"
    missing_ratio: str = "missing_ratio"
    max_credits: str = "max_credits"
    timeout: str
    column: str = "column"
    key: str = "key"
    new: str = "new=True"
    since: str = "since"
    #: After "with": registers a Delta Lake or Iceberg table of a dataset, or removes it from there.
    add_table: str = "weblake.tables.add"
    remove_table: str = "weblake.tables.remove"

    #: After "choose" or "use": where a load would be another one. `loads.intents` adds that its job is paid for.
    another_root: str = "another root"

    #: After "correct it in": where the credentials of an object storage come from.
    storage_keys: str = "the environment, or in storage_options"

    # The service
    base_url: str
    api_key: str
    #: After "with": allows plain http beyond loopback.
    insecure: str
    #: After "goes into": the setting for custom certificate authorities.
    ca_bundle: str

    # Operations
    #: The operation that lands a job that was started elsewhere.
    land: str
    #: Where the team's activity is listed, with a preposition.
    in_activity: str


#: Names of all terms.
TERMS = frozenset(each.name for each in fields(Interface)) - {"name"}

#: The default interface of errors.
PYTHON = Interface(
    name="Python",
    run_again="Call it again with the same arguments",
    start_afresh="start afresh with new=True",
    another_job="new=True",
    cut_again="Cut it again with url_shards",
    timeout="timeout_s",
    base_url="base_url (WEBLAKE_BASE_URL)",
    api_key="api_key (WEBLAKE_API_KEY)",
    insecure="insecure=True (WEBLAKE_INSECURE=1)",
    ca_bundle="HttpOptions(ca_bundle=...), or the file that SSL_CERT_FILE names",
    land="weblake.land",
    in_activity="in client.list_activity()",
)


@dataclass(frozen=True)
class Remedy:
    """The remedy of an error: what the user can do about it.

    Args:
        template: Text with fields in braces. A field is a term of `Interface` or a key of `values`. Must be a literal:
            tests/core/test_remedies.py reads all templates from the source and checks their fields.
        values: Texts that are the same in every interface.
    """

    template: str
    values: Mapping[str, object] = field(default_factory=dict, hash=False)

    @classmethod
    def of_text(cls, text: str) -> Remedy:
        """Return a remedy with the same text in every interface; braces in it are not fields."""
        return cls("{text}", {"text": text})

    def text_for(self, interface: Interface) -> str:
        """Return the text in the words of an interface. An unknown field is unchanged: an error must not fail."""

        def word(found: re.Match[str]) -> str:
            name = found[1]
            if name in self.values:
                return str(self.values[name])
            return str(getattr(interface, name)) if name in TERMS else found[0]

        return _FIELD.sub(word, self.template)

    def followed_by(self, other: Remedy) -> Remedy:
        """Return a remedy with the sentences of both; the values of `other` must have other names."""
        return Remedy(f"{self.template} {other.template}".strip(), {**self.values, **other.values})

    def with_values(self, change: Callable[[str], str]) -> Remedy:
        """Return the remedy with `change` applied to each value; the template contains no external text."""
        return replace(self, values={name: change(str(value)) for name, value in self.values.items()})
