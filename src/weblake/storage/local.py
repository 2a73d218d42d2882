"""A dataset root on a local (or network-mounted POSIX) file system.

Everything is written below `_weblake/tmp`, fsynced, given its final name by one `link`, and the directory is fsynced.
`link` and not `rename`: rename replaces what has the name, and which of two writers was first would be lost. A crash
between `link` and `unlink` leaves a second name in `_weblake/tmp`, which harms nobody and is swept.
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
from weblake.storage.rules import TMP, checked_name, missing, translate_errors
from weblake.storage.scratch import part_name, scratch_in, sweep

#: Bytes of a path and its end that Linux takes.
PATH_MAX = 4096

#: Names in a page of a listing.
LISTED = 1000


class LocalStorage:
    """A root directory. `Storage` says what each method does."""

    def __init__(self, root: Path) -> None:
        # Absolute now: a later chdir must not move the dataset.
        self._root = root.absolute()
        self._durable: set[Path] = set()

    @property
    def url(self) -> str:
        """The absolute path."""
        return str(self._root)

    def read(self, name: str) -> bytes | None:
        """The whole content, or None if there surely is no such file."""
        path = self._path(name)
        with translate_errors(f"read {name}", self.url):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                if path.is_symlink():  # it is there, and leads nowhere: not the same as absent
                    raise
                return None

    def create(self, name: str, data: bytes) -> bool:
        """Writes a record whole and durably, only if absent; exactly one caller gets True."""
        final = self._path(name)
        with translate_errors(f"create {name}", self.url):
            self._make_dirs(final.parent)
            won = False
            # Looked up first, so that a full disk keeps nobody from learning that the record is there.
            if not os.path.lexists(final):
                staged = self._stage(data)
                try:
                    won = _link(staged, final)
                finally:
                    staged.unlink(missing_ok=True)
            # Also by who came second: it acts on the record, which must not be lost with the power.
            _sync_dir(final.parent)
            return won

    def publish(self, local_file: Path, name: str) -> bool:
        """Links a finished scratch file to its final name; False if that is taken."""
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
        """Renames a finished scratch file over what has this name."""
        final = self._path(name)
        with translate_errors(f"replace {name}", self.url):
            self._make_dirs(final.parent)
            _sync_file(local_file)
            local_file.replace(final)
            _sync_dir(final.parent)

    def move(self, name: str, new_name: str) -> bool:
        """Links a file to another name, then drops the old one."""
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
        """Removes a file, if it is there."""
        path = self._path(name)
        with translate_errors(f"delete {name}", self.url), suppress(FileNotFoundError):
            path.unlink()
            _sync_dir(path.parent)

    def delete_folder(self, name: str, known: Sequence[str] = ()) -> None:
        """Removes a folder and its files, if it is there."""
        for file in self.list(name):
            self.delete(file)
        path = self._path(name)
        with translate_errors(f"delete {name}", self.url), suppress(FileNotFoundError):
            try:
                path.rmdir()
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # another process has just put a file there
                    raise
            else:
                _sync_dir(path.parent)

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        with translate_errors(f"look up {name}", self.url):
            try:
                return not stat.S_ISDIR(self._path(name).lstat().st_mode)
            except FileNotFoundError:
                return False

    def settled(self, name: str) -> bool:
        """Whether there is such a file; its name may be younger than the last sync of its directory."""
        if not self.exists(name):
            return False
        with translate_errors(f"sync {name}", self.url):
            _sync_dir(self._path(name).parent)
        return True

    def size(self, name: str) -> int:
        """Bytes of a file, which must be there."""
        with translate_errors(f"look up {name}", self.url):
            return self._path(name).stat().st_size

    def find_size(self, name: str) -> int | None:
        """Bytes of a file, or None if there is no such file."""
        with translate_errors(f"look up {name}", self.url):
            try:
                return self._path(name).stat().st_size
            except FileNotFoundError:
                return None

    def list(self, prefix: str) -> list[str]:
        """The names of all files below a directory, sorted."""
        return sorted(name for page in self.pages(prefix) for name in page)

    def pages(self, prefix: str) -> Iterator[Sequence[str]]:
        """The same names a page at a time, in no order."""
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
        """The file, open for reading."""
        with translate_errors(f"open {name}", self.url):
            return self._path(name).open("rb")

    def local_path(self, name: str) -> Path | None:
        """Where the file lies."""
        return self._path(name)

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A directory on the root's own file system, so that a finished file is published without a copy."""
        tmp = self._root / TMP
        with ExitStack() as stack:
            with translate_errors("make a staging directory", self.url):
                self._make_dirs(tmp)
                directory = stack.enter_context(scratch_in(tmp))
            yield directory

    def preflight(self, keys_dir: str, names: Sequence[str] = ()) -> None:
        """Makes the directories, proves records, and proves that a link can go from staging into the table."""
        probe = f"{TMP}/{part_name()}"  # where a run that is killed here leaves what is swept
        table = self._path(keys_dir)
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
            self._make_dirs(table)
            self._prove(table)
        for name in names:
            self._prove_file(name)

    def _prove_file(self, name: str) -> None:
        """Prove that a name is short enough, and that a link can go to the folders of it that are there."""
        path = self._path(name)
        with translate_errors(f"publish {name}", self.url):
            if len(os.fsencode(path)) >= PATH_MAX:
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), str(path))
            folder = path.parent
            while not os.path.lexists(folder):
                folder = folder.parent
            self._prove(folder)

    def _prove(self, folder: Path) -> None:
        if not folder.is_dir():
            raise missing(folder)
        _prove_one_filesystem(self._root / TMP, folder)
        # An empty directory proves the right to write, and no reader of the table ever sees a file. It has one name:
        # what a run that was killed here has left goes with the next one, and proves the same by that.
        inside = folder / ".weblake-probe"
        with suppress(FileExistsError):
            inside.mkdir()
        with suppress(FileNotFoundError):
            inside.rmdir()

    def _path(self, name: str) -> Path:
        return self._root / checked_name(name)

    def _stage(self, data: bytes) -> Path:
        tmp = self._root / TMP
        self._make_dirs(tmp)
        staged = tmp / part_name()
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
        """Makes a directory below the root, and the root itself if its parent is there; each durable in its parent."""
        if directory in self._durable and directory.is_dir():
            return
        if directory != self._root:
            self._make_dirs(directory.parent)
        try:
            directory.mkdir()
        except FileExistsError:
            if not directory.is_dir():
                raise missing(directory) from None
            if directory == self._root:  # its parent need not be readable for us
                self._durable.add(directory)
                return
        # Also where another process has just made it: ours must not go on before it is durable.
        _sync_dir(directory.parent)
        self._durable.add(directory)
        if directory == self._root / TMP:
            sweep(directory)


