"""Copies begin as one: values of one rank go to all, and other models are refused."""

import torch
import torch.distributed as dist
from torch import nn

import dtlearn
from dtlearn.sharing.wrapping.replicas import broadcast_module, broadcast_tensors, by_dtype, require_same_model
from tests.data_parallel.runs import message_of
from tests.devices import run_ranks


class Everything(nn.Module):
    """Parameters and buffers of several dtypes, memory layouts and no elements at all."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)
        self.norm = nn.BatchNorm2d(4)
        self.wide = nn.Parameter(torch.randn(3, dtype=torch.float64))
        self.plural = nn.Parameter(torch.randn(2, dtype=torch.complex64))
        self.scalar, self.empty = nn.Parameter(torch.randn(())), nn.Parameter(torch.empty(0))
        self.register_buffer("mask", torch.rand(5) > 0.5)
        self.register_buffer("coarse", torch.randn(3).to(torch.bfloat16))


def made_one():
    """Whether each rank has the values of rank 0, then parameters only of the last rank."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    found = []
    for source, buffers in ((0, True), (last, False)):
        torch.manual_seed(rank)
        model = Everything().to(dtlearn.device())
        torch.manual_seed(source if buffers else rank)
        expected = Everything()
        if not buffers:
            torch.manual_seed(source)
            for p, q in zip(expected.parameters(), Everything().parameters(), strict=True):
                p.data.copy_(q)
        versions = [b._version for b in model.buffers()]
        require_same_model(model)
        broadcast_module(model, source, buffers=buffers)
        state, wanted = model.state_dict(), expected.state_dict()
        found.append(all(torch.equal(state[name].cpu(), wanted[name]) for name in wanted))
        found.append(versions == [b._version for b in model.buffers()])
        found.append(model.conv.weight.is_contiguous(memory_format=torch.channels_last))
    return found


def test_every_tensor_of_any_kind_gets_the_values_of_one_rank(device):
    assert run_ranks(made_one, 3, device=device).values == [[True] * 6] * 3


def in_a_group():
    group = dist.new_group([1, 3])
    value = torch.full((2,), float(dist.get_rank()))
    if dist.get_rank() in (1, 3):
        broadcast_tensors([value], 1, group=group)
        require_same_model(nn.Linear(2, 1 + 1), group=group)
        return value.tolist(), ""
    return value.tolist(), message_of(lambda: require_same_model(nn.Linear(2, 2), group=group))


def test_the_source_is_a_rank_in_the_group():
    values = run_ranks(in_a_group, 4, device="cpu").values
    assert [value for value, _ in values] == [[0.0, 0.0], [3.0, 3.0], [2.0, 2.0], [3.0, 3.0]]
    assert ["ValueError: this rank is not in the group" in error for _, error in values] == [True, False, True, False]


def sent():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4).double())
    require_same_model(model)
    broadcast_module(model)


def test_bytes_and_messages():
    record = run_ranks(sent, 2, device="cpu", record=True).record
    for rank in (0, 1):
        assert [e.nbytes for e in record.select(rank=rank, op="all_gather")] == [16]
        # float32: two layers' parameters and the running statistics; float64: one layer; int64: the count of batches
        assert [e.nbytes for e in record.select(rank=rank, op="broadcast")] == [4 * (20 + 8 + 8), 8 * 20, 8]
        assert len(record.select(rank=rank)) == 4


def different_on_the_last():
    last = dist.get_rank() == dist.get_world_size() - 1
    models = {
        "names": nn.ModuleDict({"b" if last else "a": nn.Linear(2, 2)}),
        "order": nn.ModuleDict({k: nn.Linear(2, 2) for k in ("ba" if last else "ab")}),
        "shapes": nn.Linear(4, 1) if last else nn.Linear(1, 4),
        "dtypes": nn.Linear(2, 2, dtype=torch.float64 if last else torch.float32),
        "buffers": nn.BatchNorm1d(2, track_running_stats=not last),
        "frozen": nn.Linear(2, 2).requires_grad_(not last),
    }
    return {name: message_of(lambda m=model: require_same_model(m)) for name, model in models.items()}


def test_models_that_differ_are_refused_on_every_rank():
    for found in run_ranks(different_on_the_last, 3, device="cpu"):
        for error in found.values():
            assert error.startswith("RuntimeError: the model of rank 2 is not that of rank 0 (")
        assert "(tensors on rank 0: 5, rank 2: 2)" in found["buffers"]


def test_tensors_alike_lie_together_in_their_order():
    a, b, c = torch.ones(1), torch.ones(2).double(), torch.ones(3)
    assert by_dtype([a, b, c]) == [[a, c], [b]] and by_dtype([]) == []
