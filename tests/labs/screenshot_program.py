"""Common parts of the programs that make the documentation's pictures: a local lake and the output folder."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headless_browser import Browser


@dataclass(frozen=True)
class Page:
    """A page at the time of its screenshot: its visible text, and its HTML with all fields' values."""

    text: str
    source: str


@dataclass(frozen=True)
class Tour:
    """Visits the pages of one address, and keeps them by the names of their pictures.

    Pages without a picture are kept too, under names without `.png`.
    """

    url: str
    browser: Browser
    images: Path
    pages: dict[str, Page] = field(default_factory=dict)

    def visit(self, path: str) -> None:
        """Go to a page; the caller waits for its content."""
        self.browser.open(f"{self.url}{path}")

    def look(self, name: str, *texts: str) -> None:
        """Keep the page once all of these texts are visible, and a picture if the name is that of one."""
        text = self.browser.wait_for(*texts)
        if name.endswith(".png"):
            self.browser.screenshot(self.images / name)
        self.pages[name] = Page(text, self.browser.source())


@contextmanager
def lake_server(bucket: str) -> Iterator[str]:
    """Yield the address of a local S3 server with a bucket in it; its key and secret are `test-key`."""
    import boto3
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        access = {"aws_access_key_id": "test-key", "aws_secret_access_key": "test-key", "region_name": "us-east-1"}
        boto3.client("s3", endpoint_url=url, **access).create_bucket(Bucket=bucket)
        yield url
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def make_pictures(
    text: str | None, images: Path, make: Callable[[Path], object], arguments: Sequence[str] | None = None
) -> int:
    """Run the program: `make` gets a folder with `example`, `browser` and `images`, and fills the last.

    Prints where the pictures are; nothing is replaced unless all could be made.
    """
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=images, help="the directory (docs/images)")
    into: Path = parser.parse_args(arguments).into
    with tempfile.TemporaryDirectory(prefix="weblake-pictures-") as temporary:
        folder = Path(temporary)
        for name in ("example", "browser", "images"):
            (folder / name).mkdir()
        make(folder)
        into.mkdir(parents=True, exist_ok=True)
        for picture in sorted((folder / "images").iterdir()):
            (into / picture.name).write_bytes(picture.read_bytes())
            sys.stdout.write(f"{into / picture.name}: {picture.stat().st_size >> 10} KiB\n")
    return 0