def _link(source: Path, final: Path) -> bool:
    """Gives a file a second name; False if another file has it already."""
    try:
        os.link(source, final)
    except FileExistsError:
        # A network file system may do it, lose the answer, and be asked again; so may our own interrupted move.
        return source.samefile(final)
    return True


def _sync_file(path: Path) -> None:
    # Once: after a failed fsync the kernel has dropped the pages, and a second one would succeed and mean nothing.
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _sync_dir(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that cannot, and have nothing to sync
            raise
    finally:
        os.close(descriptor)


def _prove_one_filesystem(staging: Path, table: Path) -> None:
    """Raises OSError (EXDEV, EROFS) where a link from one to the other could not work."""
    absent = secrets.token_hex(8)
    try:
        # Nothing is renamed: the kernel compares the two mounts before it looks for the file, bind mounts included.
        (staging / absent).rename(table / absent)
    except FileNotFoundError:
        return


def _files(directory: str, skipped: str, trail: tuple[Path, ...] = ()) -> Iterator[str]:
    """All files below a directory, through links to other directories as Arrow, pandas and Polars read them.

    `trail` holds the real directories in which a link was followed: a link back to one of them is not.
    """
    try:
        entries = os.scandir(directory)
    except FileNotFoundError:
        return  # and nothing else looks empty
    folders = []
    with entries:
        for entry in entries:
            if entry.is_dir():
                folders.append(entry)
            else:
                yield entry.path
    for entry in folders:  # with the directory closed: however deep they lie, one is open
        if not entry.is_symlink():
            if entry.path != skipped:
                yield from _files(entry.path, skipped, trail)
        else:
            way, target = (*trail, Path(directory).resolve()), Path(entry.path).resolve()
            if not any(one.is_relative_to(target) for one in way):
                yield from _files(entry.path, skipped, way)
