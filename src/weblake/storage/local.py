"""Storage of a dataset root on a local (or network-mounted POSIX) file system.

Every file is written below `_weblake/tmp`, fsynced, given its final name by one `link`, and the directory is fsynced.
`rename` is not used because it replaces an existing file, so two writers could both succeed. A crash between `link`
and `unlink` leaves a second name in `_weblake/tmp`, which is harmless and is deleted later
(docs/decisions/003-publish-by-link.md).
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import IO

from weblake.errors import StorageRefused
from weblake.storage.rules import TMP, checked_name, not_a_directory, translate_errors
from weblake.storage.scratch import PART, refuse_without_locks, scratch_in, sweep, unique_name

#: Maximum bytes of a path on Linux, including the terminating null byte.
PATH_MAX = 4096

#: Number of names in a page of a listing.
LISTED = 1000


class LocalStorage:
    """Storage in a root directory. `Storage` documents the methods."""

    def __init__(self, root: Path) -> None:
        # Made absolute immediately: a later chdir must not change the root.
        self._root = root.absolute()
        #: The absolute path of the root.
        self.url = str(self._root)
        self._durable: set[Path] = set()

    def read(self, name: str) -> bytes | None:
        """Return the whole content, or None if the file certainly does not exist."""
        path = self._path(name)
        with translate_errors(f"read {name}", self.url):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                if path.is_symlink():  # a dangling symbolic link is an error and not an absent file
                    raise
                return None

    def create(self, name: str, data: bytes) -> bool:
        """Create a record atomically and durably, only if absent; exactly one caller gets True."""
        refuse_without_locks()
        final = self._path(name)
        with translate_errors(f"create {name}", self.url):
            self._make_dirs(final.parent)
            won = False
            # Checked before staging, so that an existing record is found even if the disk is full.
            if not os.path.lexists(final):
                staged = self._stage(data)
                try:
                    won = _link(staged, final)
                finally:
                    staged.unlink(missing_ok=True)
            # Also if another writer won: the caller acts on the record, so a power failure must not lose it.
            _sync_dir(final.parent)
            return won

    def publish(self, local_file: Path, name: str) -> bool:
        """Link a finished scratch file to its final name; return False if the name is taken."""
        final = self._path(name)
        with translate_errors(f"publish {name}", self.url):
            self._make_dirs(final.parent)
            _sync_file(local_file)
            won = _link(local_file, final)
            _sync_dir(final.parent)
            if won:
                local_file.unlink(missing_ok=True)
            return won

    def replace(self, name: str, local_file: Path) -> None:
        """Rename a finished scratch file to this name and replace the existing file."""
        final = self._path(name)
        with translate_errors(f"replace {name}", self.url):
            self._make_dirs(final.parent)
            _sync_file(local_file)
            local_file.replace(final)
            _sync_dir(final.parent)

    def move(self, name: str, new_name: str) -> bool:
        """Link a file to its new name, then remove the old name."""
        source, final = self._path(name), self._path(new_name)
        with translate_errors(f"move {name} to {new_name}", self.url):
            self._make_dirs(final.parent)
            try:
                won = _link(source, final)
            except FileNotFoundError:
                if os.path.lexists(final):
                    return False
                raise
            _sync_dir(final.parent)
            if won:
                source.unlink(missing_ok=True)
                _sync_dir(source.parent)
            return won

    def delete(self, name: str) -> None:
        """Delete a file if it exists."""
        path = self._path(name)
        with translate_errors(f"delete {name}", self.url), suppress(FileNotFoundError):
            path.lstat()  # a read-only file system refuses also to delete what does not exist
            path.unlink()
            _sync_dir(path.parent)

    def exists(self, name: str) -> bool:
        """Return whether the file exists."""
        with translate_errors(f"look up {name}", self.url):
            try:
                return not stat.S_ISDIR(self._path(name).lstat().st_mode)
            except FileNotFoundError:
                return False

    def ensure_durable(self, name: str) -> bool:
        """Return whether the file exists, after an fsync of its directory, which makes its name durable."""
        if not self.exists(name):
            return False
        with translate_errors(f"sync {name}", self.url):
            _sync_dir(self._path(name).parent)
        return True

    def find_size(self, name: str) -> int | None:
        """Return the size of a file in bytes, or None if it does not exist."""
        with translate_errors(f"look up {name}", self.url):
            try:
                return self._path(name).stat().st_size
            except FileNotFoundError:
                return None

    def list(self, prefix: str) -> list[str]:
        """Return the names of all files below a directory, sorted."""
        return sorted(name for page in self.pages(prefix) for name in page)

    def pages(self, prefix: str) -> Iterator[Sequence[str]]:
        """Yield the same names in pages, in no particular order."""
        top = self._path(prefix.rstrip("/")) if prefix else self._root
        start = len(str(self._root / "x")) - 1
        names = (path[start:] for path in _files(str(top), skipped=str(self._root / TMP)))
        while True:
            with translate_errors(f"list {prefix or 'the root'}", self.url):
                page = [*islice(names, LISTED)]
            if not page:
                return
            yield page

    def open_input(self, name: str) -> IO[bytes]:
        """Return the file, open for reading."""
        with translate_errors(f"open {name}", self.url):
            return self._path(name).open("rb")

    def local_path(self, name: str) -> Path | None:
        """Return the path of the file."""
        return self._path(name)

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Create a directory on the file system of the root, so that finished files are published without a copy."""
        tmp = self._root / TMP
        with ExitStack() as stack:
            with translate_errors("make a staging directory", self.url):
                self._make_dirs(tmp)
                directory = stack.enter_context(scratch_in(tmp))
            yield directory

    def preflight(self, keys_dir: str, names: Sequence[str] = ()) -> None:
        """Create the directories; prove that records are exclusive and that files can be linked into the table."""
        probe = f"{TMP}/{unique_name(PART)}"  # in the staging folder, where the probe of a killed run is deleted later
        try:
            if not self.create(probe, b"first") or self.create(probe, b"second") or self.read(probe) != b"first":
                raise StorageRefused(
                    f"{self.url} created the same file twice.", hint="weblake cannot land there exactly once."
                )
        except StorageRefused:
            with suppress(StorageRefused):
                self.delete(probe)
            raise
        self.delete(probe)
        with translate_errors(f"publish below {keys_dir}", self.url):
            self._make_dirs(self._path(keys_dir))
        for name in names or (f"{keys_dir}/probe",):
            self._prove(name)

    def _prove(self, name: str) -> None:
        """Prove that a path is short enough, and that files can be linked into its deepest existing folder."""
        path = self._path(name)
        with translate_errors(f"publish {name}", self.url):
            if len(os.fsencode(path)) >= PATH_MAX:
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), str(path))
            folder = path.parent
            while not os.path.lexists(folder):
                folder = folder.parent
            if not folder.is_dir():
                raise not_a_directory(folder)
            absent = secrets.token_hex(8)
            with suppress(FileNotFoundError):  # the kernel compares the mounts, bind mounts too, before it looks it up
                (self._root / TMP / absent).rename(folder / absent)
            # Asked, and not tried: a reader that lists the table at this moment must not see an entry that vanishes.
            if not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))

    def _path(self, name: str) -> Path:
        return self._root / checked_name(name)

    def _stage(self, data: bytes) -> Path:
        tmp = self._root / TMP
        self._make_dirs(tmp)
        staged = tmp / unique_name(PART)
        try:
            with staged.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            staged.unlink(missing_ok=True)
            raise
        return staged

    def _make_dirs(self, directory: Path) -> None:
        """Create a directory below the root, and the root if its parent exists; each is made durable in its parent."""
        if directory in self._durable and directory.is_dir():
            return
        if directory != self._root:
            self._make_dirs(directory.parent)
        try:
            directory.mkdir()
        except FileExistsError:
            if not directory.is_dir():
                raise not_a_directory(directory) from None
            if directory == self._root:
                return  # its parent may be unreadable for this user
        # Also if another process has just created it: this process must not continue before it is durable.
        _sync_dir(directory.parent)
        self._durable.add(directory)
        if directory == self._root / TMP:
            sweep(directory)


