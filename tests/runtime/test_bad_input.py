"""Learners' code that does what no rank should do, in `run_ranks` and in cells: it ends, is explained, and the next
run or cell works."""

import os
import signal
import sys
import time

import pytest
import torch
import torch.distributed as dist

from dtlearn.runtime.errors import CellError, RankError, RanksInterrupted, RanksTimeout
from dtlearn.runtime.output import CELL_LIMIT
from dtlearn.runtime.run import run_ranks
from tests.runtime.conftest import Shown
from tests.runtime.strays import all_gone, lives


@pytest.fixture
def works(world, cell):
    """Checks that the next cell runs on every rank, with a collective."""

    def check():
        shown = cell("t = torch.ones(1)\ndist.all_reduce(t)\nprint(t.item())")
        # What a copy printed as it ended may come late.
        assert [shown.text(r).splitlines()[-1] for r in range(2)] == ["2.0"] * 2

    return check


# Code that wants to stay.

STUBBORN = """
import time
print("go", flush=True)
while True:
    try:
        time.sleep(0.01)
    except BaseException:
        pass
"""


def stubborn():
    exec(STUBBORN, {})


def test_code_that_swallows_every_exception_ends_at_the_time_limit():
    begun = time.monotonic()
    with pytest.raises(RanksTimeout, match="is running, at line"):
        run_ranks(stubborn, 2, timeout=1.0)
    assert time.monotonic() - begun < 10


