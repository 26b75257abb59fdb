"""The naive way: the same gradients, one blocking call for each parameter, after backward."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dtlearn.data_parallel import naive as naive_module
from dtlearn.data_parallel.naive import NaiveDataParallel, average_gradients
from dtlearn.memory import StorageLedger
from tests.data_parallel.runs import (
    MODELS,
    TOLERANCE,
    distance_to_reference,
    message_of,
    mlp,
    naive,
    seeded_by_rank,
    settled,
)
from tests.data_parallel.test_ddp import SCENARIOS, WITHOUT_OPTIONS, distance, mine, ours
from tests.devices import run_ranks


def every_model(names, scenarios):
    found = {name: distance_to_reference(name, naive, "sgd") for name in names}
    for scenario in scenarios:
        found[scenario] = distance(SCENARIOS[scenario](naive), SCENARIOS[scenario](ours))
    return found


@pytest.mark.parametrize("world_size", [3, 1])
def test_it_is_the_single_process_run(world_size, device):
    both = (list(MODELS), WITHOUT_OPTIONS) if device == "cpu" else (["gpt", "types"], ["accumulation"])
    for found in run_ranks(every_model, world_size, *both, device=device, timeout=110):
        assert not {k: away for k, away in found.items() if not away < (1e-5 if k == "types" else TOLERANCE)}


def some_without():
    """Gradients after `average_gradients`, where a rank has none for the second parameter, and nobody for the third."""
    a, b, c, frozen = (nn.Parameter(torch.ones(2)) for _ in range(4))
    frozen.requires_grad_(False)
    rank = dist.get_rank()
    a.grad = torch.full((2,), float(rank))
    if rank == 1:
        b.grad = torch.ones(2)
    average_gradients(iter([a, b, c, frozen]))
    return a.grad.tolist(), b.grad.tolist(), c.grad.tolist(), frozen.grad


def test_a_missing_gradient_counts_as_zero():
    assert run_ranks(some_without, 2, device="cpu").values == [([0.5] * 2, [0.5] * 2, [0.0] * 2, None)] * 2


def two_steps():
    model = naive(seeded_by_rank(mlp))
    for step in range(2):
        with model.no_sync():
            model(mine(step)).sum().backward()
        model(mine(step)).sum().backward()


def test_bytes_and_messages():
    record = run_ranks(two_steps, 2, device="cpu", record=True).record
    sizes = [p.nbytes for p in mlp().parameters()]
    for rank in (0, 1):
        sent = record.select(rank=rank, op="all_reduce")
        assert [e.nbytes for e in sent] == sizes * 2
        assert all(e.phase == "backward" and not e.asynchronous for e in sent)
        assert record.nbytes(rank=rank, op="broadcast") == sum(sizes)


def memory():
    """Bytes of tensors: after wrapping, and after backward; and those of the gradients."""
    model = seeded_by_rank(mlp)
    with StorageLedger() as ledger:
        wrapped = naive(model)
        wrapped_bytes = settled(ledger, 0)
        wrapped(mine(0)).sum().backward()
        return wrapped_bytes, ledger.now, sum(p.grad.nbytes for p in model.parameters())


def test_memory_is_that_of_the_gradients():
    before, after, gradients = run_ranks(memory, 2, device="cpu")[0]
    assert before == 0 and after == gradients


def after_an_error():
    model = naive(seeded_by_rank(mlp))

    def broken(_):
        raise ZeroDivisionError("in a hook")

    handle = model.module.layers[0].weight.register_hook(broken)
    error = message_of(lambda: model(mine(0)).sum().backward())
    handle.remove()
    model.zero_grad()
    model(mine(1)).sum().backward()
    gradient = model.module.layers[2].weight.grad
    others = [torch.empty_like(gradient) for _ in range(2)]
    dist.all_gather(others, gradient)
    return error, torch.equal(*others)


def test_an_error_in_backward_does_not_end_averaging():
    assert run_ranks(after_an_error, 2, device="cpu").values == [("ZeroDivisionError: in a hook", True)] * 2


def sabotaged(what):
    replacement = {
        "broadcast_module": lambda *args, **kwargs: None,
        "average_gradients": lambda *args, **kwargs: None,
    }[what]
    setattr(naive_module, what, replacement)
    return distance_to_reference("mlp", naive, "sgd")


@pytest.mark.parametrize("what", ["broadcast_module", "average_gradients"])
def test_without_it_the_parity_fails(what):
    assert max(run_ranks(sabotaged, 2, what, device="cpu")) > 1e-3


def test_it_refuses_other_models():
    def build():
        return message_of(lambda: NaiveDataParallel(nn.Linear(2, 2 + dist.get_rank())))

    for error in run_ranks(build, 2, device="cpu"):
        assert "rank 1 is not that of rank 0" in error
