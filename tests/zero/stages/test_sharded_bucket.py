"""The memory of a bucket: what is there, what is freed, and what comes back."""

from itertools import chain

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dtlearn.runtime.run import run_ranks
from dtlearn.zero.partition.flat import plan_flat
from dtlearn.zero.precision import MixedPrecisionPolicy
from dtlearn.zero.shard_store import ShardStore
from dtlearn.zero.stages.sharded_bucket import ShardedBucket

SIZES = (3, 5, 0, 2)  # 10 elements: with 3 ranks 2 of padding, with 4 ranks an empty piece for most


def joined(lists):
    return list(chain.from_iterable(lists))


def parameters(first):
    return [nn.Parameter(torch.arange(float(first), first + size), size != 2) for size in SIZES]


def one_bucket(**options):
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    (bucket,) = plan_flat(SIZES, num_ranks).buckets
    return ShardedBucket(bucket, parameters(100 * rank), **options)


def life():
    """Everything that a bucket does, once; returns what it holds."""
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    sharded = one_bucket()
    found = {
        "pieces": [piece.tolist() for piece in sharded.sharded_params],
        "memory": [sharded.unsharded.untyped_storage().nbytes()],
    }
    sharded.unshard()
    sharded.wait_for_unshard()
    first, *_ = sharded.unsharded_params
    y = first * first  # autograd keeps the parameter
    found["gathered"] = [parameter.tolist() for parameter in sharded.unsharded_params]
    found["memory"].append(sharded.unsharded.untyped_storage().nbytes())
    sharded.reshard()
    found["memory"].append(sharded.unsharded.untyped_storage().nbytes())
    sharded.unshard()
    sharded.reshard()  # while it is under way
    sharded.unshard()
    sharded.wait_for_unshard()
    for _ in range(2):
        (y * (rank + 1) / 2).sum().backward(retain_graph=True)
    sharded.reduce_gradients().finish()
    found["gradient"] = [None if piece.grad is None else piece.grad.tolist() for piece in sharded.sharded_params]
    found["full gradients"] = [parameter.grad for parameter in sharded.unsharded_params]
    sharded.shard += 1
    copy = sharded.gather_copy()
    found["copy"] = copy[: sum(SIZES)].tolist()
    sharded.set_from(copy * 2)
    found["owned"] = torch.equal(sharded.shard, copy.view(num_ranks, -1)[rank] * 2)
    found["frozen"] = [p.requires_grad for p in sharded.unsharded_params] == [
        p.requires_grad for p in sharded.sharded_params
    ]
    return found


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_what_was_freed_comes_back(world_size):
    values = [list(map(float, range(size))) for size in SIZES]
    padded = 4 * -(-10 // world_size) * world_size
    results = run_ranks(life, world_size, device="cpu")
    for number, whole in enumerate(values):
        assert joined(result["pieces"][number] for result in results) == whole  # rank 0's values, each once
    mean = sum(range(1, world_size + 1)) / world_size
    gradients = [result["gradient"][0] for result in results]
    assert joined(g for g in gradients if g is not None) == [2 * x * mean for x in values[0]]
    for result in results:
        assert result["gathered"] == values and result["memory"] == [0, padded, 0]
        assert result["full gradients"] == [None] * 4
        assert result["copy"] == [x + 1 for x in joined(values)]
        assert result["owned"] and result["frozen"]


def in_bfloat16():
    sharded = one_bucket(store=ShardStore(MixedPrecisionPolicy(torch.bfloat16, torch.float32)))
    sharded.unshard()
    sharded.wait_for_unshard()
    first = sharded.unsharded_params[0]
    (first * 3).sum().backward()
    sharded.reduce_gradients().finish()
    gradients = [piece.grad for piece in sharded.sharded_params if piece.grad is not None]
    integers = ShardedBucket(
        plan_flat([2], 2).buckets[0],
        [nn.Parameter(torch.tensor([1, 2]), requires_grad=False)],
        store=ShardStore(MixedPrecisionPolicy(torch.bfloat16)),
    )
    return (
        first.dtype,
        {g.dtype for g in gradients},
        sharded.shard.dtype,
        integers.unsharded.dtype,
        integers.reduce_gradients(),
    )


def test_what_is_gathered_can_have_16_bits():
    for first, gradients, shard, integers, reduction in run_ranks(in_bfloat16, 2, device="cpu"):
        assert first == torch.bfloat16 and gradients == {torch.float32} and shard == torch.float32
        assert integers == torch.int64 and reduction is None


def failed():
    """A backward pass that failed: what it left is dropped."""
    sharded = one_bucket()
    sharded.unshard()
    sharded.wait_for_unshard()
    sharded.unsharded_params[0].sum().backward()
    sharded.drop_gradients()
    full = [p.grad for p in sharded.unsharded_params]
    sharded.reduce_gradients().finish()
    return full, [None if p.grad is None else p.grad.tolist() for p in sharded.sharded_params]


def test_gradients_can_be_dropped_and_where_there_is_none_it_counts_as_zeros():
    full, pieces = run_ranks(failed, 1, device="cpu")[0]
    assert full == [None] * 4 and pieces == [[0.0] * 3, [0.0] * 5, [], None]
