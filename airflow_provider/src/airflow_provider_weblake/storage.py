"""Resolution of an operator's `to` into a dataset root or one small file.

A storage URL whose user part names an Airflow connection (`s3://aws_default@lake/web`) gets its file system from that
connection, as Airflow's ObjectStoragePath does. A URL without a connection gets Airflow's file system for its scheme if
a provider brings one, and otherwise goes unchanged to the core, which has backends of its own (`weblake[s3]`).
"""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from airflow.sdk import ObjectStoragePath

from airflow_provider_weblake.features import AirflowNotFoundException, BaseHook, conn_id_of, has_fs
from weblake import orchestration
from weblake.errors import AskPerson, FeatureMissing, InvalidOption, StorageRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow.sdk import Connection
    from airflow.sdk._shared.logging.types import Logger

    from weblake.orchestration import Dataset

#: The types that an operator accepts as a path.
LakePath = str | os.PathLike[str] | ObjectStoragePath

#: Schemes of roots that the core treats as plain directories, and that need no Airflow file system.
_LOCAL = frozenset({"", "file", "local"})
_AZURE = frozenset({"abfs", "abfss", "adl", "az"})
#: The package to install for a scheme that Airflow has no file system for.
_PACKAGES = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "apache-airflow-providers-amazon[s3fs]"),
    **dict.fromkeys(("gs", "gcs"), "apache-airflow-providers-google"),
    **dict.fromkeys(_AZURE, "apache-airflow-providers-microsoft-azure"),
}


def root_path(to: LakePath) -> LakePath:
    """Return the root for `weblake.orchestration.open_dataset` from an operator's `to`.

    Local paths, `file://` and path objects without a file system are returned unchanged. A storage URL becomes an
    ObjectStoragePath if Airflow has a file system for its scheme, with the connection that the URL names; otherwise it
    is returned unchanged.

    Raises:
        FeatureMissing: A connection is named, and the provider package that reads it is not installed.
        AskPerson: There is no such connection.
        InvalidOption: The URL holds a password.
    """
    if not isinstance(to, ObjectStoragePath) and (not isinstance(to, str) or "://" not in to):
        return to
    scheme = (to.partition("://")[0] if isinstance(to, str) else to.protocol).lower()
    if scheme in _LOCAL:
        return to
    if isinstance(to, str):
        user, _, host = to.partition("://")[2].partition("/")[0].rpartition("@")
        if ":" in user:
            raise InvalidOption(
                f"A {scheme}:// path must not hold a password.",
                hint=f"Put the credentials into an Airflow connection and name it: {scheme}://CONNECTION_ID@bucket/path.",
            )
        # abfs://container@account.host/path is the scheme's own form: no container's name has a dot.
        if (scheme in _AZURE and user and "." in host) or not (user or has_fs(scheme)):
            return to
    if not has_fs(scheme):
        raise _not_installed(scheme)
    path = ObjectStoragePath(to) if isinstance(to, str) else to
    if conn_id := conn_id_of(path):
        connection_of(conn_id, "the path", hint="Create it, or name another one before the @ of the path.")
    try:
        _ = path.fs  # made now, so that missing parts are reported before the load
    except ImportError as error:
        raise _not_installed(scheme) from error
    return path


def dataset_of_task(to: LakePath) -> Dataset:
    """Return the dataset that a task lands in.

    A root in memory is refused in a process that Airflow has made for the task; in `dag.test()` it outlives the task.

    Raises:
        StorageRefused: Loads cannot land in this storage, or the data would be lost.
        WeblakeError: As `root_path`.
    """
    dataset = orchestration.open_dataset(root_path(to))
    if has_own_process():
        orchestration.refuse_memory(dataset, "the process of this task", hint="memory:// is for tests with dag.test().")
    return dataset


@dataclass(frozen=True, slots=True)
class SmallFile:
    """One file outside any table, such as a list of URLs or a response. It is written in one step."""

    #: The name by which another task finds the file: absolute if it is local.
    name: str
    _dataset: Dataset
    _file: str

    def write(self, data: bytes) -> None:
        """Write the file, or replace the existing one, in one step.

        Raises:
            StorageRefused: The storage refused the write.
        """
        local = self._dataset.local_path(self._file)
        if local is None:
            self._dataset.write(self._file, data)
        else:
            _write_local(local, data)


def small_file(path: LakePath) -> SmallFile:
    """Return the file of a path, which need not exist yet; called before anything is paid.

    A local file's directory is made if its parent exists.

    Raises:
        InvalidOption: The path names a directory.
        StorageRefused: There is no such directory, or no such kind of storage.
        FeatureMissing: As `root_path`.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else str(path)
    parent, slash, file = text.rpartition("/")
    if not file or file in (".", "..") or parent.endswith(":/"):
        raise InvalidOption(f"{text!r} names no file.", hint="Give the path of one file, such as lists/urls.txt.")
    dataset = dataset_of_task(parent or slash or ".")
    local = dataset.local_path(file)
    if local is None:
        return SmallFile(text, dataset, file)
    with _translate_errors(local):
        with suppress(FileExistsError):
            local.parent.mkdir()
        if local.is_dir():
            raise InvalidOption(f"{local} is a directory.", hint="Give the path of one file, such as lists/urls.txt.")
    return SmallFile(str(local), dataset, file)


def has_own_process() -> bool:
    """Return whether a supervisor in another process runs this task; in `dag.test()` it runs in this one."""
    from airflow.sdk.execution_time import task_runner

    comms = getattr(task_runner, "SUPERVISOR_COMMS", None)
    return comms is not None and type(comms).__name__ != "InProcessSupervisorComms"


def can_defer(conn_id: str, log: Logger) -> bool:
    """Return whether a task may defer: in `dag.test()`, a trigger knows connections of the environment only."""
    name = f"AIRFLOW_CONN_{conn_id.upper()}"
    if has_own_process() or name in os.environ:
        return True
    log.warning("A trigger in this process may not know the connection: the task waits itself. Define %s.", name)
    return False


def connection_of(conn_id: str, named_by: str, *, hint: str) -> Connection:
    """Return an Airflow connection.

    Airflow's file system for S3 falls back to the environment's credentials if there is none, and the load would go to
    the storage that those reach.

    Raises:
        AskPerson: There is no such connection; `named_by` and `hint` are parts of the message.
    """
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        raise AskPerson(f"There is no Airflow connection {conn_id!r}, which {named_by} names.", hint=hint) from None


def _not_installed(scheme: str) -> FeatureMissing:
    package = _PACKAGES.get(scheme)
    return FeatureMissing(
        f"Airflow has no file system for {scheme}:// here, so the connection of that path cannot be used.",
        hint=f"pip install '{package}' on the workers and the triggerer, and restart them."
        if package
        else "Use a path on s3://, gs://, abfs:// or a local one.",
    )


def _write_local(path: Path, data: bytes) -> None:
    staged = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.part")
    with _translate_errors(path):
        try:
            with staged.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            staged.replace(path)
        finally:
            staged.unlink(missing_ok=True)


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageRefused(
            f"{path} cannot be written: {error.strerror or error}.",
            hint="Create its directory and give this user permission to write there, or choose another path.",
        ) from error
