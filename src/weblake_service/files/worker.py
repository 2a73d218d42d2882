"""The converter process: `python -P worker.py MEMORY`.

It reads tasks from standard input and writes results to standard output, until its input ends or its parent dies. The
process limits the effect of a malicious file: its memory is limited, it cannot write files, and the service kills it at
its deadline.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from weblake_service.files.conversion_messages import HEADER, MAX_RESULT_BYTES, ConversionResult, ConversionTask, pack

#: Linux: send this process a signal when its parent dies.
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Convert files until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with_parent()
    _limit(int(sys.argv[1]))
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # Output that a library prints must not be parsed as a result.
    os.dup2(2, 1)
    while (head := _read(source, HEADER.size)) is not None:
        task_length, body_length = HEADER.unpack(head)
        task, body = _read(source, task_length), _read(source, body_length)
        if task is None or body is None:
            return
        reply = pack(convert(msgspec.json.decode(task, type=ConversionTask), body))
        if len(reply) > MAX_RESULT_BYTES:
            reply = pack(ConversionResult(problem="large", detail=f"{len(reply)} bytes of text", peak=_peak_memory()))
        sink.write(reply)
        sink.flush()


def convert(task: ConversionTask, body: bytes) -> ConversionResult:
    """Convert one file in this process."""
    try:
        if task.kind == "pdf":
            from weblake_service.files.pdf import read_pdf

            result = read_pdf(body, task)
        elif task.kind in {"html", "text", "attributes", "media"}:
            from weblake_service.page.parse_process import convert_page

            result = convert_page(body, task)
        elif task.kind == "robots":
            from weblake_service.web.robots import ask, parse_rules

            answer = ask(parse_rules(body), task.named, task.base, task.options["agent"])
            result = ConversionResult(document={"answer": answer})
        elif task.kind == "sitemap":
            from weblake_service.web.sitemap import entries

            answer = entries(body, task.options["limit"], task.base, task.content_type)
            result = ConversionResult(document={"answer": answer})
        elif task.kind == "paths":
            from weblake_service.web.path_patterns import PathPatterns

            patterns = PathPatterns(task.options)
            result = ConversionResult(links=[text for text in task.options["texts"] if patterns.allows(text)])
        else:
            from weblake_service.files.office import read_office

            result = read_office(body, task)
    except MemoryError:
        raise
    except BaseException as error:  # noqa: BLE001 - a panic of the native converters is no Exception
        result = ConversionResult(problem="broken", detail=type(error).__name__)
    result.peak = _peak_memory()
    return result


def _read(source: BinaryIO, length: int) -> bytes | None:
    data = source.read(length)
    return data if len(data) == length else None


def _limit(memory: int) -> None:
    """Limit this process to the resources that a converter needs."""
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _die_with_parent() -> None:
    """Make the system kill this process with its parent, even during a conversion."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _peak_memory() -> int:
    """Return the peak memory of this process; 0 if the system does not report it."""
    # Not getrusage: its value is inherited from the parent process.
    with suppress(OSError, ValueError, StopIteration), Path("/proc/self/status").open("rb") as status:
        line = next(line for line in status if line.startswith(b"VmHWM:"))
        return int(line.split()[1]) << 10
    return 0


if __name__ == "__main__":
    main()