def _link(source: Path, final: Path) -> bool:
    """Link a file to a second name; return False if another file has that name."""
    try:
        os.link(source, final)
    except FileExistsError:
        # The name may be the result of a lost response of a network file system, or of an interrupted move.
        return source.samefile(final)
    return True


def _sync_file(path: Path) -> None:
    # Not repeated: after a failed fsync the kernel has dropped the pages, and a second fsync would wrongly succeed.
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _sync_dir(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems without directory sync
            raise
    finally:
        os.close(descriptor)


def _files(directory: str, skipped: str, trail: tuple[Path, ...] = ()) -> Iterator[str]:
    """Yield the paths of all files below a directory, following links to directories as Arrow, pandas and Polars do.

    `trail` holds the real directories in which a link was followed; a link back to one of them is not followed.
    """
    try:
        entries = os.scandir(directory)
    except FileNotFoundError:
        return  # any other error must not look like an empty directory
    folders = []
    with entries:
        for entry in entries:
            if entry.is_dir():
                folders.append(entry)
            else:
                yield entry.path
    for entry in folders:  # the directory is closed first, so that one is open at any depth
        if not entry.is_symlink():
            if entry.path != skipped:
                yield from _files(entry.path, skipped, trail)
        else:
            way, target = (*trail, Path(directory).resolve()), Path(entry.path).resolve()
            if not any(one.is_relative_to(target) for one in way):
                yield from _files(entry.path, skipped, way)
