"""The hold on the processes of a world: what is known of them beside what they say in a cell."""

from dtlearn.runtime.words import incomplete
from tests.runtime.full_disk import LINE, full_disk


def test_a_cell_is_judged_without_the_log_and_the_next_one_starts_anew(world, cell):
    world.push(full=full_disk)
    cell("if rank == 1: full()\nfor _ in range(3): dist.barrier()")
    assert incomplete(world.log_faults()) == LINE
    assert world.record().incomplete == LINE
    cell("dist.barrier()")
    assert world.log_faults() == {}
    assert world.record().incomplete == "" and len(world.record()) == 2
