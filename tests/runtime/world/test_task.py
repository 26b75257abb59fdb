"""What is known of a cell while it runs: where ranks stand for certain, and the line on who waits for whom."""

import os
import signal
import threading

import pytest

from dtlearn.runtime.errors import RanksTimeout
from dtlearn.runtime.machine.patience import TO_ANSWER_BRIEFLY, Patience
from dtlearn.runtime.output import Sink
from dtlearn.runtime.world.cell import Cell
from dtlearn.runtime.world.standing import ask_standing
from tests.runtime.conftest import Shown


class Noted(Shown):
    """Keeps the notices too."""

    def __init__(self):
        super().__init__()
        self.notices = []

    def notice(self, text):
        self.notices.append(text)


def test_a_line_says_who_waits_for_whom_and_goes_when_nobody_waits(world):
    shown = Noted()
    world.execute(
        "import time\ndist.barrier()\nif rank == 1:\n    time.sleep(3.6)\ndist.all_reduce(torch.ones(1))\n"
        "time.sleep(0.3)",
        sink=shown,
    )
    line, end = shown.notices
    call = "rank 0 waits in its 1st all_reduce, line 5"
    assert line == f"3 s: {call}; rank 1 is running, at line 4: time.sleep(3.6)"
    assert end == ""


def test_a_cell_that_nobody_waits_in_has_no_line(world):
    shown = Noted()
    world.execute("import time\ntime.sleep(3.4)", sink=shown)
    assert shown.notices == []


def test_a_rank_that_holds_the_interpreter_is_found_at_its_line(world):
    code = "import re\nif rank == 1:\n    re.match(r'(a+)+$', 'a' * 40 + 'b')\ndist.barrier()"
    with pytest.raises(RanksTimeout) as caught:
        world.execute(code, timeout=1.0, sink=Sink())
    assert "rank 1 is running, at line 3: re.match(r'(a+)+$', 'a' * 40 + 'b')" in str(caught.value)
    assert caught.value.code == "DTL-LOOP"


HOLDS = "import re\nif rank == 1:\n    re.match(r'(a+)+$', 'a' * 40 + 'b')\n"
STOPS = "import os, signal\nif rank == 1:\n    os.kill(os.getpid(), signal.SIGSTOP)\n"


@pytest.mark.parametrize(("code", "says"), [(HOLDS, "rank 1 is running, at line 3"), (STOPS, "rank 1 is stopped")])
def test_a_time_limit_is_not_prolonged_by_a_rank_that_cannot_answer(world, monkeypatch, code, says):
    """On a busy machine patience with an answer that never comes is several times its seconds."""
    shown, waited = Noted(), []

    def ask(*args, seconds):
        waited.append(seconds)
        return ask_standing(*args, seconds=seconds)

    monkeypatch.setattr("dtlearn.runtime.world.task.ask_standing", ask)
    world.push(kept="still here")
    with pytest.raises(RanksTimeout, match="did not finish within 1 s") as caught:
        world.execute(code + "dist.barrier()", timeout=1.0, sink=shown)
    # Variables are spoken of only where groups are made again: a rank that goes on after its stop may still reach the
    # barrier before the interrupt does, and then nothing was broken.
    assert says in str(caught.value) and "lost" not in str(caught.value)
    assert "the time limit of 1 s has passed: the ranks are looked at and interrupted" in shown.notices
    assert max(waited) == TO_ANSWER_BRIEFLY
    assert world.gather("kept") == ["still here"] * 2


def test_a_rank_that_has_not_begun_the_cell_is_not_taken_for_idle(world):
    os.kill(world.pids[1], signal.SIGSTOP)
    cell = Cell(world.ranks, "x = 1", [0, 1], 1, Sink())
    try:
        cell.wait(0.5)
        states = {one.rank: one for one in cell.where(0.2)}
        assert states[0].state == "ended"
        assert states[1].state == "runs"  # it does not answer at all
    finally:
        os.kill(world.pids[1], signal.SIGCONT)
    assert cell.follow(Patience(10, world.pids).over)


@pytest.mark.parametrize(
    ("begun", "ended", "state"),
    [(-1, -1, "runs"), (0, -1, "runs"), (0, 0, "ended")],
    ids=["not begun", "begun", "ended"],
)
def test_the_number_of_the_cell_tells_for_certain_how_far_a_rank_is(world, monkeypatch, begun, ended, state):
    cell = Cell(world.ranks, "import time; time.sleep(0.5)", [0], 1, Sink())
    told = {
        "begun": cell.number + begun,
        "ended": cell.number + ended,
        "frames": [],
        "inside": None,
        "cpu_seconds": 0.0,
    }
    with monkeypatch.context() as patch:
        patch.setattr("dtlearn.runtime.world.standing.ask_all", lambda links, *_, **__: [(told, b"")] * len(links))
        assert [one.state for one in cell.where()] == [state]
    cell.wait(5.0)


def test_where_is_asked_from_two_threads_at_once(world):
    found, cell = [], Cell(world.ranks, "import time; time.sleep(1.0)", [0, 1], 1, Sink())

    def ask():
        found.extend(world.status() for _ in range(10))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert {one.state for one in cell.where()} <= {"runs", "ended"}
    for thread in threads:
        thread.join()
    cell.wait(5.0)
    assert len(found) == 20 and all(row["state"] != "does not answer" for rows in found for row in rows)
