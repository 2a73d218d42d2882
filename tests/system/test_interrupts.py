"""Ctrl-C ends a command at any point of the program: where Python loses the interrupt, at startup, at shutdown."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from catalogue import proves

#: The demo command, with lines of a test in place of its work.
RUN = """
import atexit, os, signal, sys, time, weakref
import weblake.demo
from weblake import cli
from weblake.cli import interrupts

interrupts._REPEAT_S = 0.2

def press():
    os.kill(os.getpid(), signal.SIGINT)

class Thing:
    pass

def work(*given, **options):
    print("at work", flush=True)
{work}
weblake.demo.run_demo = work
sys.argv = ["weblake", "demo"]
cli.main()
"""

IN_A_CALLBACK = """
    thing = Thing()
    kept = weakref.ref(thing, lambda _: press())
    del thing
    time.sleep(600)
"""
IN_A_FINALIZER = """
    Thing.__del__ = lambda self: press()
    Thing()
    time.sleep(600)
"""
SWALLOWED = """
    try:
        press()
        time.sleep(600)
    except BaseException:
        pass
    time.sleep(600)
"""
SWALLOWED_AT_THE_END = """
    try:
        press()
        time.sleep(600)
    except BaseException:
        pass
"""
MADE_AN_ERROR = """
    try:
        press()
        time.sleep(600)
    except BaseException:
        from weblake.errors import FixRequest
        raise FixRequest("It did not work.", hint="Try it again.") from None
"""
WHILE_PYTHON_CLOSES = """
    atexit.register(press)
"""
WHILE_IT_CLEANS_UP = """
    try:
        press()
        time.sleep(600)
    finally:
        time.sleep(0.5)  # longer than the interrupt takes to come again
        print("cleaned up", flush=True)
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)


@pytest.mark.system
@proves("P9", at="src/weblake/cli/interrupts.py", line="_REPEAT_S, _REPEAT_S)", becomes="0)", case="swallowed")
@pytest.mark.parametrize(
    "work",
    [
        pytest.param(IN_A_CALLBACK, id="callback"),
        pytest.param(IN_A_FINALIZER, id="finalizer"),
        pytest.param(SWALLOWED, id="swallowed"),
        pytest.param(SWALLOWED_AT_THE_END, id="swallowed-at-the-end"),
        pytest.param(MADE_AN_ERROR, id="error"),
        pytest.param(WHILE_PYTHON_CLOSES, id="closing"),
    ],
)
def test_p9_a_swallowed_interrupt_still_ends_the_command(work: str) -> None:
    ended = run(RUN.format(work=work))
    assert (ended.returncode, "Traceback" in ended.stderr) == (130, False), ended.stderr
    assert ended.stdout == "at work\n"


WHILE_IT_WAITS = """
import os, signal, sys, threading
from weblake.cli.interrupts import end_on_ctrl_c, exit_on_termination

def receive():
    # The other thread takes the signal: nothing interrupts the call that the main thread waits in, as if the signal had
    # come just before it.
    signal.pthread_kill(threading.get_ident(), signal.{number})

with end_on_ctrl_c(), exit_on_termination():
    print("at work", flush=True)
    ours, theirs = os.pipe()
    threading.Timer(0.1, receive).start()
    {wait}
"""


@proves("P9", at="src/weblake/cli/interrupts.py", line="_REPEAT_S, _REPEAT_S)", becomes="0)")
@pytest.mark.parametrize(("number", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
@pytest.mark.parametrize("wait", ["os.read(ours, 1)", "threading.Event().wait()"], ids=["a-line", "a-lock"])
def test_p9_a_signal_just_before_a_blocking_call_ends_it(wait: str, number: str, code: int) -> None:
    ended = run(WHILE_IT_WAITS.format(wait=wait, number=number))
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "at work\n", "")


@pytest.mark.system
@proves("P9", at="src/weblake/cli/interrupts.py", line="KeyboardInterrupt | SystemExit)", becomes="KeyError)")
def test_p9_a_handled_interrupt_does_not_cut_cleanup_short() -> None:
    ended = run(RUN.format(work=WHILE_IT_CLEANS_UP))
    assert (ended.returncode, ended.stdout) == (130, "at work\ncleaned up\n"), ended.stderr


def test_p9_an_interrupt_during_imports_ends_the_command() -> None:
    """A command imports Typer, Rich and Arrow, which takes a second on a busy machine."""
    program = """
import os, signal, sys
from weblake import cli

class Pressing:
    def find_spec(self, name, path, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Pressing())
sys.argv = ["weblake", "demo"]
cli.main()
"""
    ended = run(program)
    assert (ended.returncode, ended.stderr) == (130, "")


def test_p9_a_signal_ignored_by_the_parent_stays_ignored() -> None:
    ended = run("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n" + RUN.format(work="    press()\n"))
    assert (ended.returncode, ended.stdout) == (0, "at work\n"), ended.stderr


@pytest.mark.system
@proves("P9", at="src/weblake_service/serve.py", line="set_wakeup_fd(sender", becomes="set_wakeup_fd(-1 or sender")
def test_p9_a_signal_at_any_line_stops_the_service() -> None:
    """The first line of standard output says that the service listens, and a program may stop it immediately."""
    program = """
import itertools, os, signal, sys, threading
from weblake_service.serve import _signal_handlers

def press():
    os.kill(os.getpid(), signal.SIGINT)

def pressed_at(line):
    seen, pressed = 0, False

    def trace(frame, event, argument):
        nonlocal seen, pressed
        if event == "line":
            seen += 1
            if seen == line:
                pressed = True
                press()
        return trace

    def no_more_lines():
        nonlocal line
        before = 0
        while not over.wait(0.5):
            if before == seen > 0:  # it waits
                line = 0
                return press()
            before = seen

    over = threading.Event()
    with _signal_handlers() as wait_for_signal:
        later = threading.Thread(target=no_more_lines)
        later.start()
        sys.settrace(trace)
        number = wait_for_signal()
        sys.settrace(None)
        over.set()
    assert number == signal.SIGINT
    later.join()
    return pressed

signal.signal(signal.SIGINT, lambda *_: None)
print(next(line for line in itertools.count(1) if not pressed_at(line)) > 1)
"""
    ended = run(program)
    assert (ended.stdout, ended.stderr) == ("True\n", "")


@pytest.mark.system
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_p9_the_service_stops_cleanly_and_names_the_signal(tmp_path: object, number: int, code: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "weblake", "serve", "--port", "0", "--data", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()  # it listens
        process.send_signal(number)
        _, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait(10)
    assert (process.returncode, "Traceback" in err, "Stopping" in err) == (code, False, True), err
