"""Interrupts, dead ranks, a dead agent: what is kept, what is replaced; and the next cell really runs."""

import os
import signal
import time

import pytest

from dtlearn.runtime.agent.client import get_agent
from dtlearn.runtime.errors import CellError, DtlearnError, RanksInterrupted, RanksTimeout
from dtlearn.runtime.faults.stacks import Stuck
from dtlearn.runtime.machine.patience import Patience
from dtlearn.runtime.world.cell import Cell
from dtlearn.runtime.world.recovery import _reports


@pytest.fixture(scope="module")
def world(make_world):
    """Three ranks: the first, the last, and one that is neither."""
    world = make_world(3)
    world.setup_cells.append("prepared = rank * 2")
    return world


@pytest.fixture
def works(world, cell):
    """Checks that the next cell really runs on every rank, with a collective, and which ranks kept variables."""
    cell("kept = rank + 100")

    def check(lost=()):
        mark = time.monotonic_ns()
        shown = cell(f"total = torch.ones(1)\ndist.all_reduce(total)\nran = {mark}\nprint(total.item())")
        assert [shown.text(r) for r in range(world.size)] == [f"{float(world.size)}\n"] * world.size
        assert world.gather("ran") == [mark] * world.size
        kept = world.gather("globals().get('kept')")
        assert kept == [None if r in lost else r + 100 for r in range(world.size)]
        if lost:
            prepared = world.gather("globals().get('prepared')")
            assert [prepared[r] for r in lost] == [r * 2 for r in lost]

    return check


@pytest.mark.parametrize(
    ("code", "pending"),
    [
        ("import time\nprint('go')\ntime.sleep(60)", "ranks 0-2 had not finished"),
        ("print('go')\nwhile True: dist.all_reduce(torch.ones(1000))", "ranks 0-2 had not finished"),
        ("import time\nprint('go')\nif rank: dist.barrier()\ntime.sleep(60)", "ranks 0-2 had not finished"),
        ("print('go')\nwhile True: pass", "ranks 0-2 had not finished"),
        (
            "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))\nprint('go')\n"
            "loss = model(torch.ones(1, 2)).sum()\nif rank == 1: loss.backward()",
            "rank 1 had not finished",
        ),
    ],
    ids=["sleep", "loop of collectives", "hang", "loop", "backward of DDP"],
)
def test_an_interrupt_ends_the_cell_and_keeps_the_ranks(cell, world, works, interrupt, code, pending):
    pids = world.pids
    begun = time.monotonic()
    with pytest.raises(RanksInterrupted) as caught:
        # A moment later: the ranks that are to get past the cell are past it by then.
        cell(code, when_it_says_go=lambda: interrupt(seconds=0.3))
    assert time.monotonic() - begun < 10
    assert str(caught.value).splitlines()[0] == f"interrupted: {pending}"
    assert world.pids == pids
    works()


def test_an_interrupt_of_a_plain_loop_keeps_the_groups(cell, world, works, interrupt):
    generation = world.ranks.generation
    with pytest.raises(RanksInterrupted) as caught:
        cell("import time\nprint('go')\nwhile True: time.sleep(0.01)", when_it_says_go=interrupt)
    assert "process groups" not in str(caught.value)
    assert world.ranks.generation == generation
    works()


def test_a_rank_that_had_not_begun_the_cell_is_interrupted_all_the_same(cell, world, works, interrupt, monkeypatch):
    pids, ask = world.pids, world.ranks.interrupt

    def then_let_it_begin(ranks):
        ask(ranks)
        os.kill(pids[1], signal.SIGCONT)

    monkeypatch.setattr(world.ranks, "interrupt", then_let_it_begin)
    os.kill(pids[1], signal.SIGSTOP)
    with pytest.raises(RanksInterrupted):
        cell("import time\nprint('go')\nwhile True: time.sleep(0.01)", when_it_says_go=interrupt)
    assert world.pids == pids
    works()


@pytest.fixture
def impatient(monkeypatch):
    """Recovery gives ranks a fraction of the time that it gives them otherwise."""
    begin = Patience.__init__
    monkeypatch.setattr(Patience, "__init__", lambda it, seconds, pids=(): begin(it, seconds / 4, pids))


def test_code_that_swallows_interrupts_ends_all_the_same(cell, works, impatient):
    code = (
        "import time\nwhile rank == 1:\n    try:\n        time.sleep(0.05)\n    except KeyboardInterrupt:\n        pass"
    )
    with pytest.raises(RanksTimeout, match="rank 1 did not answer and had to be ended") as caught:
        cell(code, timeout=0.5)
    assert "rank 1 got a new process: variables are lost there; setup cells were run again" in str(caught.value)
    works(lost=[1])


def test_a_rank_that_holds_the_interpreter_and_ignores_interrupts_is_replaced(cell, works, impatient):
    code = "import re, signal\nif rank == 2:\n    signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    with pytest.raises(RanksTimeout, match="rank 2 did not answer and had to be ended"):
        cell(code + "    re.match(r'(a+)+$', 'a' * 40 + 'b')", timeout=0.5)
    works(lost=[2])


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize(
    ("end", "text"),
    [
        ("os._exit(0)", "ended (exit code 0) before it finished"),
        ("os.kill(os.getpid(), 9)", "was killed by signal 9 (SIGKILL)"),
    ],
    ids=["exit", "kill"],
)
def test_a_rank_that_died_is_replaced_and_the_others_keep_their_variables(cell, world, works, rank, end, text):
    pids = world.pids
    begun = time.monotonic()
    with pytest.raises(CellError) as caught:
        cell(f"import os\nif rank == {rank}: {end}\ndist.barrier()")
    assert time.monotonic() - begun < 10
    lines = str(caught.value).splitlines()
    assert lines[0] == f"rank {rank} {text}"
    assert f"rank {rank} got a new process: variables are lost there; setup cells were run again." in lines
    assert [new == old for new, old in zip(world.pids, pids, strict=True)] == [r != rank for r in range(3)]
    works(lost=[rank])


