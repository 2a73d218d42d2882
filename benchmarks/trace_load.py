"""Counts the modules and functions that one load runs through: what a maintainer has to hold in mind.

    uv run python benchmarks/trace_load.py            the first load of five pages by `weblake.land_batch`
    uv run python benchmarks/trace_load.py --modules  with the modules, each with the number of its functions

Starts the embedded service and a site of its own on loopback. `.ci/budget` has the bounds.
"""

from __future__ import annotations

import functools
import http.server
import os
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import weblake
from weblake.testing import WeblakeServiceProcess

SOURCE = str(Path(weblake.__file__).parent) + os.sep
NOT_FUNCTIONS = {"<module>", "<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>", "<lambda>"}


class LoadTrace(NamedTuple):
    """What one load ran through, and the files that it left in the root of the dataset."""

    functions: set[tuple[str, str]]
    files: list[Path]

    @property
    def modules(self) -> list[str]:
        """Their paths within the package."""
        return sorted({module for module, _ in self.functions})

    @property
    def lines(self) -> int:
        """The lines of these modules."""
        return sum(len(Path(SOURCE, module).read_text().splitlines()) for module in self.modules)


def trace_load() -> LoadTrace:
    """Land five pages with every call of a function of the package recorded, in each thread of this process."""
    functions = set[tuple[str, str]]()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCE) and code.co_name not in NOT_FUNCTIONS:
            functions.add((code.co_filename[len(SOURCE) :], getattr(code, "co_qualname", code.co_name)))

    with tempfile.TemporaryDirectory() as folder, WeblakeServiceProcess(Path(folder), {}) as service:
        site = Path(folder, "site")
        site.mkdir()
        for number in range(5):
            page = f"<html><title>{number}</title><body><h1>Page {number}</h1><p>text {number}</p></body></html>"
            Path(site, f"p{number}.html").write_text(page)
        handler = functools.partial(_Quiet, directory=str(site))
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            urls = [f"http://127.0.0.1:{server.server_port}/p{number}.html" for number in range(5)]
            with weblake.Client(service.url, service.key) as client:
                threading.setprofile(note)
                sys.setprofile(note)
                receipt = weblake.land_batch(urls, to=f"{folder}/lake", client=client, formats=["markdown"])
                sys.setprofile(None)
                threading.setprofile(None)
            server.shutdown()
        assert receipt.stored == 5, receipt
        return LoadTrace(functions, [path for path in Path(folder, "lake").rglob("*") if path.is_file()])


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    trace = trace_load()
    if "--modules" in sys.argv:
        for module, count in Counter(module for module, _ in trace.functions).most_common():
            print(f"{count:4} functions  {module}")
    print(
        f"modules {len(trace.modules)}, functions {len(trace.functions)}, lines {trace.lines}, "
        f"files written {len(trace.files)}"
    )


if __name__ == "__main__":
    main()
