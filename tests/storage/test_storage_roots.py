from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from upath import UPath

from weblake.dataset.root import open_dataset, refuse_memory
from weblake.errors import FeatureMissing, StorageRefused
from weblake.storage import open_storage
from weblake.storage.local import LocalStorage

# --- the door ---


@pytest.mark.parametrize("spelling", ["str", "Path", "file", "upath", "upath-file", "airflow"])
def test_all_spellings_of_a_local_root(tmp_path: Path, spelling: str) -> None:
    match spelling:
        case "str":
            root: object = str(tmp_path)
        case "Path":
            root = tmp_path
        case "file":
            root = f"file://{tmp_path}"
        case "upath":
            root = pytest.importorskip("upath").UPath(str(tmp_path))
        case "upath-file":
            root = pytest.importorskip("upath").UPath(f"file://{tmp_path}")
        case _:
            root = pytest.importorskip("airflow.sdk").ObjectStoragePath(f"file://{tmp_path}")
    storage = open_storage(root)  # type: ignore[arg-type]
    assert isinstance(storage, LocalStorage)
    assert storage.url == str(tmp_path)
    assert storage.create("a.json", b"x")
    assert (tmp_path / "a.json").read_bytes() == b"x"


@pytest.mark.system
def test_a_upath_is_opened_with_its_own_file_system(
    s3_root: str, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    upath = pytest.importorskip("upath")
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    root = upath.UPath(s3_root, endpoint_url=s3_endpoint, key="test-key", secret="test-key")
    assert open_storage(root).create("a.json", b"x")
    assert open_storage(root).url == s3_root
    options = {"endpoint_url": s3_endpoint, "key": "test-key", "secret": "test-key"}
    assert open_storage(s3_root, storage_options=options).read("a.json") == b"x"


def test_relative_roots_do_not_depend_on_later_directory_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    storage = open_storage("lake")
    monkeypatch.chdir("/")
    storage.create("a.json", b"x")
    assert (tmp_path / "lake/a.json").exists()


@pytest.mark.parametrize(
    "root",
    [
        *("", "   ", "http://host/x", "ftp://host/x", "sftp://host/x", "hdfs://host/x", "github://a/b", "dir://x"),
        *("s3://", "s3://key:SEKRET@bucket/x", "s3://SEKRET@bucket/x", "s3://bucket/x?sig=SEKRET", "s3://b/x#SEKRET"),
        *("simplecache::s3://bucket/x", "s3://b/x::file:///y", "abfs://user:SEKRET@account.dfs.core.windows.net/x"),
        *("file://host/x", "file:///a%20b", "a\0b", Path("s3://bucket/x"), b"/tmp/x", 7, None),
        *("s3://[bucket/x", "lake\ud800"),
    ],
)
def test_other_roots_are_refused_by_name_and_show_no_credentials(root: object) -> None:
    with pytest.raises(StorageRefused) as caught:
        open_storage(root)  # type: ignore[arg-type]
    assert "SEKRET" not in f"{caught.value}{caught.value.__cause__}{caught.value.__context__}"
    assert caught.value.hint


@pytest.mark.parametrize(("root", "why"), [("s3:/bucket/x", "two slashes"), (Path("s3://bucket/x"), "pathlib.Path")])
def test_a_url_with_one_slash_is_refused(root: str | Path, why: str) -> None:
    with pytest.raises(StorageRefused, match=why):
        open_storage(root)


def test_a_wrapping_file_system_is_refused(tmp_path: Path) -> None:
    from fsspec.implementations.dirfs import DirFileSystem
    from fsspec.implementations.local import LocalFileSystem

    class _Root:
        fs = DirFileSystem(str(tmp_path), LocalFileSystem())
        path = "x"

    with pytest.raises(StorageRefused, match="dir://"):
        open_storage(_Root())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "extra"), [("gs://bucket/x", "gcs"), ("abfs://c@account.dfs.core.windows.net/x", "azure")]
)
def test_a_missing_extra_is_named(url: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    monkeypatch.setitem(sys.modules, "adlfs", None)
    with pytest.raises(FeatureMissing, match=rf"pip install 'weblake\[{extra}\]'"):
        open_storage(url)


def test_local_roots_import_no_heavy_library(local_root: str) -> None:
    code = (
        "import sys; from weblake.dataset.ledger import Ledger; from weblake.dataset.ledger_listing import loads\n"
        "from weblake.storage import open_storage\n"
        "storage = open_storage(sys.argv[1]); storage.preflight('documents/k=1'); list(loads(Ledger(storage)))\n"
        "print([name for name in ('fsspec', 'pyarrow', 'pandas', 's3fs', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, local_root], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# --- memory ---


@pytest.mark.parametrize("root", ["", "ftp://host/lake", "memory://user:pass@x", 3])
def test_no_message_recommends_a_root_that_ends_with_the_process(root: object) -> None:
    with pytest.raises(StorageRefused) as caught:
        open_storage(root)  # type: ignore[arg-type]
    assert "memory://," not in str(caught.value)
    assert "memory" not in (caught.value.hint or "")


def test_only_a_root_in_memory_ends_with_the_process(local_root: str) -> None:
    refuse_memory(open_dataset(local_root), "this process")
    for root in ("memory://x/lake", "MEMORY://x", UPath("memory://x/lake")):
        with pytest.raises(StorageRefused, match="in the memory of this process and gone") as caught:
            refuse_memory(open_dataset(root), "this process", hint="Or so.")
        assert caught.value.hint == "Give a local path, s3://, gs:// or abfs://. Or so."