def test_a_rank_that_died_while_nobody_waits_is_replaced(cell, world, works):
    with pytest.raises(CellError, match="rank 1 was killed by signal 11"):
        cell("import os\nif rank == 1: os.kill(os.getpid(), 11)")
    works(lost=[1])


def test_a_rank_that_died_between_cells_is_replaced_by_the_next_cell(cell, world, works):
    os.kill(world.pids[1], signal.SIGKILL)
    with pytest.raises(CellError, match="rank 1 was killed by signal 9"):
        cell("dist.barrier()")
    works(lost=[1])


def test_what_was_on_its_way_to_a_rank_that_died_does_not_reach_its_successor(world, works):
    os.kill(world.pids[1], signal.SIGKILL)
    deadline = time.monotonic() + 5
    while world.ranks.processes[1].alive and time.monotonic() < deadline:
        world.ranks.listen()
    world.ranks.clients[1].execute("stale = True", 1)
    assert world.ranks.repair() == [1]
    works(lost=[1])
    assert world.gather("'stale' in globals()") == [False] * 3


def test_a_second_interrupt_restarts_all_ranks(cell, world, works, interrupt, monkeypatch):
    pids = world.pids

    def interrupted_again(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Cell, "wait", interrupted_again)
    with pytest.raises(RanksInterrupted, match="All ranks were restarted: their variables are lost"):
        cell("import time\nprint('go')\ntime.sleep(60)", when_it_says_go=interrupt)
    assert not set(pids) & set(world.pids)
    works(lost=[0, 1, 2])


def test_when_the_agent_is_killed_that_is_told_and_the_world_starts_again(cell, world, works):
    with pytest.raises(CellError) as caught:
        cell(f"import os, time\nif rank == 0: os.kill({get_agent().pid}, 9)\ntime.sleep(60)")
    assert str(caught.value).splitlines() == [
        "ranks 0-2 ended, because the helper process that starts ranks is gone",
        "All ranks were restarted: their variables are lost; setup cells were run again.",
    ]
    works(lost=[0, 1, 2])


def test_a_rank_that_kills_its_parent_ends_all_ranks_which_are_replaced(cell, world, works):
    agent = get_agent()
    with pytest.raises(CellError) as caught:
        cell("import os, time\nif rank == 0: os.kill(os.getppid(), 9)\ntime.sleep(60)")
    assert str(caught.value).splitlines()[:2] == [
        "ranks 0-2 ended, because the helper process that starts ranks is gone",
        "ranks 0-2 got a new process: variables are lost there; setup cells were run again.",
    ]
    assert get_agent() is agent
    works(lost=[0, 1, 2])


def test_only_a_rank_that_has_left_the_learners_code_is_waited_for():
    assert _reports(Stuck(0, "runs"))
    assert not _reports(Stuck(0, "runs", "", ("line 3: work()",)))
    assert not _reports(Stuck(0, "waits", "its 1st barrier, line 3"))
    assert not _reports(Stuck(0, "ended"))


HANG = """
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
late = dist.all_reduce(torch.ones(1), async_op=True) if rank == 1 else None
dist.barrier() if rank == 0 else dist.recv(torch.ones(1), 0)
"""


@pytest.mark.parametrize("ends", [HANG, "import os\nif rank == 1: os.kill(os.getpid(), 9)"], ids=["hang", "killed"])
def test_a_long_session_with_many_faults_keeps_its_size(cell, world, ends):
    """Descriptors and threads of ranks, and files of the run: six faults later there are as many as after two."""

    def size():
        each = [len(os.listdir(f"/proc/{pid}/{what}")) for pid in [os.getpid(), *world.pids] for what in ("fd", "task")]
        return [*each, sum(1 for _ in world.ranks.run_dir.rglob("*"))]

    sizes = []
    for _ in range(6):
        with pytest.raises(DtlearnError):
            cell(ends)
        cell("kept = rank + 100\ntotal = torch.ones(1)\ndist.all_reduce(total)")
        sizes.append(size())
    assert all(now <= before + 1 for now, before in zip(sizes[5], sizes[1], strict=True)), sizes


def test_ranks_that_make_a_mesh_of_another_shape_are_freed_and_keep_their_variables(make_world, cell):
    """They wait in the store, where no connection can be cut."""
    world = make_world(4)
    cell("from torch.distributed.device_mesh import init_device_mesh\nkept = rank + 5", on=world)
    with pytest.raises(RanksTimeout, match="ranks 0-2 wait in init_device_mesh; rank 3 is not in it"):
        cell("init_device_mesh('cpu', (4,) if rank == 3 else (2, 2))", timeout=5.0, on=world)
    assert world.gather("kept") == [5, 6, 7, 8]
    cell("dist.barrier()", on=world)
