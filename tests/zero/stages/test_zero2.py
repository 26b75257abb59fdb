"""Stage 2: the single-process run, step by step; what backward sends and holds; what is refused."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

from dtlearn.memory.ledger.storage_ledger import StorageLedger
from dtlearn.models import snapshot_parameters
from dtlearn.runtime.run import run_ranks
from dtlearn.zero.stages import zero2
from dtlearn.zero.stages.zero1 import ZeroRedundancyOptimizer
from dtlearn.zero.stages.zero2 import ShardedGradients
from tests.data_parallel.runs import MODELS, Paths, distance, loss_of, message_of, mlp
from tests.zero.stages.sharded_training import (
    TOLERANCE,
    batches_of,
    full_gradients,
    reference,
    seeded_by_rank,
    split_at_barriers,
)

OPTIONS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
}


def sharded(model, optimizer="adamw", wrap=ShardedGradients, cap=100, **more):
    optimizer_class, options = OPTIONS[optimizer]
    made = ZeroRedundancyOptimizer(
        (p for p in model.parameters() if p.requires_grad),
        optimizer_class,
        gradients="local",
        cap=cap,
        **options,
        **more,
    )
    return wrap(model, made)


def steps_of(wrapped, name, backwards=None):
    """Gradients and parameters after each step."""
    rank, size, steps = dist.get_rank(), dist.get_world_size(), []
    flat, optimizer = wrapped.optimizer.flat, wrapped.optimizer
    names = {id(parameter): name for name, parameter in wrapped.module.named_parameters()}
    names = [names[id(parameter)] for parameter in flat.parameters]
    for inputs, targets in batches_of(name):
        optimizer.zero_grad()
        if backwards is None:
            loss_of(name)(wrapped(inputs[rank::size]), targets[rank::size]).backward()
        else:
            backwards(wrapped, inputs[rank::size], targets[rank::size])
        gone = all(parameter.grad is None for parameter in flat.parameters)
        found = full_gradients(names, [p.shape for p in flat.parameters], flat.pieces)
        optimizer.step()
        steps.append({**found, **snapshot_parameters(wrapped.module)} if gone else {})
    return steps


def micro_batches(inputs, targets):
    """Two micro-batches, each with its share of the mean."""
    middle = -(-len(inputs) // 2)
    for part in (slice(None, middle), slice(middle, None)):
        yield inputs[part], targets[part], len(inputs[part]) / len(inputs)


def without_sync(wrapped, inputs, targets):
    """The first micro-batch in `no_sync`."""
    (x, y, share), (x2, y2, share2) = micro_batches(inputs, targets)
    with wrapped.no_sync():
        (loss_of("gpt")(wrapped(x), y) * share).backward()
    (loss_of("gpt")(wrapped(x2), y2) * share2).backward()


def reduced_twice(wrapped, inputs, targets):
    """Each micro-batch is reduced: they add up in the shards."""
    for x, y, share in micro_batches(inputs, targets):
        (loss_of("gpt")(wrapped(x), y) * share).backward()


def parity(cases):
    found = {}
    for name, optimizer, way in cases:
        backwards = {"no_sync": without_sync, "reduced twice": reduced_twice}.get(way)
        options = {"layout": "whole tensors", "cap": None} if way == "whole tensors" else {}
        wrapped = sharded(seeded_by_rank(name), optimizer, **options)
        found[name, optimizer, way] = distance(steps_of(wrapped, name, backwards), reference(name, optimizer))
    return found


CASES = [
    ("mlp", "sgd", "hook"),
    ("gpt", "momentum", "hook"),
    *((name, "adamw", "hook") for name in MODELS if name != "mlp"),
    ("gpt", "adamw", "whole tensors"),
    ("gpt", "adamw", "no_sync"),
    ("gpt", "adamw", "reduced twice"),
]


def too_far(found):
    return {case: away for case, away in found.items() if not away < (1e-5 if "types" in case else TOLERANCE)}


@pytest.fixture(scope="module")
def on_two():
    """Of each rank: `parity`, `sabotaged` and `around_it`."""
    return run_ranks(lambda: (parity(CASES), sabotaged(), around_it()), 2, device="cpu", timeout=110).values


def test_it_is_the_single_process_run(on_two):
    for found, _, _ in on_two:
        assert len(found) == len(CASES) and not too_far(found)


@pytest.mark.parametrize("world_size", [1, 3, 4])
def test_so_it_is_on_other_numbers_of_ranks(world_size):
    cases = CASES if world_size == 3 else CASES[1::3]
    for found in run_ranks(parity, world_size, cases, device="cpu", timeout=110):
        assert len(found) == len(cases) and not too_far(found)


# Sabotage: what the parity test is to find.


class NotDivided(ShardedGradients):
    def _launch(self, b):
        for number in self.optimizer.flat.partition.buckets[b].parameters:
            gradient = self.optimizer.flat.parameters[number].grad
            if gradient is not None:
                gradient *= self.optimizer.flat.num_ranks
        super()._launch(b)


class OwnGradients(ShardedGradients):
    """The reduce-scatter is left out: each rank takes its own gradients for the sum."""

    def _launch(self, b):
        def nothing(shard, gradient, *, group, async_op):
            shard.copy_(gradient.view(-1, len(shard))[dist.get_rank(group)] * dist.get_world_size(group))
            return dist.barrier(group=group, async_op=True)

        before, zero2.reduce_scatter_single = zero2.reduce_scatter_single, nothing
        try:
            super()._launch(b)
        finally:
            zero2.reduce_scatter_single = before


class LastMicroBatch(ShardedGradients):
    """What came before is overwritten."""

    def _launch(self, b):
        for piece in self.optimizer.pieces:
            piece.grad = None
        super()._launch(b)


class LostBucket(ShardedGradients):
    """The last bucket is never sent."""

    def backward_begins(self, unused):
        super().backward_begins(unused)
        self._order = self._order[:-1]


def sabotaged():
    found = {}
    for wrap in (ShardedGradients, NotDivided, OwnGradients, LastMicroBatch):
        wrapped = sharded(seeded_by_rank("gpt"), "adamw", wrap)
        found[wrap.__name__] = distance(steps_of(wrapped, "gpt", reduced_twice), reference("gpt", "adamw"))
    wrapped = sharded(seeded_by_rank("gpt"), "adamw", LostBucket)
    inputs, targets = batches_of("gpt")[0]
    loss_of("gpt")(wrapped(inputs), targets).backward()
    found["LostBucket"] = [parameter.grad is None for parameter in wrapped.module.parameters()]
    return found


def test_sabotage_is_found(on_two):
    for _, found, _ in on_two:
        lost = found.pop("LostBucket")
        assert found.pop("ShardedGradients") < TOLERANCE
        assert not [name for name, away in found.items() if away < 1e-3], found
        assert not all(lost)


# What a step sends and holds.


MICRO_BATCHES = (1, 2)


def steps():
    """Steps: the peak of gradients in the first backward pass, and what is left after it, in bytes."""
    found = []
    for micro_batches in MICRO_BATCHES:
        model = nn.Sequential(*(nn.Linear(16, 16, bias=False) for _ in range(4))).double()
        wrapped = sharded(model, "sgd", cap=256)
        for micro in range(micro_batches):
            out = wrapped(torch.ones(1, 16, dtype=torch.float64)).sum()
            with StorageLedger() as ledger:
                out.backward()
            found += [(ledger.peak, ledger.now)] if micro == 0 else []
        wrapped.optimizer.step()
        dist.barrier()  # parts the record
    return found


def test_bytes_and_memory_are_those_of_the_docstring():
    n, ranks, buckets = 4 * 256 * 8, 4, 4
    result = run_ranks(steps, ranks, device="cpu", record=True)
    for rank, memory in enumerate(result):
        for micro, events in zip(MICRO_BATCHES, split_at_barriers(result.record.select(rank=rank)), strict=True):
            scattered = [event.nbytes for event in events if event.op == "reduce_scatter_tensor"]
            gathered = [event.nbytes for event in events if event.op == "all_gather_into_tensor"]
            assert (len(scattered), len(gathered)) == (micro * buckets, buckets)
            assert sum(scattered) == micro * n and sum(gathered) == n // ranks
            sent = sum(scattered) * (ranks - 1) // ranks + sum(gathered) * (ranks - 1)
            assert sent == (micro + 1) * n * (ranks - 1) // ranks
        (peak, after), _ = memory
        assert after == n // ranks  # shards
        # The gradient of one bucket, the buffer of one, shards, and gradients of activations: less than all gradients
        assert peak <= 2 * n // 4 + n // ranks + 6 * 16 * 8 < n


# What it is to live with.


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.middle, self.last = (nn.Linear(6, 6).double() for _ in range(3))

    def forward(self, x, use_reentrant, twice=False):
        x = self.first(x)
        for _ in range(1 + twice):
            x = checkpoint(self.middle, x, use_reentrant=use_reentrant)
        return self.last(x)


def fail(*_):
    raise ArithmeticError("planted")


def around_it():
    rank, x = dist.get_rank(), torch.ones(2, 6, dtype=torch.float64) * (dist.get_rank() + 1)
    found = {}
    plain = None
    for way in (False, True):
        torch.manual_seed(0)
        wrapped = sharded(Checkpointed())
        wrapped(x, way).square().sum().backward()
        gradients = full_gradients("abcdef", [p.shape for p in wrapped.module.parameters()], wrapped.optimizer.pieces)
        plain = plain or gradients
        found["checkpoint", way] = distance([gradients], [plain])
    found["twice"] = message_of(lambda: wrapped(x, True, twice=True).sum().backward())
    torch.manual_seed(0)
    unused = sharded(Paths().double(), "sgd")
    before = snapshot_parameters(unused.module)
    unused(x, "ab" if rank else "bc").sum().backward()  # each rank uses others, and nobody uses d
    unused.optimizer.step()
    moved = {name[0] for name, now in unused.module.named_parameters() if not torch.equal(now, before[name])}
    found["unused"] = "".join(sorted(moved))
    model = mlp()
    made = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    found["averaged"] = message_of(lambda: ShardedGradients(model, made))
    model, other = mlp(), mlp()
    both = ZeroRedundancyOptimizer([*model.parameters(), *other.parameters()], torch.optim.SGD, gradients="local", lr=1)
    found["more"] = message_of(lambda: ShardedGradients(model, both))
    part = ZeroRedundancyOptimizer(list(model.parameters())[1:], torch.optim.SGD, gradients="local", lr=1)
    found["fewer"] = message_of(lambda: ShardedGradients(model, part))
    wrapped = sharded(mlp())
    found["bare"] = message_of(lambda: wrapped.module(x))
    found["bare forward"] = message_of(lambda: wrapped.module.forward(x))
    with torch.no_grad():
        found["no_grad"] = torch.equal(wrapped.module(x), wrapped(x))
    gradients = []
    for fails in (True, False, False):  # what a backward pass left that failed is not added to the next one
        wrapped.optimizer.zero_grad()
        hook = wrapped.module.layers[0].register_full_backward_hook(fail) if fails else None
        message = message_of(lambda: wrapped(x * 1).square().sum().backward())
        found["fails"] = found.get("fails", message)
        gradients.append([piece.grad for piece in wrapped.optimizer.flat.pieces])
        if hook is not None:
            hook.remove()
    found["nothing left"] = all(a is None or torch.equal(a, b) for a, b in zip(*gradients[1:], strict=True))
    wrapped.optimizer.zero_grad()
    with wrapped.no_sync():
        wrapped.forward(x).sum().backward()
    found["not reduced"] = message_of(wrapped.optimizer.step)
    wrapped(x).sum().backward()
    found["step"] = message_of(wrapped.optimizer.step)
    return found


def test_it_is_used_as_a_model_is(on_two):
    for _, _, found in on_two:
        assert found["checkpoint", False] < TOLERANCE > found["checkpoint", True]
        assert "got a second gradient in one backward pass" in found["twice"]
        assert "planted" in found["fails"] and found["nothing left"]
        assert found["unused"] == "abc" and found["no_grad"] and found["step"] == ""
        assert "build it with gradients='local'" in found["averaged"]
        assert "the optimizer has 6 parameters that are not trained in this model" in found["more"]
        assert "1 parameters of the model are not in the optimizer, layers.0.weight for one" in found["fewer"]
        assert "the module was called itself" in found["bare"] and found["bare"] == found["bare forward"]
        assert "the last backward pass was in no_sync()" in found["not reduced"]
