"""Programs that are right on gloo: the advice on what NCCL would not forgive, and none where it would."""

import pytest
import torch
import torch.distributed as dist

from dtlearn.runtime.run import run_ranks


def in_a_circle(batched, backend=None):
    """Each rank sends to the next and receives from the one before."""
    rank, size, group = dist.get_rank(), dist.get_world_size(), dist.new_group(backend=backend)
    mine, other = torch.full((3,), float(rank)), torch.empty(3)
    if batched:
        ops = [dist.P2POp(dist.isend, mine, (rank + 1) % size), dist.P2POp(dist.irecv, other, (rank - 1) % size)]
        works = dist.batch_isend_irecv(ops)
    else:
        works = [dist.isend(mine, (rank + 1) % size, group), dist.irecv(other, (rank - 1) % size, group)]
    for work in works:
        work.wait()
    assert other.tolist() == [(rank - 1) % size] * 3


def receive_first_on_odd_ranks():
    rank, other = dist.get_rank(), torch.empty(3)
    mine = torch.full((3,), float(rank))
    calls = [lambda: dist.isend(mine, rank ^ 1), lambda: dist.irecv(other, rank ^ 1)]
    works = [call() for call in calls[:: -1 if rank % 2 else 1]]
    for work in works:
        work.wait()


def by_tags():
    tensors = [torch.zeros(2), torch.zeros(2)]
    order = (0, 1) if dist.get_rank() == 0 else (1, 0)
    post = dist.isend if dist.get_rank() == 0 else dist.irecv
    works = [post(tensors[tag], 1 - dist.get_rank(), tag=tag + 1) for tag in order]
    for work in works:
        work.wait()


def from_anyone():
    if dist.get_rank() == 0:
        dist.recv(torch.empty(1))
    else:
        dist.send(torch.ones(1), 0)


def two_groups(swapped):
    groups = [dist.new_group([0, 1]), dist.new_group([0, 1])]
    tensors = [torch.ones(2), torch.ones(2)]
    order = (1, 0) if swapped and dist.get_rank() == 1 else (0, 1)
    works = [dist.all_reduce(tensors[k], group=groups[k], async_op=True) for k in order]
    for work in works:
        work.wait()


def a_column():
    parts = [torch.empty(2) for _ in range(2)]
    dist.all_gather(parts, torch.arange(4.0).reshape(2, 2)[:, 0])


FORGIVEN = [
    (
        in_a_circle,
        (False,),
        "rank 0's isend in line 18 may wait for ever for rank 1's irecv in line 18",
    ),
    (by_tags, (), "NCCL ignores tags and pairs messages in order"),
    (from_anyone, (), "rank 0's recv in line 44 receives from any rank"),
    (two_groups, (True,), "rank 0 calls all_reduce of group 0,1 before all_reduce of group 0,1, rank 1 the other way"),
    (a_column, (), "rank 0's all_gather in line 60 has a tensor that is not contiguous"),
]


@pytest.mark.parametrize(("program", "args", "says"), FORGIVEN, ids=lambda x: getattr(x, "__name__", None))
def test_what_only_gloo_forgives_is_said(program, args, says):
    advice = run_ranks(program, 2, *args).advice
    assert any(says in text for text in advice), advice


@pytest.mark.parametrize(
    # With NCCL beside it, a group that is asked to be gloo's is still gloo's.
    ("program", "args"),
    [(in_a_circle, (True,)), (in_a_circle, (False, "gloo")), (receive_first_on_odd_ranks, ()), (two_groups, (False,))],
)
def test_what_nccl_takes_needs_no_advice(program, args):
    assert run_ranks(program, 2, *args).advice == ()


def test_the_first_of_a_long_run_is_not_forgotten():
    def long_run():
        in_a_circle(False)
        for _ in range(300):
            dist.all_reduce(torch.ones(1))

    assert any("batch_isend_irecv" in text for text in run_ranks(long_run, 2).advice)
