"""The hold on the processes of a world: what is known of them beside what they say in a cell."""

import pytest

from dtlearn.runtime.errors import CellError, DtlearnError, LaunchError
from dtlearn.runtime.words import incomplete
from dtlearn.runtime.world import ranks
from dtlearn.runtime.world.world import World
from tests.runtime.full_disk import LINE, full_disk
from tests.runtime.strays import lives


def test_a_cell_is_judged_without_the_log_and_the_next_one_starts_anew(world, cell):
    world.push(full=full_disk)
    cell("if rank == 1: full()\nfor _ in range(3): dist.barrier()")
    assert incomplete(world.log_faults()) == LINE
    assert world.record().incomplete == LINE
    cell("dist.barrier()")
    assert world.log_faults() == {}
    assert world.record().incomplete == "" and len(world.record()) == 2


def calls_by_rank(record) -> list[list[str]]:
    return [[event.op for event in record.select(rank=rank)] for rank in range(record.world_size)]


def test_each_rank_has_the_record_of_the_latest_cell_that_it_took_part_in(world, cell):
    cell("dist.barrier()")
    cell("", ranks=[1])
    assert calls_by_rank(world.record()) == [["barrier"], []]
    world.gather("rank")
    world.push(x=1)
    assert calls_by_rank(world.record()) == [["barrier"], []]


def test_an_incomplete_log_of_a_rank_that_is_not_asked_is_no_fault_of_the_next_cell(world, cell):
    world.push(full=full_disk)
    cell("if rank == 1: full()\nfor _ in range(3): dist.barrier()")
    cell("", ranks=[0])
    assert world.log_faults() == {}
    assert world.record([1]).incomplete == LINE and world.record([0]).incomplete == ""
    cell("")


def test_the_record_has_the_phases_of_the_cell(world, cell):
    cell("torch.nn.Linear(1, 1)(torch.ones(1, 1))")
    assert [(span.rank, span.phase) for span in world.record().spans] == [(0, "forward"), (1, "forward")]
    cell("")
    assert list(world.record().spans) == []


def test_the_record_shows_what_a_rank_did_until_it_died(world, cell):
    with pytest.raises(CellError, match="rank 1 ended"):
        cell("import os\ndist.barrier()\nif rank == 1: os._exit(3)")
    assert calls_by_rank(world.record()) == [["barrier"], ["barrier"]]
    cell("dist.all_reduce(torch.ones(1))")
    assert calls_by_rank(world.record()) == [["all_reduce"], ["all_reduce"]]


def test_stopped_ranks_have_no_record(make_world):
    world = make_world(1)
    world.stop()
    with pytest.raises(DtlearnError, match="these ranks were stopped"):
        world.record()


def test_ranks_that_could_not_all_be_started_have_ended_before_their_folder_is_deleted(monkeypatch):
    pids = []

    def connect(agent, collector, *others):
        pids.extend(state.pid for state in collector.ranks)
        raise LaunchError("one of them does not answer")

    monkeypatch.setattr(ranks, "connect", connect)
    with pytest.raises(LaunchError, match="one of them"):
        World(2)
    assert len(pids) == 2 and not any(map(lives, pids))
