"""Steps whose messages are handed over together, as NCCL wants them; gloo takes them so, too."""

import pytest
import torch
import torch.distributed as dist

from dtlearn.collectives import halving_doubling, hierarchical, naive, ring, tree
from dtlearn.collectives.execute import Chunks
from dtlearn.collectives.execute_batched import as_bytes, execute_batched
from dtlearn.memory import StorageLedger
from dtlearn.runtime.run import run_ranks
from tests.data_parallel.runs import settled


def sums(plans):
    """On each rank: what each plan makes of [rank, rank + 10, ...]."""
    me = dist.get_rank()
    results = []
    for plan in plans:
        mine = torch.arange(6) * 10 + me
        chunks = Chunks.of(mine, plan.num_chunks)
        execute_batched(plan.of(me), me, chunks.parts, lambda a, b: a.add_(b), lambda rank: rank, None)
        results.append(mine.tolist())
    return results


@pytest.mark.parametrize("N", [2, 3, 4])
def test_every_algorithm_gives_the_sum(N):
    """With the naive one, and with trees on 3 ranks, some ranks have nothing to do in some steps."""
    plans = [m.all_reduce(N) for m in (ring, tree, halving_doubling, naive)]
    if N % 2 == 0:
        plans.append(hierarchical.all_reduce(N, N // 2))
    whole = [N * 10 * k + sum(range(N)) for k in range(6)]
    assert run_ranks(sums, N, plans, device="cpu").values == [[whole] * len(plans)] * N


def test_moves_of_others_are_passed_over():
    """Given the whole plan and not only its own moves, a rank still makes only its own."""

    def work():
        me, mine = dist.get_rank(), torch.tensor([float(dist.get_rank())])
        plan = tree.broadcast(3, 2)
        execute_batched(plan.steps, me, Chunks.of(mine, 1).parts, lambda a, b: a.add_(b), lambda rank: rank, None)
        return mine.item()

    assert run_ranks(work, 3, device="cpu").values == [2.0] * 3


def peak():
    mine = torch.ones(1200)
    with StorageLedger() as ledger:
        plan = ring.all_reduce(2)
        execute_batched(
            plan.of(dist.get_rank()), dist.get_rank(), Chunks.of(mine, 2).parts, lambda a, b: a.add_(b), int, None
        )
    return ledger.peak, settled(ledger, 0)


def test_memory_is_what_a_step_receives_to_reduce():
    assert run_ranks(peak, 2, device="cpu").values == [(2400, 0)] * 2


def test_a_message_is_the_same_memory_as_bytes():
    tensor = torch.tensor([1.0, 2.0])
    view = as_bytes(tensor)
    assert view.dtype is torch.uint8 and view.numel() == 8 and view.data_ptr() == tensor.data_ptr()
