"""A helper in a new interpreter. Its modules are written here; the real ones have their own tests."""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap

import pytest

from dtlearn.runtime.errors import LaunchError
from dtlearn.runtime.machine.helper_process import HelperProcess, OnePerProcess
from dtlearn.runtime.machine.patience import Patience

ECHO = """
import os, signal, sys
def main(*numbers):
    print(numbers, os.environ.get("EXTRA"), signal.getsignal(signal.SIGINT) is signal.default_int_handler, flush=True)
    print("ready for", sys.stdin.readline().strip(), file=sys.stderr)
"""


@pytest.fixture
def module(monkeypatch, tmp_path):
    """Writes a module that a helper can run; returns its name."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def write(text):
        (tmp_path / "played_helper.py").write_text(textwrap.dedent(text))
        return "played_helper"

    return write


def test_it_calls_main_with_numbers_in_a_session_of_its_own(module):
    helper = HelperProcess(module(ECHO), [3, 5], environment={"EXTRA": "more"}, piped=True)
    try:
        assert helper.alive and os.getsid(helper.pid) == helper.pid
        assert helper.stdout.readline() == b"(3, 5) more True\n"
        helper.stdin.write(b"work\n")
        helper.stdin.flush()
        assert helper.exit_code == 0
        assert helper.last_words() == ["ready for work"]
    finally:
        helper.close(5)
    assert not helper.alive and helper.last_words() == []


def test_it_inherits_a_descriptor_under_its_number(module):
    read, write = os.pipe()
    helper = HelperProcess(
        module("import os\ndef main(number):\n    os.write(number, b'here')\n"), [write], descriptors=[write]
    )
    os.close(write)
    try:
        assert os.read(read, 10) == b"here" and helper.stdin is None
    finally:
        helper.close(5)
        os.close(read)


def test_its_input_closes_and_it_may_finish_what_it_does(module, tmp_path):
    end = tmp_path / "the end"
    text = f"import sys, time\ndef main():\n    sys.stdin.read()\n    time.sleep(0.2)\n    open({str(end)!r}, 'w')\n"
    HelperProcess(module(text), piped=True).close(10)
    assert end.exists()


def test_one_that_does_not_end_in_time_is_ended(module):
    helper = HelperProcess(module("import time\ndef main():\n    time.sleep(100)\n"), piped=True)
    helper.close(0.2)
    assert helper.exit_code == -signal.SIGKILL


def test_why_it_could_not_start_is_in_its_last_words(module):
    helper = HelperProcess(module("raise SystemExit('no torch here')"))
    try:
        assert helper.exit_code == 1 and helper.last_words() == ["no torch here"]
    finally:
        helper.close(1)


def test_no_place_for_its_log_is_told_with_advice(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/no/such/folder")
    with pytest.raises(LaunchError, match="set TMPDIR"):
        HelperProcess("none")


def test_it_can_be_interrupted_when_its_owner_ignores_interrupts(module):
    """As a program does that a script started in the background."""
    module(ECHO)
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from dtlearn.runtime.machine.helper_process import HelperProcess\n"
        "helper = HelperProcess('played_helper', piped=True)\n"
        "print(helper.stdout.readline().decode())\nhelper.close(5)\n"
    )
    path = os.pathsep.join([os.environ["PYTHONPATH"], *filter(None, sys.path)])
    found = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert found.stdout.strip() == "() None True", found.stderr


class Held:
    def __init__(self, name):
        self.process, self.ended = HelperProcess(name, piped=True), 0

    def end(self):
        self.ended += 1
        self.process.close(5)


@pytest.fixture
def kept(module):
    name = module(ECHO)
    kept = OnePerProcess(lambda: Held(name))
    yield kept
    kept.end()


def test_there_is_one_which_stays(kept):
    first = kept.get()
    assert kept.get() is first and first.ended == 0
    kept.end()
    assert first.ended == 1
    assert kept.get() is not first


def test_one_that_died_is_replaced(kept):
    first = kept.get()
    os.kill(first.process.pid, signal.SIGKILL)
    assert first.process.exit_code == -signal.SIGKILL
    assert kept.get() is not first and kept.current.process.alive
    assert first.ended == 1


def test_a_forked_child_uses_one_of_its_own_and_leaves_its_parents_alone(kept, monkeypatch):
    first = kept.get()
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: first.process.pid)
        assert not first.process.ours and not first.process.alive
        kept.end()
        own = kept.get()
        assert own is not first and first.ended == 0
        kept.end()
        assert own.ended == 1
    kept.current = first
    assert first.process.alive


def test_lines_of_json_go_to_it_and_come_back_until_it_ends(tmp_path, monkeypatch):
    (tmp_path / "echo_helper.py").write_text(
        "import sys\ndef main():\n    for line in sys.stdin:\n        print(line.strip(), flush=True)\n"
        "        if 'last' in line:\n            return\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    helper = HelperProcess("echo_helper", piped=True)
    try:
        helper.send({"id": 1, "text": "x" * 100_000})
        helper.send(["two"])
        assert helper.receive(Patience(30)) == {"id": 1, "text": "x" * 100_000}
        assert helper.receive(Patience(30)) == ["two"]
        assert helper.receive(Patience(0.05)) is None
        helper.send("last")
        assert helper.receive(Patience(30)) == "last"
        with pytest.raises(EOFError):
            helper.receive(None)
    finally:
        helper.close(5)


def test_one_that_was_stopped_is_ended_by_who_waits_for_it(module):
    helper = HelperProcess(
        module("import os, signal\ndef main():\n    os.kill(os.getpid(), signal.SIGSTOP)\n"), piped=True
    )
    try:
        with pytest.raises(EOFError):
            helper.receive(None)
        assert helper.exit_code == -signal.SIGKILL and "stopped by a signal" in helper.ending
    finally:
        helper.close(5)
