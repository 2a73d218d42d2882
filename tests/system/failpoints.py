"""Runs of weblake's command line in processes that die, or get a disk error, at the Nth change of their root.

This program imports weblake once, and forks for each line of standard input, `{"root", "args", "at", "errno", "signal",
"log"}`; it prints `{"code"}`. A child counts the changes that Python makes below the root (audit hooks for names,
replaced files for contents, and fsync); before the Nth it sends itself the signal or raises OSError. Each point is
logged before it is counted. Without a root nothing is counted. weblake itself is not changed, except that it polls its
job sooner.
"""

from __future__ import annotations

import builtins
import io
import json
import os
import sys
from contextlib import suppress
from typing import Any

NAMES = {"os.link": 2, "os.rename": 2, "os.mkdir": 1, "os.remove": 1, "os.rmdir": 1, "os.symlink": 2, "os.truncate": 1}
_CREATES = os.O_CREAT | os.O_TRUNC


class Failpoints:
    """Counts the changes below a root, and causes a fault at one of them."""

    def __init__(self, root: str, at: int, number: int, signal_number: int, log: str) -> None:
        self._root = root
        self._at = at
        self._errno = number
        self._signal = signal_number
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._passed = 0

    def point(self, name: str, *paths: str) -> None:
        """Count a change that is about to happen, if it is below the root."""
        below = [path[len(self._root) :] for path in paths if path == self._root or path.startswith(f"{self._root}/")]
        if not below:
            return
        self._passed += 1
        os.write(self._log, f"{name} {' -> '.join(below)}\n".encode())
        if self._passed == self._at:
            if self._errno:
                raise OSError(self._errno, os.strerror(self._errno))
            os.kill(os.getpid(), self._signal)

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        """Handle Python's audit events for changes of names."""
        if event == "open":
            path, _, flags = args
            if isinstance(flags, int) and flags & _CREATES and not isinstance(path, int):
                self.point("open", _path(path))
        elif event in NAMES:
            last = (
                args[-1] if isinstance(args[-1], int) and args[-1] >= 0 and event in ("os.remove", "os.rmdir") else -1
            )
            self.point(event, *(_path(each, last) for each in args[: NAMES[event]]))

    def install(self) -> None:
        """Start counting in this process."""
        points, real_fsync, real_open = self, os.fsync, io.open

        class Counted(io.FileIO):
            """A file whose every write is a point."""

            def write(self, data: Any, /) -> int:
                points.point("write", _path(self.name))
                return super().write(data)

        def fsync(descriptor: int) -> None:
            name = ""
            with suppress(OSError):
                name = os.readlink(f"/proc/self/fd/{descriptor}")
            points.point("fsync", name)
            real_fsync(descriptor)

        def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if "b" not in mode or not set(mode) & set("wxa+") or isinstance(file, int):
                return real_open(file, mode, *args, **kwargs)
            raw = Counted(os.fspath(file), mode.replace("b", ""))
            return io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)

        import pyarrow as pa

        def sink(path: str, mode: str) -> Any:
            # Arrow writes in C++, which cannot be counted: here it writes through Python.
            return pa.PythonFile(Counted(path, mode.replace("b", "")), mode="w")

        os.fsync = fsync
        io.open = builtins.open = opened  # type: ignore[assignment]
        pa.OSFile = sink
        sys.addaudithook(self.hook)


def _path(path: Any, directory: int = -1) -> str:
    text = os.fsdecode(path)
    if text.startswith("/") or directory < 0:
        return os.path.abspath(text)
    return f"{os.readlink(f'/proc/self/fd/{directory}')}/{text}"


def _child(order: dict[str, Any]) -> None:
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{order['log']}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    if order["root"]:
        Failpoints(order["root"], order["at"], order["errno"], order["signal"], order["log"]).install()
    from weblake import cli

    sys.argv = ["weblake", *order["args"]]
    cli.main()


def _forked(order: dict[str, Any]) -> int:
    child = os.fork()
    if child == 0:
        code: object = 0
        try:
            _child(order)
        except SystemExit as end:
            code = end.code
        except BaseException as error:  # noqa: BLE001  # a fault of this program or of weblake, to be told
            print(f"{error!r}", file=sys.stderr)
            code = 70
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> None:
    import weblake.cli.landing
    import weblake.loads.landing
    import weblake.loads.load  # noqa: F401
    from weblake.jobs import polling

    polling.wait.__kwdefaults__["first_s"] = 0.02  # the jobs take a few milliseconds

    for line in sys.stdin:
        print(json.dumps({"code": _forked(json.loads(line))}), flush=True)


if __name__ == "__main__":
    main()
