"""How the ranks stand, from three sources: while a cell hangs, from another thread; and after it."""

import threading
import time

import pytest

from dtlearn.runtime.errors import DtlearnError, RanksTimeout
from dtlearn.runtime.output import Sink


def test_a_hang_is_shown_to_another_thread_and_still_after_it(world):
    found = []

    def look():
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            snapshot = world.diagnose()
            if [one.state for one in snapshot.ranks] == ["waits", "runs"] and snapshot.ranks[0].seconds > 1:
                found.append(snapshot)
                return
            time.sleep(0.05)

    asking = threading.Thread(target=look)
    asking.start()
    code = "import time\ndist.barrier()\nif rank == 1:\n    time.sleep(60)\ndist.all_reduce(torch.ones(4))"
    with pytest.raises(RanksTimeout):
        world.execute(code, timeout=3.0, sink=Sink())
    asking.join()
    waits, runs = found[0].ranks
    assert (waits.call.op, waits.call.group_seq, waits.line) == ("all_reduce", 1, f"line 5: {code.splitlines()[-1]}")
    assert (runs.call.op, runs.line, runs.seconds) == ("barrier", "line 4: time.sleep(60)", None)
    assert waits.conflict == ""
    if waits.trace:  # this torch has a flight recorder
        assert (waits.trace[-1].op, waits.trace[-1].done) == ("all_reduce", False)
        assert (runs.trace[-1].op, runs.trace[-1].done) == ("barrier", True)
    text = str(found[0])
    assert "rank 0  waits  all_reduce #2 SUM float32 (4,)  line 5" in text
    assert "rank 1  runs   last: barrier #1" in text
    assert "> #2  " in text
    after = world.diagnose()
    assert [one.state for one in after.ranks] == ["idle", "idle"]
    assert "all_reduce SUM float32 (4,)  line 5 (raised)" in str(after)


def test_ranks_that_have_done_nothing_are_idle(world):
    world.execute("", sink=Sink())
    assert [(one.state, one.call) for one in world.diagnose().ranks] == [("idle", None)] * 2


def test_a_rank_that_does_not_answer_and_one_that_is_dead_are_told(make_world):
    import os
    import signal

    world = make_world(3)
    os.kill(world.pids[1], signal.SIGSTOP)
    os.kill(world.pids[2], signal.SIGKILL)
    deadline = time.monotonic() + 5
    while world.ranks.processes[2].alive and time.monotonic() < deadline:
        world.ranks.listen()
    assert [one.state for one in world.diagnose().ranks] == ["idle", "does not answer", "dead"]
    world.stop()
    with pytest.raises(DtlearnError, match="these ranks were stopped"):
        world.diagnose()
