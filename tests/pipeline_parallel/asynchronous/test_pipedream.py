"""On ranks: losses and weights are those of the delayed recurrence, not those of synchronous training."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from dtlearn.pipeline_parallel.asynchronous.delayed import pipedream_delays, train_delayed
from dtlearn.pipeline_parallel.asynchronous.pipedream import train_asynchronously
from dtlearn.runtime.run import run_ranks

from ..runs import PlainSGD
from .small_chain import make_batches, make_stages

NUM_BATCHES = 20


def in_pipelines():
    """On 4 ranks: {(p, stash): (run, weights of this rank's stage)}, in groups of the first p ranks."""
    rank, batches, found = dist.get_rank(), make_batches(NUM_BATCHES), {}
    for p in (1, 2, 3, 4):
        group, back = dist.new_group(range(p)), dist.new_group(range(p))
        if rank >= p:
            continue
        for stash in (True, False):
            stage = make_stages(p)[rank]
            groups = {"group": group, "group_back": back}
            run = train_asynchronously(stage, PlainSGD, batches, F.cross_entropy, stash=stash, **groups)
            found[p, stash] = run, [parameter.detach() for parameter in stage.parameters()]
    return found


def test_ranks_compute_the_delayed_recurrence():
    run = run_ranks(in_pipelines, 4, device="cpu", record=True)
    assert run.advice == ()
    ranks, batches = run.values, make_batches(NUM_BATCHES)
    for p in (1, 2, 3, 4):
        stages, plain = make_stages(p), make_stages(p)
        expected = train_delayed(stages, PlainSGD, batches, F.cross_entropy, pipedream_delays(p))
        synchronous = train_delayed(plain, PlainSGD, batches, F.cross_entropy, [0] * p)
        for rank in range(p):
            result, weights = ranks[rank][p, True]
            assert result.missing == [min(i, p - 1 - rank) for i in range(NUM_BATCHES)]
            assert result.num_versions == p - rank
            torch.testing.assert_close(weights, [parameter.detach() for parameter in stages[rank].parameters()])
            assert result.losses == [] or rank == p - 1
        losses, mixed = ranks[p - 1][p, True][0].losses, ranks[p - 1][p, False][0].losses
        torch.testing.assert_close(losses, expected)
        if p > 1:  # stale weights, and those without stashing, are not synchronous training
            assert max(abs(a - b) for a, b in zip(losses, synchronous, strict=True)) > 0.01
            assert all(ranks[r][p, False][0].num_versions == 1 for r in range(p))
            # Rank 0 has one linear layer, whose weight is read in backward for the gradient of its input only.
            assert (max(abs(a - b) for a, b in zip(losses, mixed, strict=True)) > 1e-5) == (p > 2)
        else:
            torch.testing.assert_close(losses, synchronous)
            torch.testing.assert_close(mixed, synchronous)
    for rank in range(4):  # 8 rows of 16 numbers of 4 bytes, forward and back, in each of the two runs of each p
        neighbours = sum((rank > 0) + (rank < p - 1) for p in (1, 2, 3, 4) if rank < p)
        assert run.record.counts()[rank, "isend"] == 2 * NUM_BATCHES * neighbours
        assert run.record.nbytes(rank=rank, op="isend") == 2 * NUM_BATCHES * neighbours * 8 * 16 * 4
