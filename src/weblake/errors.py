"""Exceptions of weblake, grouped by what the caller should do about them.

    WeblakeError
    ├── RetryLater              nothing is wrong with the request: the same call may work later
    │   ├── RateLimited             429; `retry_after` has the seconds to wait, if the service sent them
    │   ├── ServiceUnavailable      408, 5xx, or a response that cannot be read
    │   └── ServiceUnreachable      no connection, or no response before the deadline
    ├── FixRequest              the request is wrong: sending it again has the same result
    │   ├── InvalidOption           refused by weblake before a request was sent (also a ValueError)
    │   ├── RequestRejected         400, 405, 409, 413, 422 and the cache misses (404 with a code)
    │   └── StorageRefused          the root cannot be read or written, or not safely
    ├── AskPerson               a person has to decide or configure something; also a certificate that is not valid
    │   ├── AuthenticationFailed    401
    │   ├── CreditsExhausted        402, or more than `max_credits`
    │   ├── PermissionDenied        403
    │   ├── FeatureMissing          an extra that is not installed, or a 503 that names what is not configured
    │   └── OutcomeUnknown          the request may have had an effect, and weblake cannot find out
    └── GiveUp                  the operation is over, and its outcome is known
        ├── JobGone                 404 or 410: the job is unknown, expired, or of another team
        ├── JobEnded                the job failed or was cancelled; `job_status` says which
        ├── LoadIncomplete          the results are not complete, or hold other pages; `receipt` has the counts
        ├── MalformedReply          the service broke its contract in a way that could lose or leak data
        └── DeadlineExceeded        the caller's time limit passed; the job may still be running at the service

Every error has `message` (what happened, to what) and `hint` (what to do next, in the words of the interface in use);
its text ends with the section of the documentation about its class, unless it is part of another message. No error
contains the API key. What to do next is data, a `Remedy` with named terms; an `Interface` (the command line, Python,
Airflow, Dagster) has a text for each term (docs/decisions/056-remedies.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import urljoin

if TYPE_CHECKING:
    from weblake.receipt import Receipt

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
        words = vars(interface) | dict(self.values)
        return _FIELD.sub(lambda found: str(words.get(found[1], found[0])), self.template)

    def followed_by(self, other: Remedy) -> Remedy:
        """Return a remedy with the sentences of both; the values of `other` must have other names."""
        return Remedy(f"{self.template} {other.template}".strip(), {**self.values, **other.values})

    def with_values(self, change: Callable[[str], str]) -> Remedy:
        """Return the remedy with `change` applied to each value; the template contains no external text."""
        return replace(self, values={name: change(str(value)) for name, value in self.values.items()})


_INTERFACE: ContextVar[Interface] = ContextVar("weblake_interface", default=PYTHON)


class WeblakeError(Exception):
    """Base class of all errors of weblake."""

    def __init__(
        self, message: str, *, hint: str | Remedy = "", status: int | None = None, code: str | None = None
    ) -> None:
        self.message = message
        #: What to do next, as data; empty if the message is sufficient.
        self.remedy = hint if isinstance(hint, Remedy) else Remedy.of_text(hint)
        #: The interface whose words `hint` uses.
        self.interface: Interface = _INTERFACE.get()
        #: The HTTP status of the response that caused the error, or None.
        self.status = status
        #: The service's stable error code, or None.
        self.code = code
        #: The load that the error ended: its id and job, and the counts if they are known; None if there is no load.
        self.receipt: Receipt | None = None
        super().__init__(self.message)

    @property
    def hint(self) -> str:
        """What to do next, in the words of `interface`; empty if the message is sufficient."""
        return self.remedy.text_for(self.interface)

    @hint.setter
    def hint(self, text: str) -> None:
        self.remedy = Remedy.of_text(text)

    def __str__(self) -> str:
        """Return the message, what to do next, and which section of the documentation describes the error."""
        known = next(each for each in type(self).__mro__ if each.__module__ == __name__)
        text = f"{self}"
        if known is WeblakeError:
            return text
        return f"{text}{'' if text.endswith(('.', '?')) else '.'} {_section(known.__name__)}"

    def __format__(self, spec: str) -> str:
        """Return the message and what to do next: within another message, which names its own section."""
        # A message may end with a text of the service, which has no full stop.
        end = "." if self.hint and self.message[-1:].isalnum() else ""
        return format(f"{self.message}{end} {self.hint}".strip(), spec)

    def to_dict(self) -> dict[str, str]:
        """Return type, message and hint, as `--json` and orchestrators show an error."""
        return {"type": type(self).__name__, "message": self.message, "hint": self.hint}


@cache
def _section(name: str) -> str:
    """Return which section of the documentation describes a class, with its address if the distribution has one."""
    from importlib.metadata import PackageNotFoundError, metadata  # needed for errors only

    anchor = re.sub(r"\B(?=[A-Z])", "-", name).lower()
    with suppress(PackageNotFoundError):
        for label, _, url in (link.partition(", ") for link in metadata("weblake").get_all("Project-URL") or ()):
            if label == "Documentation":
                return f"See {urljoin(url, 'reference/errors' + ('.md' if '.md' in url else '/'))}#{anchor}"
    return f"See errors#{anchor} in the documentation."


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and the exceptions that led to it, the latest first."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__ or found.__context__


@contextmanager
def in_terms_of(interface: Interface) -> Iterator[None]:
    """Give the words of an interface to errors that are made in the block, or pass it, and to their causes.

    It is entered once, where a task, a step or a command begins.
    """
    token = _INTERFACE.set(interface)
    try:
        yield
    except WeblakeError as error:
        for each in causes(error):
            if isinstance(each, WeblakeError):
                each.interface = interface
        raise
    finally:
        _INTERFACE.reset(token)


class RetryLater(WeblakeError):
    """The same call may work later."""

    def __init__(
        self,
        message: str,
        *,
        hint: str | Remedy = "",
        status: int | None = None,
        code: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, hint=hint, status=status, code=code)
        #: Seconds that the service asks to wait, or None.
        self.retry_after = retry_after


class RateLimited(RetryLater):
    """The service's rate or concurrency limit is reached."""


