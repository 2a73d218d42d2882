"""Checks of file names in a storage, and translation of storage errors to StorageRefused."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from weblake.credentials import redact
from weblake.errors import Remedy, StorageRefused, WeblakeError, causes

#: Folder of files that are being written; never listed.
TMP = "_weblake/tmp"

_HINTS = {
    errno.ENOSPC: Remedy("Free space there and run it again."),
    errno.EDQUOT: Remedy("Raise the quota or free space there and run it again."),
    errno.EFBIG: Remedy("Raise the limit on file size (ulimit -f) and run it again."),
    errno.EACCES: Remedy("Give this user read and write permission there, or choose {another_root}."),
    errno.EPERM: Remedy("Give this user write permission there; the file system must also allow hard links."),
    errno.EROFS: Remedy("It is mounted read-only: choose {another_root}, or have it mounted for writing."),
    errno.EMFILE: Remedy("Raise the limit on open files (ulimit -n) and run it again."),
    errno.ENFILE: Remedy("The machine has no free file handles: close other programs and run it again."),
    errno.EIO: Remedy(
        "Check the disk, which may not hold what it was given last, and run it again: it goes on from there."
    ),
    errno.EXDEV: Remedy("Staging and tables must be on one file system: no mount may lie inside the root."),
    errno.ENOTDIR: Remedy(
        "A file or a dangling link stands where a directory is needed: move it, or choose {another_root}."
    ),
    errno.ENOENT: Remedy("Create the directory, bucket or container above it, or choose {another_root}."),
    errno.ENAMETOOLONG: Remedy("Choose a shorter root or shorter partition values."),
    errno.ENOSYS: Remedy("This storage cannot create only if absent; weblake needs that to land exactly once."),
    errno.ENOTSUP: Remedy("This storage cannot create only if absent (hard links); choose {another_root}."),
}
_NO_HARD_LINKS = {errno.EMLINK, errno.EOPNOTSUPP}
#: What S3, GCS and Azure say of an unknown key, a wrong secret and an expired token; others lack a permission.
_KEY_REFUSED = re.compile(
    r"(?i)InvalidAccessKeyId|SignatureDoesNotMatch|InvalidSecurity|\b(Invalid|Expired)Token|TokenRefreshRequired"
    r"|access key id you provided|signature we calculated|invalid_(grant|client)|RefreshError|invalid credentials"
    r"|AuthenticationFailed|ClientAuthenticationError|InvalidAuthenticationInfo|failed to authenticate the request"
)
_SIGNED = re.compile(r"(?i)\b(sig|se|sp|signature|credential|token|accountkey|x-amz-[a-z-]+)=[^&\s;\"']+")
_USERINFO = re.compile(r"//[^/\s@]*:[^/\s@]*@")


def checked_name(name: str) -> str:
    """Return the name unchanged after checking that it stays inside the root.

    Raises:
        StorageRefused: It is empty, absolute, or holds `..`, `.`, an empty part, a backslash or a control character.
    """
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts) or re.search(r"[\\\x00-\x1f\x7f\ud800-\udfff]", name):
        raise StorageRefused(
            f"{name!r} is not a name inside a dataset root.",
            hint="Names are relative, with forward slashes, and never leave the root.",
        )
    return name


def hide_secrets(text: str, hidden: tuple[str, ...] = ()) -> str:
    """Return the text without credentials: user info, signed query values, and every string of `hidden`."""
    for value in hidden:
        text = redact(text, value)
    return _USERINFO.sub("//***@", _SIGNED.sub(r"\1=***", text))


def refusal(error: BaseException, doing: str, url: str, hidden: tuple[str, ...] = ()) -> StorageRefused:
    """Return a StorageRefused that states the operation, the URL, and the storage's own error message."""
    words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    words = " ".join(words.split()) or type(error).__name__
    return StorageRefused(
        f"{url} refused to {doing}: {hide_secrets(words, hidden)[:300]}.".replace("..", "."), hint=_hint(error)
    )


@contextmanager
def translate_errors(doing: str, url: str, hidden: tuple[str, ...] = ()) -> Iterator[None]:
    """Raise StorageRefused for any error of the storage in the block; errors of weblake pass unchanged."""
    try:
        yield
    except WeblakeError:
        raise
    except Exception as error:  # every backend has its own error types, and only some are OSErrors
        raise refusal(error, doing, url, hidden) from error


def _hint(error: BaseException) -> str | Remedy:
    number = error.errno if isinstance(error, OSError) else None
    if number in _NO_HARD_LINKS:
        return _HINTS[errno.ENOTSUP]
    if number in _HINTS:
        return _HINTS[number]
    if isinstance(error, FileNotFoundError):
        return _HINTS[errno.ENOENT]
    if _KEY_REFUSED.search(" ".join(f"{type(each).__name__} {each}" for each in causes(error))):
        return Remedy("It does not know this key, or its secret or token is wrong: correct it in {storage_keys}.")
    if isinstance(error, PermissionError):
        return "Give these credentials leave to list, read, write and delete there, if key, secret and token are right."
    if "redential" in str(error):
        return "Set the storage's credentials in the environment (AWS_ACCESS_KEY_ID, AWS_PROFILE and the like)."
    return "Check that the root is right and reachable, and run it again: it goes on from there."


def not_a_directory(path: os.PathLike[str] | str) -> NotADirectoryError:
    """Return the error for a path that should be a directory and is not."""
    return NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), os.fspath(path))
