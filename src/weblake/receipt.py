"""Receipts of loads: counts, names and sizes. They contain no page text and no key, so orchestrators may store them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields

#: The counts of a receipt, in the order in which they are shown.
COUNTS = ("submitted", "stored", "failed", "robots_blocked", "rejected", "missing", "duplicates")


@dataclass(frozen=True, slots=True)
class LandedFile:
    """A published file."""

    #: Path relative to the root.
    path: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """The account of one load: submitted = stored + failed + robots_blocked + rejected + missing + duplicates.

    requested = fresh + submitted.
    """

    load_id: str
    kind: str
    job_id: str | None = None
    #: The job's final status: completed, failed or cancelled; or expired, if the job was gone before it was read whole.
    status: str = ""
    #: Whether the job completed and every submitted URL has a document or an error row with a reason.
    complete: bool = False
    #: URLs that were not sent because a page of them is fresh (`refresh_after`).
    fresh: int = 0
    submitted: int = 0
    stored: int = 0
    failed: int = 0
    robots_blocked: int = 0
    rejected: int = 0
    missing: int = 0
    duplicates: int = 0
    #: Whether the crawl has attempted as many pages as its limit allows: the site may have more.
    limit_reached: bool = False
    #: Credits as the service reports them, possibly with a delay; None if it does not report them.
    credits_used: float | None = None
    files: tuple[LandedFile, ...] = field(default=())

    @property
    def requested(self) -> int:
        """URLs of the list: those that were sent, and those that are fresh."""
        return self.fresh + self.submitted

    @property
    def nothing_due(self) -> bool:
        """Whether all URLs of the list were fresh: nothing was started, and the load has no record."""
        return self.fresh > 0 and not self.submitted

    @property
    def has_page_errors(self) -> bool:
        """Whether pages without a document are rows of `page_errors`."""
        return self.failed + self.robots_blocked + self.rejected + self.missing > 0

    def to_dict(self, *, files: bool = True) -> dict[str, object]:
        """Return the receipt as a JSON-ready dict; a Parquet footer contains it without `files`."""
        out = asdict(self) | {"requested": self.requested}
        out["files"] = [asdict(file) for file in self.files]
        if not files:
            del out["files"]
        return out

    @classmethod
    def from_dict(cls, raw: Mapping[str, object]) -> Receipt:
        """Return the receipt of a dict made by `to_dict`; fields that a later version added are ignored."""
        known = {f.name for f in fields(cls)}
        values = {name: value for name, value in raw.items() if name in known}
        listed = raw.get("files")
        files = listed if isinstance(listed, list) else []
        values["files"] = tuple(LandedFile(str(f["path"]), int(f["rows"]), int(f["bytes"])) for f in files)
        return cls(**values)  # type: ignore[arg-type]
