"""Hooks on parameters: refused before a model is sharded, and called after it, with this rank's part of the mean."""

import torch
from torch import nn

from dtlearn.memory import OptimizerInBackward
from dtlearn.runtime.run import run_ranks
from dtlearn.zero.stages.zero3 import FullyShardedDataParallel
from tests.data_parallel.runs import message_of
from tests.zero.stages.beside_one_process import apart, average, batch, largest_difference, net, sharded


def doubled(model):
    handles = [parameter.register_hook(lambda gradient: gradient * 2) for parameter in model.parameters()]
    model(batch()).square().mean().backward()
    for handle in handles:
        handle.remove()


def shifted(model):
    def add(parameter):
        parameter.grad += 1.0

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(add)
    model(batch()).square().mean().backward()
    for parameter in model.parameters():
        parameter._post_accumulate_grad_hooks.clear()


def updated_in_backward():
    model, plain = sharded(), net()
    optimizer = OptimizerInBackward(torch.optim.SGD(model.parameters(), lr=0.1))
    sgd = torch.optim.SGD(plain.parameters(), lr=0.1)
    for _ in range(2):
        model(batch()).square().mean().backward()
        optimizer.step()
        sgd.zero_grad()
        plain(batch()).square().mean().backward()
        average(plain)
        sgd.step()
    return largest_difference(model.full_params(), {name: p.detach() for name, p in plain.named_parameters()})


def hooks():
    before, after = net(), net()
    before.first.weight.register_hook(lambda gradient: None)
    after.last.bias.register_post_accumulate_grad_hook(lambda parameter: None)
    lost = [message_of(lambda model=model: FullyShardedDataParallel(model)) for model in (before, after)]
    sparse = FullyShardedDataParallel(nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Linear(4, 4)))
    return {
        "apart": [apart(doubled), apart(shifted), updated_in_backward()],
        "lost": lost,
        "sparse": message_of(lambda: sparse(torch.tensor([1, 2])).sum().backward()),
    }


def test_they_are_called_or_refused():
    for found in run_ranks(hooks, 2, device="cpu", timeout=60):
        assert max(found["apart"]) < 1e-12, found["apart"]
        assert "first.weight has a gradient hook, which would be lost" in found["lost"][0]
        assert "last.bias has a gradient hook, which would be lost" in found["lost"][1]
        assert "has a sparse gradient: it has no place in a shard. Build layers with sparse=False" in found["sparse"]
