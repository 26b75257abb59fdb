"""Every fault of the table is named, on 2 and 4 ranks, in `run_ranks` and in cells; and cells go on after it."""

import os

import pytest

from dtlearn.runtime.errors import RankError, RanksDisagree, RanksTimeout
from dtlearn.runtime.output import Sink
from dtlearn.runtime.run import run_ranks
from dtlearn.runtime.world import recovery
from tests.runtime.conftest import Shown
from tests.runtime.fault_corpus import FAULTS, run_program, show_source
from tests.runtime.right import RIGHT

CASES = [pytest.param(fault, size, id=f"{fault.name}-{size}") for fault in FAULTS for size in fault.sizes]


def check(fault, error):
    assert error.code == fault.code, f"{type(error).__name__}: {error}"
    if fault.code.startswith(("DTL-COLL", "DTL-P2P", "DTL-ASYNC")):
        assert isinstance(error, RanksDisagree) and error.diagnosis.code == fault.code
    for text in (*fault.says, *fault.lines):
        assert text in str(error), f"{text!r} is not in:\n{error}"


@pytest.mark.parametrize(("fault", "world_size"), CASES)
def test_run_ranks_names_the_fault(fault, world_size):
    show_source(fault.program)
    with pytest.raises((RankError, RanksTimeout)) as caught:
        run_ranks(run_program, world_size, fault.program, timeout=fault.limit)
    check(fault, caught.value)


@pytest.fixture(scope="module")
def worlds(make_world):
    """Worlds of 2 and 4 ranks that go from fault to fault."""
    made = {}
    return lambda size: made[size] if size in made else made.setdefault(size, make_world(size))


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "world_size"), CASES)
def test_a_cell_names_the_fault_and_the_ranks_go_on(fault, world_size, worlds, monkeypatch):
    if fault.never_ends:  # however long recovery waits, its ranks have to be killed
        monkeypatch.setattr(recovery, "AFTER_CUT", recovery.AFTER_CUT / 6)
    world = worlds(world_size)
    world.push(kept="still here")
    with pytest.raises((RankError, RanksTimeout)) as caught:
        world.execute(fault.program, timeout=fault.limit, sink=Sink())
    check(fault, caught.value)
    world.execute("total = torch.ones(1)\ndist.all_reduce(total)", timeout=20, sink=Sink())
    assert world.gather("total.item()") == [world.size] * world.size
    survivors = world.gather("globals().get('kept')")
    lost = [rank for rank, value in enumerate(survivors) if value is None]
    assert set(lost) <= set(fault.may_lose)


@pytest.mark.parametrize("name", ["uneven parts", "a group for each of two threads"])
def test_what_is_right_is_no_fault(name):
    assert len(run_ranks(run_program, 2, RIGHT[name], timeout=60).values) == 2


def test_a_flood_of_output_hides_no_fault():
    program = "for _ in range(1000):\n    print('x' * 100_000)\nif rank != 1:\n    dist.all_reduce(torch.ones(4))\n"
    with pytest.raises(RanksDisagree) as caught:
        run_ranks(run_program, 2, program, timeout=30)
    assert caught.value.code == "DTL-COLL-SKIP"
    assert all(len(text) < 2_000_000 for text in caught.value.output.values())


def test_a_flood_of_output_of_a_cell_hides_no_fault(worlds):
    program = "for _ in range(100):\n    print('x' * 100_000)\nif rank != 1:\n    dist.all_reduce(torch.ones(4))\n"
    shown = Shown()
    with pytest.raises(RanksDisagree) as caught:
        worlds(2).execute(program, timeout=30, sink=shown)
    assert caught.value.code == "DTL-COLL-SKIP"


@pytest.mark.parametrize("end", ["exit", "return"])
def test_a_rank_that_does_not_come_to_the_group_is_named(end, tmp_path):
    def join(path):
        import torch.distributed as dist

        rank = int(os.environ["RANK"])
        if rank == 1:
            return os._exit(0) if end == "exit" else None
        dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=3)

    with pytest.raises(RankError) as caught:
        run_ranks(join, 3, str(tmp_path / "store"), timeout=20, init_group=False)
    if end == "exit":
        assert caught.value.code == "DTL-RANK-EXIT" and caught.value.rank == 1
    else:
        assert caught.value.code == "DTL-INIT"
        assert "ranks 0 and 2 wait in init_process_group; rank 1 is not in it: not yet, or no more" in str(caught.value)
