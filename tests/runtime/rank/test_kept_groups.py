import gc
import weakref

import torch.distributed as dist

from dtlearn.runtime import run_ranks


def leave_a_group():
    group = dist.new_group([0, 1])
    alive = weakref.ref(group)
    dist.destroy_process_group(group)
    del group
    gc.collect()
    dist.barrier()
    return alive() is not None


def test_a_group_that_was_left_is_not_destroyed():
    assert run_ranks(leave_a_group, 2).values == [True, True]


def test_many_groups_are_not_kept_for_ever():
    def make_many():
        alive = []
        for _ in range(80):
            group = dist.new_group([0, 1])
            alive.append(weakref.ref(group))
            dist.destroy_process_group(group)
        del group
        gc.collect()
        return sum(one() is not None for one in alive)

    assert set(run_ranks(make_many, 2).values) <= {64}
