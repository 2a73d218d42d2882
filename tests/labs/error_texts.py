"""All texts of an error that can be observed, for searches in them."""

from __future__ import annotations

import pickle
import traceback

from catalogue import TESTS

from weblake.errors import WeblakeError


def all_texts_of(error: BaseException, *, frames: bool = True) -> list[str]:
    """Return all texts of an error that a log, a debugger or another process can see, including our frames' locals.

    Frames of the tests are left out: they hold the key that they gave. Without `frames`, all locals are left out: those
    of functions that read a response hold its text.
    """
    told = [str(error), repr(error), repr(vars(error)) if frames else "", repr(error.args), repr(pickle.dumps(error))]
    if isinstance(error, WeblakeError):
        told.append(repr(error.to_dict()))
    found: list[traceback.TracebackException] = [
        traceback.TracebackException.from_exception(error, capture_locals=True)
    ]
    ours = 0
    for each in found:
        found += [inner for inner in (each.__cause__, each.__context__) if inner is not None]
        told += each.format_exception_only()
        for frame in each.stack:
            if frames and not frame.filename.startswith(str(TESTS)):
                ours += 1
                told.append(f"{frame.filename}:{frame.lineno}: {frame.locals}")
    assert ours or not frames, "the search finds frames"
    return told
