"""The page of stage 2: to the last bit what the real classes compute, and by formula what it sends and holds."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dtlearn.memory import StorageLedger
from dtlearn.sharing.wrapping import broadcast_module
from dtlearn.zero import page_zero2
from dtlearn.zero.page_zero2 import FlatBucket, Zero2
from dtlearn.zero.stages.zero1 import ZeroRedundancyOptimizer
from dtlearn.zero.stages.zero2 import ShardedGradients
from tests.data_parallel.runs import MODELS as MODELS_IN_FLOAT64
from tests.data_parallel.runs import data, loss_of, seeded_by_rank, settled
from tests.devices import run_ranks

# In float32, where the order of an addition shows.
MODELS = {name: lambda name=name: MODELS_IN_FLOAT64[name]().float() for name in ("mlp", "gpt", "twice")}
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
}
WIDTH = 12  # of a square layer, which 1, 2, 3 and 4 ranks divide
CASES = [(name, optimizer, micro) for name in MODELS for optimizer in OPTIMIZERS for micro in (1, 2)]


def real(name, optimizer):
    """The real classes: the model in stage 2, and its optimizer."""
    model = seeded_by_rank(MODELS[name])
    optimizer_class, options = OPTIMIZERS[optimizer]
    zero1 = ZeroRedundancyOptimizer(model.parameters(), optimizer_class, gradients="local", cap=100, **options)
    return ShardedGradients(model, zero1), zero1


def page(name, optimizer, zero2=Zero2):
    """The page, with the same buckets: the last one is the first that backward reaches."""
    model = seeded_by_rank(MODELS[name])
    broadcast_module(model)
    buckets, parameters = [], []
    for parameter in model.parameters():
        parameters.append(parameter)
        if sum(p.numel() for p in parameters) >= 100:
            buckets, parameters = [FlatBucket(parameters, None), *buckets], []
    buckets = [FlatBucket(parameters, None), *buckets] if parameters else buckets
    optimizer_class, options = OPTIMIZERS[optimizer]
    return model, zero2(buckets, optimizer_class([bucket.shard for bucket in buckets], **options))


def train(model, optimizer, name, num_micro, shards):
    """This rank's shards of gradients, and the parameters, after each of 4 steps."""
    rank, size, steps = dist.get_rank(), dist.get_world_size(), []
    for inputs, targets in data(name, 4, 16):
        inputs = inputs if inputs.dtype == torch.int64 else inputs.float()
        for x, y in zip(inputs[rank::size].chunk(num_micro), targets[rank::size].chunk(num_micro), strict=True):
            (loss_of(name)(model(x), y) / num_micro).backward()
        assert all(p.grad is None for p in model.parameters())
        gradients = [g.clone() for g in shards()]
        optimizer.step()
        steps.append([*gradients, *(p.detach().clone() for p in model.parameters())])
    return steps


def of_real(case):
    wrapped, optimizer = real(*case[:2])
    flat = optimizer.flat

    def shards():
        """The shards of gradients by bucket, with the padding, which has no gradient of its own."""
        for bucket, like in reversed(list(zip(flat.partition.buckets, flat.shards, strict=True))):
            shard = torch.zeros_like(like)
            for own in bucket.slices(flat.rank):
                shard[own.offset :][: own.numel] = flat.pieces[own.parameter].grad
            yield shard

    return train(wrapped, optimizer, case[0], case[2], shards)


def of_page(case, zero2=Zero2):
    model, optimizer = page(*case[:2], zero2)
    return train(model, optimizer, case[0], case[2], lambda: (bucket.shard.grad for bucket in optimizer.buckets))


def is_equal(mine, theirs):
    return all(len(a) == len(b) > 0 and all(map(torch.equal, a, b)) for a, b in zip(mine, theirs, strict=True))


def no_reduction(patch):
    """Each rank takes its own gradients for the mean."""

    def keeps_its_own(shard, full, *, group, async_op):
        shard.copy_(full.view(-1, len(shard))[dist.get_rank(group)] * dist.get_world_size(group))
        return dist.barrier(async_op=True)

    patch.setattr(page_zero2, "reduce_scatter_single", keeps_its_own)


def no_gather(patch):
    patch.setattr(page_zero2, "all_gather_single", lambda *args, **options: None)


def last_micro_batch_only(patch):
    wait = FlatBucket.wait
    patch.setattr(FlatBucket, "wait", lambda bucket: (setattr(bucket.shard, "grad", None), wait(bucket)))


SABOTAGES = (no_reduction, no_gather, last_micro_batch_only)


def sabotaged():
    case, equal = ("mlp", "sgd", 2), {}
    expected = of_real(case)
    for sabotage in SABOTAGES:
        with pytest.MonkeyPatch.context() as patch:
            sabotage(patch)
            equal[sabotage.__name__] = is_equal(of_page(case), expected)
    return equal


def bytes_and_memory():
    """A step with two micro-batches, for the record; the bytes of each at the peak of backward and after it."""
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4)))
    broadcast_module(model)
    buckets = [FlatBucket(list(layer.parameters()), None) for layer in reversed(model)]
    zero2 = Zero2(buckets, torch.optim.SGD([bucket.shard for bucket in buckets], lr=0.1))
    dist.barrier()  # parts the record
    memory = []
    for _ in range(2):
        loss = model(torch.ones(1, WIDTH)).sum()
        with StorageLedger() as ledger:
            loss.backward()
            memory.append((ledger.peak, settled(ledger, 4 * 4 * WIDTH**2 // dist.get_world_size())))
    zero2.step()
    return memory


def parity(cases):
    return {case: is_equal(of_page(case), of_real(case)) for case in cases}


def on_ranks():
    equal = parity(CASES)
    found = sabotaged() if dist.get_world_size() == 2 else {}
    dist.barrier()
    return equal, found, bytes_and_memory()


@pytest.fixture(scope="module", params=[1, 2, 3, 4])
def run(request):
    return run_ranks(on_ranks, request.param, device="cpu", record=True, timeout=110)


def test_it_is_the_real_one_to_the_last_bit(run):
    for equal, _, _ in run:
        assert len(equal) == len(CASES) and all(equal.values()), equal


def test_so_it_is_on_another_device(other_device):
    for equal in run_ranks(parity, 2, CASES[1::5], device=other_device):
        assert len(equal) == 3 and all(equal.values()), equal


def test_without_its_collectives_it_is_not(run):
    for _, equal, _ in run:
        assert not any(equal.values()), equal


def test_bytes_and_memory_are_those_of_the_docstring(run):
    n, num_ranks = 4 * 4 * WIDTH**2, len(run.values)
    for rank, (_, _, memory) in enumerate(run):
        events = list(run.record.select(rank=rank))
        last = max(number for number, event in enumerate(events) if event.op == "barrier")
        sent = [(event.op, event.nbytes) for event in events[last + 1 :]]
        assert sent == [("reduce_scatter_tensor", n // 4)] * 8 + [("all_gather_into_tensor", n // 4 // num_ranks)] * 4
        for peak, after in memory:
            assert after == n // num_ranks
            assert peak <= 2 * n // 4 + 2 * n // num_ranks + 6 * WIDTH * 4  # and gradients of activations
