import pytest

from dtlearn.runtime.faults.stacks import Frame, Stuck
from dtlearn.runtime.watch.stalls import Pace, judge, waiting_line
from tests.runtime.events import Rank

CALL = "its 3rd all_reduce, line 25: dist.all_reduce(t)"


def waits(rank, call=CALL):
    return Stuck(rank, "waits", call)


def runs(rank, line=39, cpu=None, loop=None, name="work", inside=""):
    frames = (Frame("my.py", line, name, "x = x + 1", loop, inside),)
    return Stuck(rank, "runs", "", tuple(map(str, frames)), frames, cpu)


def test_a_line_is_due_after_3_seconds_and_then_ever_more_rarely():
    pace = Pace()
    due = [seconds / 10 for seconds in range(3000) if pace.due(seconds / 10)]
    assert due == [3, 10, 30, 60, 120, 180, 240]
    assert not pace.due(0.5)  # the wait has ended
    assert not pace.due(2.9)
    assert pace.due(3.1)


def test_a_look_that_comes_late_shows_one_line_only():
    pace = Pace()
    assert [pace.due(seconds) for seconds in (45, 46, 61)] == [True, False, True]


def test_the_line_names_who_waits_where_and_who_computes_where():
    line = waiting_line([waits(0), runs(1)], 3.2)
    assert line == "3 s: rank 0 waits in its 3rd all_reduce, line 25; rank 1 is running, at line 39: x = x + 1"
    line = waiting_line([waits(0), waits(2), runs(1), Stuck(3, "ended")], 10.4)
    assert line.startswith("10 s: ranks 0 and 2 wait in their 3rd all_reduce, line 25; rank 1 is running")


def test_no_line_unless_some_wait_and_some_compute():
    assert waiting_line([runs(0), runs(1)], 5) == ""
    assert waiting_line([waits(0), waits(1)], 5) == ""


@pytest.mark.parametrize(
    ("before", "after", "code", "says"),
    [
        (runs(1, 39, loop=("while", 38, 40)), runs(1, 40, loop=("while", 38, 40)), "DTL-LOOP", "lines 38-40"),
        (runs(1, loop=("while", 39, 39)), runs(1, loop=("while", 39, 39)), "DTL-LOOP", "at line 39 between"),
        (runs(1, cpu=1.0), runs(1, cpu=1.4), "DTL-LOOP", "computed all the time"),
        (runs(1, cpu=1.0), runs(1, cpu=1.0), "DTL-STRAGGLER", "without computing"),
        (runs(1), runs(1), "DTL-STRAGGLER", "stayed at line 39"),
        (runs(1, 39), runs(1, 44), "DTL-STRAGGLER", "went on from line 39"),
        (runs(1, loop=("for", 38, 40)), runs(1, loop=("for", 38, 40)), "DTL-STRAGGLER", "stayed in the `for` loop"),
        (runs(1, 9, loop=("while", 8, 9)), runs(1, 39), "DTL-STRAGGLER", "went on from line 9"),
        (waits(1), runs(1), "DTL-STRAGGLER", "came to line 39"),
    ],
)
def test_two_looks_tell_a_loop_from_progress(before, after, code, says):
    event = Rank(0).call(done=False).calls[0]
    found = judge([waits(0), before], [waits(0), after], {0: event})
    assert (found.code, found.ranks) == (code, (1,))
    assert found.headline.startswith("rank 0 waits; rank 1 ") and says in found.headline
    assert found.calls == {0: event, 1: None}
    assert f"rank 1  runs   {after.stack[-1]}" in str(found)


def test_ranks_that_loop_while_nobody_waits_are_a_loop_only_if_all_do():
    loop = {"loop": ("while", 1, 2)}
    assert judge([runs(0, **loop), runs(1, **loop)], [runs(0, **loop), runs(1, **loop)], {}).code == "DTL-LOOP"
    assert judge([runs(0, **loop), runs(1)], [runs(0, **loop), runs(1)], {}).code == "DTL-TIMEOUT"


def test_who_waits_in_torch_for_a_rank_that_does_not_come_is_named():
    one = Stuck(0, "waits", "init_process_group, line 3", (), (Frame("my.py", 3, "f", "", None, "init_process_group"),))
    found = judge([one, Stuck(1, "ended")], [one, Stuck(1, "ended")], {})
    assert (found.code, found.ranks) == ("DTL-INIT", (1,))
    assert found.headline == "rank 0 waits in init_process_group; rank 1 is not in it: not yet, or no more"
    assert judge([one], [one], {}).headline == "rank 0 waits in init_process_group, and does not find the others"


def test_when_all_wait_nothing_is_claimed():
    assert judge([waits(0), waits(1)], [waits(0), waits(1)], {}).code == "DTL-TIMEOUT"


def test_a_process_that_was_stopped_is_no_straggler():
    found = judge([waits(0), Stuck(1, "runs", stopped=True)], [waits(0), Stuck(1, "runs", stopped=True)], {})
    assert (found.code, found.ranks) == ("DTL-RANK-STOPPED", (1,))
    assert found.headline == "rank 1 is stopped by a signal, and is not running"
