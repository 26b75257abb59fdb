import os
import sys
import time

import pytest
import torch

from dtlearn.runtime.faults.stacks import Frame, cpu_seconds, enclosing_loop, own_frames, read_stack

SOURCE = """\
def helper():
    return 1
while helper():
    x = 1
    for i in range(3):
        helper()
    def inner():
        pass
"""


@pytest.mark.parametrize(
    ("line", "loop"),
    [(2, None), (3, ("while", 3, 8)), (4, ("while", 3, 8)), (6, ("for", 5, 6)), (8, None), (99, None)],
)
def test_the_innermost_loop_around_a_line(line, loop):
    assert enclosing_loop(SOURCE, line) == loop


def test_text_that_is_no_python_has_no_loops():
    assert enclosing_loop("%%time\nwhile True: pass", 2) is None


def test_a_stack_shows_the_learners_frames_only(tmp_path):
    path = tmp_path / "stack.txt"
    path.write_text(
        'Thread 0x1 (most recent call first):\n  File "/home/x/other.py", line 5 in other\n\n'
        "Current thread 0x2 (most recent call first):\n"
        f'  File "{torch.__file__}", line 1 in wait\n  File "/home/x/my.py", line 8 in inner\n'
        '  File "/home/x/my.py", line 3 in <module>\n  File "<frozen runpy>", line 9 in run\n'
        '  File "<string>", line 1 in x\n'
    )
    assert list(map(str, read_stack(path))) == ["line 3 in <module>", "line 8 in inner"]
    assert read_stack(tmp_path / "none") == ()


def test_source_that_exists_elsewhere_is_quoted(tmp_path):
    path = tmp_path / "stack.txt"
    path.write_text('Current thread 0x2 (most recent call first):\n  File "/far/cell.py", line 4 in <module>\n')
    (frame,) = read_stack(path, lambda file: SOURCE if file == "/far/cell.py" else "")
    assert frame == Frame("/far/cell.py", 4, "<module>", "x = 1", ("while", 3, 8), "")
    assert str(frame) == "line 4: x = 1"


def test_a_function_of_torch_that_waits_for_ranks_is_seen_below_the_learners_frame():
    inner = str(torch.__file__)
    stack = [("/x/my.py", 3, "main"), (inner, 1, "wrapper"), (inner, 2, "init_process_group"), (inner, 3, "get")]
    assert [frame.inside for frame in own_frames(stack)] == ["init_process_group"]
    stack += [("/x/hook.py", 1, "hook")]
    assert [frame.inside for frame in own_frames(stack)] == ["init_process_group", ""]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_cpu_time_grows_with_work_and_not_with_sleep():
    before = cpu_seconds(os.getpid())
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    after = cpu_seconds(os.getpid())
    time.sleep(0.2)
    assert after - before >= 0.15
    assert cpu_seconds(os.getpid()) - after < 0.1
    assert cpu_seconds(2**30) is None
