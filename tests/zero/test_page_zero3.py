"""The page on stage 3: equal to `FullyShardedDataParallel` to the last bit; what it sends and holds; what breaks it."""

import copy
import functools

import pytest
import torch
import torch.distributed as dist
from torch import nn

import dtlearn
from dtlearn.memory import record_step
from dtlearn.models import GPT, GPTConfig, next_token_loss
from dtlearn.models.gpt import Block
from dtlearn.zero import FullyShardedDataParallel, page_zero3
from dtlearn.zero.page_zero3 import ShardedUnit, shard_model
from tests.devices import run_ranks
from tests.zero.stages.sharded_training import split_at_barriers

CONFIG = GPTConfig(48, 16, 4, 4, 32)
OPTIMIZERS = {
    "adamw": lambda params: torch.optim.AdamW(params, lr=0.01),
    "momentum": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
}
STEPS = 4


class UsesBlocksTwice(GPT):
    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in [*self.blocks, *self.blocks]:
            x = block(x)
        return self.head(x)


def tokens(step):
    torch.manual_seed(100 * step + dist.get_rank())
    batch = torch.randint(CONFIG.vocab_size, (4, 9))
    return batch[:, :-1].contiguous().to(dtlearn.device()), batch[:, 1:].contiguous().to(dtlearn.device())


def train(model, optimizer):
    """Train for several steps; every second one has two micro-batches, each of which is reduced."""
    for step in range(STEPS):
        inputs, targets = tokens(step)
        micro_batches = 1 + step % 2
        for x, y in zip(inputs.chunk(micro_batches), targets.chunk(micro_batches), strict=True):
            (next_token_loss(model(x), y) / micro_batches).backward()
        optimizer.step()
        optimizer.zero_grad()


def by_the_page(optimizer, make=GPT):
    """The whole parameters after training with the page."""
    torch.manual_seed(dist.get_rank())
    model = make(CONFIG).to(dtlearn.device())
    units = shard_model(model, list(model.blocks), group=None)
    train(model, OPTIMIZERS[optimizer]([unit.shard for unit in units]))
    for unit in units:
        unit.unshard()
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def by_the_class(optimizer, make=GPT):
    torch.manual_seed(dist.get_rank())
    model = FullyShardedDataParallel(make(CONFIG).to(dtlearn.device()), units=(Block,), prefetch=0)
    train(model, OPTIMIZERS[optimizer](model.parameters()))
    return model.full_params()


def with_padding():
    """Whether page and class are the same for layers of 20 and 6 elements, which 3 and 4 ranks do not divide."""
    torch.manual_seed(dist.get_rank())
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)).double().to(dtlearn.device())
    x = torch.randn(4, 3, dtype=torch.float64).to(dtlearn.device())
    real = FullyShardedDataParallel(copy.deepcopy(model), units=(nn.Linear,), prefetch=0)
    units = shard_model(model, [model[0], model[2]], group=None)
    for net, parameters in ((model, [unit.shard for unit in units]), (real, list(real.parameters()))):
        adam = torch.optim.AdamW(parameters, lr=0.01)
        for _ in range(3):
            net(x).square().mean().backward()
            adam.step()
            adam.zero_grad()
    for unit in units:
        unit.unshard()
    return same_bits(dict(model.named_parameters()), real.full_params())


def same_bits(some, others):
    return some.keys() == others.keys() and all(torch.equal(some[name], others[name]) for name in some)


def without_gather(full, shard, *, group):
    full.view(dist.get_world_size(group), -1)[dist.get_rank(group)] = shard


def without_reduction(shard, full, *, group):
    shard.copy_(full.view(dist.get_world_size(group), -1)[dist.get_rank(group)])


def parity(optimizers=tuple(OPTIMIZERS)):
    found = {}
    for name in optimizers:
        for make in (GPT, UsesBlocksTwice):
            found[name, make.__name__] = same_bits(by_the_page(name, make), by_the_class(name, make))
    found["with padding"] = with_padding()
    return found


def parity_and_sabotage():
    found = parity()
    right = by_the_class("adamw")
    for call, sabotage in (("all_gather_single", without_gather), ("reduce_scatter_single", without_reduction)):
        original = getattr(page_zero3, call)
        setattr(page_zero3, call, sabotage)
        found[call] = same_bits(by_the_page("adamw"), right)
        setattr(page_zero3, call, original)
    return found


def a_step():
    torch.manual_seed(0)
    model = GPT(CONFIG)
    units = shard_model(model, list(model.blocks), group=None)
    inputs, targets = tokens(0)
    dist.barrier()
    next_token_loss(model(inputs), targets).backward()
    dist.barrier()  # parts the record
    adam = torch.optim.Adam([unit.shard for unit in units], foreach=False)
    adam.zero_grad()
    memory = record_step(model, adam, (inputs, targets), next_token_loss)
    return [unit.nbytes for unit in units], memory.peak.bytes, of_the_class()


def of_the_class():
    """The peak of a step of the real class, set to keep as little as the page."""
    torch.manual_seed(0)
    model = FullyShardedDataParallel(GPT(CONFIG), units=(Block,), prefetch=0)
    return record_step(
        model, torch.optim.Adam(model.parameters(), foreach=False), tokens(0), next_token_loss
    ).peak.bytes


@functools.cache
def on_ranks(world_size):
    """Each rank's results, `parity_and_sabotage` and `a_step`; and the record."""
    return run_ranks(lambda: (parity_and_sabotage(), a_step()), world_size, device="cpu", record=True, timeout=110)


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_it_is_the_class_to_the_last_bit_and_sabotage_is_found(world_size):
    for found, _ in on_ranks(world_size):
        for sabotaged in ("all_gather_single", "reduce_scatter_single"):
            assert found.pop(sabotaged) == (world_size == 1)
        assert len(found) == 5 and all(found.values()), found


def test_it_is_the_class_on_another_device(other_device):
    for found in run_ranks(parity, 2, ["adamw"], device=other_device):
        assert len(found) == 3 and all(found.values()), found


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_bytes_and_messages_are_those_of_the_docstring(world_size):
    result = on_ranks(world_size)
    for rank, (_, (units, *_)) in enumerate(result):
        *_, events = split_at_barriers(result.record.select(rank=rank))
        sent = {op: [event.nbytes for event in events if event.op == op] for op in {event.op for event in events}}
        assert {op: len(calls) for op, calls in sent.items()} == {
            "all_gather_into_tensor": 2 * len(units),
            "reduce_scatter_tensor": len(units),
        }
        n = sum(units)
        assert sum(sent["all_gather_into_tensor"]) * world_size == 2 * n  # each rank puts in a shard
        assert sum(sent["reduce_scatter_tensor"]) == n


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_its_peak_is_that_of_the_class(world_size):
    for _, (_, page, real) in on_ranks(world_size):
        assert abs(page - real) < 0.1 * real


def frozen():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).requires_grad_(False))
    try:
        shard_model(model, [model[0]], group=None)
    except ValueError as error:
        return str(error)


def all_in_units():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    units = shard_model(model, list(model), group=None)
    model(torch.ones(1, 2)).sum().backward()
    return [type(unit) for unit in units], [unit.shard.grad is None for unit in units]


def test_it_takes_trained_weights_and_a_model_that_has_none_beside_its_units():
    assert run_ranks(frozen, 1, device="cpu")[0] == "expected weights that are all trained, but one is frozen"
    kinds, missing = run_ranks(all_in_units, 1, device="cpu")[0]
    assert kinds == [ShardedUnit] * 2 and missing == [False] * 2