class ServiceUnavailable(RetryLater):
    """The service, or a proxy, responded with a failure of its own."""


class ServiceUnreachable(RetryLater):
    """There is no connection to the service, or no response in time."""


class FixRequest(WeblakeError):
    """The request is wrong: sending it again has the same result."""


class InvalidOption(FixRequest, ValueError):
    """An option is outside the documented range; no request was sent."""


class RequestRejected(FixRequest):
    """The service refused the request."""


class StorageRefused(FixRequest):
    """The dataset root cannot be read or written, or not safely."""


class AskPerson(WeblakeError):
    """A person has to decide or configure something."""


class AuthenticationFailed(AskPerson):
    """The service does not accept the API key."""


class CreditsExhausted(AskPerson):
    """There are not enough credits, or `max_credits` would be exceeded."""


class PermissionDenied(AskPerson):
    """The service forbids the operation to this team."""


class FeatureMissing(AskPerson):
    """The operation needs something that is not installed or not configured."""


class OutcomeUnknown(AskPerson):
    """The request was sent, and whether it had an effect is unknown."""


class GiveUp(WeblakeError):
    """The operation is over, and its outcome is known."""


class JobGone(GiveUp):
    """The job is unknown to the service, expired, or of another team."""


class JobEnded(GiveUp):
    """The job failed or was cancelled."""

    def __init__(self, message: str, *, hint: str | Remedy = "", job_status: str = "failed") -> None:
        super().__init__(message, hint=hint)
        #: The service's status of the job: `failed` or `cancelled`.
        self.job_status = job_status


class LoadIncomplete(GiveUp):
    """The results of a job are not complete, or hold other pages than requested."""


class MalformedReply(GiveUp):
    """The service sent a response that its contract does not allow."""


class DeadlineExceeded(GiveUp):
    """The caller's time limit passed."""
