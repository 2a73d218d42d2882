"""What an orchestrator may know of a load: counts, names and sizes, no text and no key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields


@dataclass(frozen=True, slots=True)
class LandedFile:
    """One published file."""

    #: Relative to the root.
    path: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """The account of one load: submitted = stored + failed + robots_blocked + rejected + missing + duplicates."""

    load_id: str
    kind: str
    job_id: str | None = None
    #: The job's own last word: completed, failed, cancelled; or expired, where it was gone before it was read.
    status: str = ""
    #: Whether every submitted URL is a document or an error row with a reason.
    complete: bool = False
    submitted: int = 0
    stored: int = 0
    failed: int = 0
    robots_blocked: int = 0
    rejected: int = 0
    missing: int = 0
    duplicates: int = 0
    #: As the service reports it, which may lag; None where it does not say.
    credits_used: float | None = None
    files: tuple[LandedFile, ...] = field(default=())

    def to_dict(self, *, files: bool = True) -> dict[str, object]:
        """JSON-ready; the Parquet footer holds it without its files, which it is one of."""
        out = asdict(self)
        out["files"] = [asdict(file) for file in self.files]
        if not files:
            del out["files"]
        return out

    @classmethod
    def from_dict(cls, raw: Mapping[str, object]) -> Receipt:
        """Reads what `to_dict` gave, ignoring what a later version added."""
        known = {f.name for f in fields(cls)}
        values = {name: value for name, value in raw.items() if name in known}
        listed = raw.get("files")
        files = listed if isinstance(listed, list) else []
        values["files"] = tuple(LandedFile(str(f["path"]), int(f["rows"]), int(f["bytes"])) for f in files)
        return cls(**values)  # type: ignore[arg-type]
