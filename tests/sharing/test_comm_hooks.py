"""Communication hooks: ours and torch's, on ours and on torch's DDP, do the same and send the bytes they say."""

import logging

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.futures import Future

from dtlearn.sharing import comm_hooks
from tests.data_parallel.runs import SMALL, TOLERANCE, distance, message_of, mlp, ours, seeded_by_rank, torch_ddp, views
from tests.data_parallel.test_ddp import mine, run
from tests.devices import run_ranks


def trained(wrap, hook, state=None, **options):
    wrapped = wrap(seeded_by_rank(mlp), **options)
    wrapped.register_comm_hook(state() if state else None, hook)
    return run(wrapped, lambda step: wrapped(mine(step)).square().sum().backward(), steps=4)


def hooked():
    """Distances between what should be the same."""
    plain = ours(seeded_by_rank(mlp))
    bare = run(plain, lambda step: plain(mine(step)).square().sum().backward(), steps=4)
    found = {
        "mean": distance(trained(ours, comm_hooks.allreduce_hook), bare),
        "mean, views": distance(trained(views, comm_hooks.allreduce_hook), bare),
        "torch's mean on ours": distance(trained(ours, default_hooks.allreduce_hook), bare),
        "our mean on torch's": distance(trained(torch_ddp, comm_hooks.allreduce_hook), bare),
    }
    half = trained(torch_ddp, default_hooks.fp16_compress_hook)
    for wrap in (ours, views, torch_ddp):
        found[f"fp16, {wrap.__name__}"] = distance(trained(wrap, comm_hooks.fp16_compress_hook), half)
    found["torch's fp16 on ours"] = distance(trained(ours, default_hooks.fp16_compress_hook), half)
    brain = trained(ours, default_hooks.bf16_compress_hook)
    found["bf16"] = distance(trained(views, comm_hooks.bf16_compress_hook), brain)
    apart = distance(half, bare), distance(brain, half)

    def power():  # one bucket: gloo runs its chains of calls in the order in which they end
        return powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)

    logging.disable()  # it tells its settings
    steps = trained(torch_ddp, powerSGD_hook.powerSGD_hook, power, bucket_cap_mb=25)
    found["PowerSGD"] = distance(trained(ours, powerSGD_hook.powerSGD_hook, power, bucket_cap_mb=25), steps)
    return found, (*apart, distance(steps, bare))


@pytest.mark.parametrize("world_size", [2, 3])
def test_the_same_hook_does_the_same_everywhere(world_size):
    for found, apart in run_ranks(hooked, world_size, device="cpu", timeout=110):
        # Three ranks add float16 in an order of their own.
        tolerance = {case: 1e-2 if "16" in case and world_size > 2 else TOLERANCE for case in found}
        assert not {case: away for case, away in found.items() if not away < tolerance[case]}
        assert min(apart) > 1e-5  # compression leaves traces: none of these did nothing


def on_a_device():
    plain = ours(seeded_by_rank(mlp))
    bare = run(plain, lambda step: plain(mine(step)).square().sum().backward())
    return {
        "mean": distance(trained(ours, comm_hooks.allreduce_hook)[:3], bare),
        "mean, views": distance(trained(views, comm_hooks.allreduce_hook)[:3], bare),
        "fp16": distance(trained(ours, comm_hooks.fp16_compress_hook), trained(views, comm_hooks.fp16_compress_hook)),
        "bf16": distance(trained(ours, comm_hooks.bf16_compress_hook), trained(views, comm_hooks.bf16_compress_hook)),
    }


def test_hooks_on_another_device(other_device):
    for found in run_ranks(on_a_device, 2, device=other_device):
        assert len(found) == 4 and max(found.values()) < TOLERANCE, found


def seen_by_the_hook():
    """What a hook sees of each bucket, and whether what it returns is taken: here ten times the local gradients."""
    buckets = []

    def hook(state, bucket):
        state.append((bucket.index(), bucket.buffer().numel(), bucket.is_last()))
        shapes = [p.shape for p in bucket.parameters()] == [g.shape for g in bucket.gradients()]
        inside = all(
            g.untyped_storage().data_ptr() == bucket.buffer().untyped_storage().data_ptr() for g in bucket.gradients()
        )
        state.append(shapes and inside)
        bucket.set_buffer(bucket.buffer() * 10)
        future = Future()
        future.set_result(bucket.buffer())
        return future

    found = []
    for wrap in (ours, views):
        wrapped = wrap(seeded_by_rank(mlp))
        wrapped.register_comm_hook(buckets, hook)
        wrapped(mine(0)).sum().backward()
        gradients = [p.grad.clone() for p in wrapped.parameters()]
        wrapped.zero_grad()
        wrapped.module(mine(0)).sum().backward()
        found.append(all(torch.allclose(g, 10 * p.grad) for g, p in zip(gradients, wrapped.parameters(), strict=True)))
    return buckets, found


def test_a_hook_gets_whole_buckets_undivided_and_its_result_is_taken():
    for buckets, found in run_ranks(seen_by_the_hook, 2, device="cpu"):
        assert buckets == [(0, 84, False), True, (1, 256, False), True, (2, 112, True), True] * 2
        assert found == [True, True]


def with_hook(name):
    wrapped = ours(seeded_by_rank(lambda: mlp().float()))
    if name:
        wrapped.register_comm_hook(None, getattr(comm_hooks, name))
    wrapped(mine(0).float()).sum().backward()


@pytest.mark.parametrize("name", ["", "allreduce_hook", "fp16_compress_hook", "bf16_compress_hook"])
def test_bytes_and_messages(name):
    record = run_ranks(with_hook, 2, name, device="cpu", record=True).record
    sizes = [4 * 84 + 4 * 256, 4 * 112]  # in float32 more parameters fit into a bucket
    for rank in (0, 1):
        sent = record.select(rank=rank, op="all_reduce")
        assert [e.nbytes for e in sent] == [size // (2 if "16" in name else 1) for size in sizes]
        assert all(e.phase == "backward" and e.asynchronous for e in sent)


def no_future():
    found = []
    for result in (None, torch.ones(1)):
        wrapped = ours(seeded_by_rank(mlp))
        wrapped.register_comm_hook(None, lambda state, bucket, result=result: result)
        found.append(message_of(lambda w=wrapped: w(mine(0)).sum().backward()))
    return found


def test_a_hook_that_returns_no_future_is_told():
    for found in run_ranks(no_future, 1, device="cpu"):
        assert found == [
            "TypeError: a communication hook has to return a Future of a tensor, not a NoneType",
            "TypeError: a communication hook has to return a Future of a tensor, not a Tensor",
        ]


def test_the_group_is_the_hooks_state():
    def in_group():
        groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
        group = groups[dist.get_rank() % 2]
        found = []
        for hook in (None, comm_hooks.allreduce_hook):
            wrapped = ours(seeded_by_rank(mlp, group), group=group, bucket_cap_mb=SMALL)
            if hook:
                wrapped.register_comm_hook(group, hook)
            wrapped(mine(0)).sum().backward()
            found.append([p.grad for p in wrapped.parameters()])
        return max((a - b).abs().max().item() for a, b in zip(*found, strict=True))

    assert max(run_ranks(in_group, 4, device="cpu")) < TOLERANCE
