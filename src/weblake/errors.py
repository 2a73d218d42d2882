"""What can go wrong, grouped by what the caller should do about it.

    WeblakeError
    ├── RetryLater              nothing is wrong with the request: the same call may work later
    │   ├── RateLimited             429; `retry_after` says how long, when the service said so
    │   ├── ServiceUnavailable      408, 5xx, or a reply that cannot be read
    │   └── ServiceUnreachable      no connection, or no answer before the deadline
    ├── FixRequest              the request itself is wrong: sending it again changes nothing
    │   ├── InvalidOption           refused here, before anything was sent (also a ValueError)
    │   ├── RequestRejected         400, 405, 409, 413, 422 and the cache misses (404 with a code)
    │   └── StorageRefused          the root cannot be written, or not safely
    ├── AskPerson               somebody has to decide or to set something up; also a certificate that is not valid
    │   ├── AuthenticationFailed    401
    │   ├── CreditsExhausted        402, or more than `max_credits`
    │   ├── PermissionDenied        403
    │   ├── FeatureMissing          an extra that is not installed, or a 503 that names what is not configured
    │   └── OutcomeUnknown          it may have happened or not, and nothing here can tell
    └── GiveUp                  it is over, and how it ended is known
        ├── JobGone                 404 or 410: unknown, expired, or of another team
        ├── JobEnded                the job failed or was cancelled; `status` says which
        ├── LoadIncomplete          what arrived does not add up to what was asked for; `receipt` has the counts
        ├── MalformedReply          the service broke its contract in a way that could lose or leak data
        └── DeadlineExceeded        the caller's own time limit passed; the remote job may still be running

Every error has `message` (what happened, to what) and `hint` (what to do next, in the words of the interface in use),
and none ever holds a key.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from weblake.remedies import PYTHON, Interface, Remedy

if TYPE_CHECKING:
    from weblake.receipt import Receipt


class WeblakeError(Exception):
    """weblake could not do what was asked."""

    def __init__(
        self, message: str = "", *, hint: str | Remedy = "", status: int | None = None, code: str | None = None
    ) -> None:
        self.message = message or (type(self).__doc__ or type(self).__name__).strip().splitlines()[0]
        #: What to do next, as data; an empty text where the message says it all.
        self.remedy = hint if isinstance(hint, Remedy) else Remedy.of_text(hint)
        #: The interface in whose words `hint` is.
        self.interface: Interface = PYTHON
        #: The HTTP status of the reply, where a reply caused this.
        self.status = status
        #: The service's own stable code, where it sent one.
        self.code = code
        #: What is known of the load that this ended: its id and job, and the counts where it came that far.
        self.receipt: Receipt | None = None
        super().__init__(self.message)

    @property
    def hint(self) -> str:
        """What to do next, in the words of `interface`; empty where the message says it all."""
        return self.remedy.words(self.interface)

    @hint.setter
    def hint(self, text: str) -> None:
        self.remedy = Remedy.of_text(text)

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()

    def to_dict(self) -> dict[str, str]:
        """The form in which `--json` and orchestrators carry it: type, message, hint."""
        return {"type": type(self).__name__, "message": self.message, "hint": self.hint}


def chain(error: BaseException) -> Iterator[WeblakeError]:
    """Yield the errors of weblake among an error and those that it came from."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        if isinstance(found, WeblakeError):
            yield found
        found = found.__cause__ or found.__context__


@contextmanager
def in_terms_of(interface: Interface) -> Iterator[None]:
    """Set the interface of errors that pass through, and of those that they came from."""
    try:
        yield
    except WeblakeError as error:
        for each in chain(error):
            each.interface = interface
        raise


class RetryLater(WeblakeError):
    """The service could not answer now; the same call may work later."""

    def __init__(
        self,
        message: str = "",
        *,
        hint: str | Remedy = "",
        status: int | None = None,
        code: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, hint=hint, status=status, code=code)
        #: Seconds the service asked to wait, or None where it named no time.
        self.retry_after = retry_after


class RateLimited(RetryLater):
    """The service's rate or concurrency limit was reached."""


class ServiceUnavailable(RetryLater):
    """The service answered that it cannot work now."""


class ServiceUnreachable(RetryLater):
    """The service could not be reached."""


class FixRequest(WeblakeError):
    """The request is wrong."""


class InvalidOption(FixRequest, ValueError):
    """An option is outside what the contract documents; nothing was sent."""


class RequestRejected(FixRequest):
    """The service refused the request."""


class StorageRefused(FixRequest):
    """The dataset root cannot be used."""


class AskPerson(WeblakeError):
    """A person has to decide or set something up."""


class AuthenticationFailed(AskPerson):
    """The service does not know the API key."""


class CreditsExhausted(AskPerson):
    """There are not enough credits, or the limit that was set would be passed."""


class PermissionDenied(AskPerson):
    """The service forbids this to this team."""


class FeatureMissing(AskPerson):
    """Something that is not installed or not configured is needed."""


class OutcomeUnknown(AskPerson):
    """A request was sent and no answer came: it may have happened or not."""


class GiveUp(WeblakeError):
    """It is over."""


class JobGone(GiveUp):
    """The service has no such job: unknown, expired, or of another team."""


class JobEnded(GiveUp):
    """The job failed or was cancelled."""

    def __init__(self, message: str = "", *, hint: str | Remedy = "", job_status: str = "failed") -> None:
        super().__init__(message, hint=hint)
        #: The job's own status word: failed or cancelled.
        self.job_status = job_status


class LoadIncomplete(GiveUp):
    """What arrived does not add up to what was asked for."""


class MalformedReply(GiveUp):
    """The service sent something that its contract does not allow."""


class DeadlineExceeded(GiveUp):
    """The time limit passed."""
