"""Every fault of the table is named, on 2 and 4 ranks, in `run_ranks` and in cells; and cells go on after it."""

import pytest

from dtlearn.runtime.cell import Sink
from dtlearn.runtime.errors import RankError, RanksDisagree, RanksTimeout
from dtlearn.runtime.run import run_ranks
from tests.runtime.faults import FAULTS

LIMIT = 20.0  # seconds: whatever is not named by then ends as a time-out, and the test fails


def run_program(program):
    import linecache

    import torch
    import torch.distributed as dist

    linecache.cache["fault.py"] = (len(program), None, program.splitlines(keepends=True), "fault.py")
    exec(
        compile(program, "fault.py", "exec"),
        {"rank": dist.get_rank(), "world_size": dist.get_world_size(), "torch": torch, "dist": dist},
    )


def check(fault, error):
    if fault.code:
        assert isinstance(error, RanksDisagree), f"{type(error).__name__}: {error}"
        assert error.diagnosis.code == fault.code, str(error)
    else:
        assert isinstance(error, RankError) and not isinstance(error, (RanksDisagree, RanksTimeout)), str(error)
    for text in fault.says:
        assert text in str(error), f"{text!r} is not in:\n{error}"


@pytest.mark.parametrize("world_size", [2, 4])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_run_ranks_names_the_fault(fault, world_size):
    with pytest.raises(RankError) as caught:
        run_ranks(run_program, world_size, fault.program, timeout=LIMIT)
    check(fault, caught.value)


@pytest.fixture(scope="module")
def worlds(make_world):
    """Worlds of 2 and 4 ranks that go from fault to fault."""
    made = {}
    return lambda size: made[size] if size in made else made.setdefault(size, make_world(size))


@pytest.mark.parametrize("world_size", [2, 4])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_cell_names_the_fault_and_the_ranks_go_on(fault, world_size, worlds):
    world = worlds(world_size)
    world.push(kept="still here")
    with pytest.raises(RankError) as caught:
        world.execute(fault.program, timeout=LIMIT, sink=Sink())
    check(fault, caught.value)
    world.execute("total = torch.ones(1)\ndist.all_reduce(total)", timeout=LIMIT, sink=Sink())
    assert world.gather("total.item()") == [world.size] * world.size
    survivors = world.gather("globals().get('kept')")
    lost = [rank for rank, value in enumerate(survivors) if value is None]
    assert set(lost) <= set(fault.may_lose)
