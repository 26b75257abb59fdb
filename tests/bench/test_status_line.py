import io
import sys
import threading
import time

from dtlearn.bench import status_line
from dtlearn.bench.status_line import say


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_it_says_what_is_measured_and_goes(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setattr(status_line, "_EVERY", 0.01)
    threads = threading.active_count()
    with status_line.status_line("bench fake"):
        say("round 1 of 2")
        deadline = time.monotonic() + 5
        while "round 1 of 2" not in terminal.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
        say("")
    assert "\r\x1b[Kbench fake: round 1 of 2 (0 s)" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert threading.active_count() <= threads


def test_without_a_terminal_each_stage_is_a_line(capsys):
    with status_line.status_line("bench fake"):
        say("round 1 of 2")
        say("round 2 of 2")
        say("")
    say("nothing runs")
    assert capsys.readouterr() == ("", "bench fake: round 1 of 2\nbench fake: round 2 of 2\n")
