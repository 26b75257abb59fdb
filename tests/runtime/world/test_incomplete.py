"""A call log that cannot be written is said to people, in one line, and mutes the watch instead of misleading it."""

import pytest
import torch
import torch.distributed as dist

from dtlearn.runtime.errors import RankError
from dtlearn.runtime.record.record import Record
from dtlearn.runtime.run import run_ranks
from dtlearn.runtime.words import incomplete
from dtlearn.runtime.world.incomplete import cell_faults

LINE = "the record of rank 1 is incomplete: No space left on device"


def full_disk():
    """This rank's log is on a full device from now on."""
    import os

    from dtlearn.runtime.recording.call_log import installed

    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, installed()._file._descriptor)
    os.close(full)


def test_the_words():
    assert incomplete({}) == ""
    assert incomplete({1: "No space left on device", 0: ""}) == LINE
    assert incomplete({1: "b", 0: "a"}).splitlines() == [
        "the record of rank 0 is incomplete: a",
        "the record of rank 1 is incomplete: b",
    ]


def test_a_run_warns_in_one_line_and_its_record_says_so():
    def work(full):
        dist.barrier()
        if dist.get_rank() == 1:
            full()
        for _ in range(3):
            total = torch.ones(2)
            dist.all_reduce(total)
        return total.tolist()

    with pytest.warns(UserWarning) as warned:
        result = run_ranks(work, 2, full_disk, timeout=20, record=True)
    assert [str(w.message) for w in warned] == [LINE]
    assert warned[0].filename == __file__
    assert result.values == [[2.0, 2.0]] * 2
    assert result.record.incomplete == LINE
    assert [len(result.record.select(rank=r)) for r in range(2)] == [4, 1]
    assert Record.from_json(result.record.to_json()).incomplete == LINE


def test_a_run_that_keeps_no_record_is_not_disturbed():
    def work(full):
        full()
        dist.barrier()

    assert len(run_ranks(work, 2, full_disk, timeout=20)) == 2


def test_an_error_says_it_too():
    def work(full):
        if dist.get_rank() == 1:
            full()
        dist.barrier()
        raise KeyError("x")

    with pytest.raises(RankError, match="KeyError") as caught:
        run_ranks(work, 2, full_disk, timeout=20, record=True)
    assert caught.value.__notes__ == [LINE]
    assert LINE in caught.value._render_traceback_()
    assert caught.value.record.incomplete == LINE


def test_a_cell_is_judged_without_the_log_and_the_next_one_starts_anew(world, cell):
    world.push(full=full_disk)
    cell("if rank == 1: full()\nfor _ in range(3): dist.barrier()")
    assert incomplete(cell_faults(world)) == LINE
    assert world.record().incomplete == LINE
    cell("dist.barrier()")
    assert cell_faults(world) == {}
    assert world.record().incomplete == "" and len(world.record()) == 2