# An interrupt may come between the opening of a file and the line after it: the file is closed, with a warning.
anywhere = pytest.mark.filterwarnings(
    "ignore:unclosed file:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@anywhere
def test_code_that_swallows_every_exception_ends_at_an_interrupt(interrupt):
    interrupt(seconds=0.5)
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_ranks(stubborn, 2, timeout=60)
    assert time.monotonic() - begun < 10


@anywhere
def test_a_cell_that_swallows_every_exception_ends_at_an_interrupt(cell, works, interrupt):
    with pytest.raises(RanksInterrupted, match="did not answer and had to be ended"):
        cell(STUBBORN, when_it_says_go=interrupt)
    works()


@pytest.mark.parametrize(
    "code", ["signal.pause()", "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65)); signal.pause()"]
)
def test_waiting_for_a_signal_ends_at_the_time_limit(code):
    with pytest.raises(RanksTimeout):
        run_ranks(lambda: exec(code, {"signal": signal}), 1, timeout=1.0)


# Code that ends early, or cuts its lines.


@pytest.mark.parametrize(
    ("end", "says"),
    [
        ("os._exit(3)", r"ended \(exit code 3\) before it finished\nSomething ended the process early"),
        ("os.abort()", r"killed by signal 6 \(SIGABRT\)\nThe process crashed in native code"),
        ("os.kill(os.getpid(), 9)", r"killed by signal 9 \(SIGKILL\)\nThe usual reason is"),
        ("os.kill(os.getppid(), 9)", "helper process that starts ranks is gone"),
        ("os.closerange(3, 256)", "ended: its line to this program was closed"),
    ],
)
def test_a_rank_that_ends_itself_is_explained(end, says):
    def work():
        exec(end, {"os": os})
        time.sleep(0.2)

    with pytest.raises(RankError, match=says):
        run_ranks(work, 2, timeout=20, init_group=False)
    assert run_ranks(lambda: 1, 2).values == [1, 1]


@pytest.mark.parametrize("end", ["os._exit(3)", "os.abort()", "os.kill(os.getppid(), 9)", "os.closerange(3, 256)"])
def test_a_cell_that_ends_its_rank_is_told_and_the_next_one_works(cell, works, end):
    with pytest.raises((CellError, RanksTimeout)) as caught:
        cell(f"import os, time\n{end}\ntime.sleep(20)", timeout=5)
    assert "got a new process" in str(caught.value)
    works()


def test_closing_everything_with_a_group_ends_too():
    def work():
        dist.barrier()
        os.closerange(3, 256)

    with pytest.raises((RankError, RanksTimeout)):
        run_ranks(work, 2, timeout=5)


@pytest.mark.parametrize(
    "code", ["sys.stdout = None", "sys.stdout = sys.stderr = 7", "sys.stdout.close()", "os.close(1)"]
)
def test_a_rank_without_an_output_still_returns(code):
    def work():
        exec(code, {"os": os, "sys": sys})
        return 5

    assert run_ranks(work, 1).values == [5]


def test_a_cell_that_replaces_its_output_harms_itself_only(cell, works):
    cell("import sys, io\nkeep = sys.stdout\nsys.stdout = io.StringIO()\nprint('lost')")
    cell("sys.stdout = keep")
    works()


# Code that forks.


def test_a_copy_that_comes_back_from_the_function_ends_and_says_nothing():
    def fork():
        return os.fork()

    result = run_ranks(fork, 2)
    assert all(pid > 0 for pid in result)
    assert all_gone(result.values)


def test_a_copy_that_raises_shows_its_traceback_and_the_rank_goes_on():
    def fork():
        pid = os.fork()
        if pid == 0:
            raise ValueError("in the copy")
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    result = run_ranks(fork, 1)
    assert result.values == [1]
    assert "ValueError: in the copy" in result.output[0]


@pytest.mark.parametrize(
    "then", ["", "\nif pid == 0: raise ValueError('in the copy')", "\nif pid == 0: raise SystemExit"]
)
def test_a_copy_that_comes_back_from_a_cell_ends(cell, world, works, then):
    pids = world.pids
    cell(f"import os, time\npid = os.fork(){then}")
    assert all_gone(world.gather("pid"))
    works()
    cell("os.wait()")
    assert world.pids == pids


def test_a_copy_that_comes_back_from_a_function_of_a_world_ends(world, works):
    copies = world.run(os.fork)
    assert all(copies) and all_gone(copies)
    works()


def load_batches(persistent: bool):
    from torch.utils.data import DataLoader

    loader = DataLoader(torch.arange(64.0), batch_size=16, num_workers=2, persistent_workers=persistent)
    total = sum(batch.sum() for batch in loader)
    workers = [worker.pid for worker in loader._iterator._workers] if persistent else []
    dist.all_reduce(total)
    if persistent:
        load_batches.kept = loader  # alive when the rank ends
    return total.item(), workers


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_of_a_data_loader_work_and_vanish(persistent):
    result = run_ranks(load_batches, 2, persistent, timeout=30)
    assert [total for total, _ in result] == [2 * 2016.0] * 2
    assert not [pid for _, workers in result for pid in workers if lives(pid)]


def test_workers_of_a_data_loader_work_in_a_cell(cell):
    code = (
        "from torch.utils.data import DataLoader\n"
        "loader = DataLoader(torch.arange(64.), batch_size=16, num_workers=2)\n"
        "print(sum(batch.sum().item() for batch in loader))"
    )
    shown = cell(code)
    assert [shown.text(r) for r in range(2)] == ["2016.0\n"] * 2


def test_a_subprocess_ends_with_its_run_but_lives_on_between_cells(cell, make_world):
    def start():
        import subprocess

        return subprocess.Popen(["sleep", "300"]).pid

    assert not lives(run_ranks(start, 1)[0])
    world = make_world(1)
    pid = world.run(start)[0]
    cell("print('another cell')", on=world)
    assert lives(pid)
    world.stop()
    assert not lives(pid)


# Output without end.

FLOODS = {
    "print": "while True: print('x' * 1000)",
    "stderr": "import sys\nwhile True: print('x' * 1000, file=sys.stderr)",
    "binary": "import os\nwhile True: os.write(1, bytes(range(128, 250)) * 500)",
    "native": "import ctypes\nlibc = ctypes.CDLL(None)\nwhile True: libc.puts(b'x' * 1000)",
}


@pytest.mark.slow
@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_a_rank_that_prints_without_end_keeps_to_the_time_limit(flood):
    begun = time.monotonic()
    with pytest.raises(RanksTimeout) as caught:
        run_ranks(lambda: exec(flood, {}), 2, timeout=1.0)
    assert time.monotonic() - begun < 8
    for text in caught.value.output.values():
        assert len(text) < 1 << 20
        assert "bytes of output left out" in text


@anywhere
def test_a_rank_that_prints_without_end_can_be_interrupted(interrupt):
    interrupt(seconds=0.5)
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_ranks(lambda: exec(FLOODS["print"], {}), 2)
    assert time.monotonic() - begun < 8


@pytest.mark.slow
@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_a_cell_that_prints_without_end_is_cut_and_can_be_stopped(make_world, cell, flood):
    world = make_world(2)
    begun, shown = time.monotonic(), Shown()
    with pytest.raises(RanksTimeout):
        world.execute(flood, timeout=1.0, sink=shown)
    assert time.monotonic() - begun < 15
    assert 0 < max(len(shown.text(r)) for r in range(2)) <= CELL_LIMIT // 2 + 200
    assert cell("print('again')", on=world).text(1) == "again\n"
    world.stop()


def test_a_cell_that_prints_too_much_says_so_once_and_the_next_one_starts_anew(cell):
    shown = cell("for _ in range(120): print('x' * (1 << 20))")  # 120 MiB on each rank
    for rank in range(2):
        text = shown.text(rank)
        assert len(text) <= CELL_LIMIT // 2 + 200
        assert text.endswith(f"\n[rank {rank} printed more than 2,500,000 characters: the rest is not shown]\n")
        assert text.count("the rest is not shown") == 1
    assert cell("print('again')").text(0) == "again\n"


@anywhere
def test_an_interrupt_ends_a_cell_that_prints_without_end(cell, works, interrupt):
    with pytest.raises(RanksInterrupted):
        cell("print('go')\n" + FLOODS["print"], when_it_says_go=lambda: interrupt(seconds=0.5))
    works()
