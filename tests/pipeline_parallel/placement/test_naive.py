"""Layers on ranks are the model of one process; a gradient that is lost is found; one rank works at a time."""

import pytest
import torch
import torch.distributed as dist

from dtlearn.pipeline_parallel.placement import naive
from dtlearn.pipeline_parallel.placement.naive import NaiveModelParallel
from tests.devices import run_ranks
from tests.pipeline_parallel.runs import (
    OPTIMIZERS,
    TOLERANCE,
    batches,
    distance,
    first_ranks,
    loss_of,
    reference,
    snapshot,
    stages_of,
)

CASES = [("sequential", "plain"), ("frozen", "plain"), ("gpt", "plain")]
ROWS, STEPS = 5, 3


def train(name, optimizer, group):
    """How far this rank is from the run of one process, at most; in gradients, parameters and loss."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    model = NaiveModelParallel(stages_of(name, size)[0][rank], group=group)
    stepper = OPTIMIZERS[optimizer](model.parameters())
    away = 0.0
    whole = reference(name, optimizer, ROWS, STEPS)
    for (inputs, targets), (expected, tensors) in zip(batches(name, ROWS, STEPS), whole, strict=True):
        stepper.zero_grad()
        outputs = model(inputs if model.is_first else None)
        loss = loss_of(name)(outputs, targets) if model.is_last else outputs
        loss.backward()
        stepper.step()
        away = max(away, distance(snapshot([model.module]), tensors))
        away = max(away, abs(loss.item() - expected) if model.is_last else abs(loss.item()))
    return away


def parity(sizes):
    found = {}
    for size in sizes:
        group = first_ranks(size)
        if dist.get_rank() < size:
            found |= {(size, *case): train(*case, group) for case in CASES}
    return found


def sabotaged():
    """The gradient that goes back is lost, and zeros go in its place."""

    class Lost(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return torch.zeros_like(gradient)

    receive, naive.receive = naive.receive, lambda *args, **options: Lost.apply(receive(*args, **options))
    try:
        return train("sequential", "plain", None)
    finally:
        naive.receive = receive


@pytest.fixture(scope="module")
def on_four():
    return run_ranks(lambda: (parity([1, 2, 3, 4]), sabotaged()), 4, device="cpu").values


def test_it_is_the_run_of_one_process_on_another_device(other_device):
    for found in run_ranks(parity, 2, [2], device=other_device):
        assert len(found) == len(CASES) and max(found.values()) < TOLERANCE


def test_it_is_the_run_of_one_process(on_four):
    for rank, (found, _) in enumerate(on_four):
        assert len(found) == (4 - rank) * len(CASES)
        assert not {case: away for case, away in found.items() if not away < TOLERANCE}


def test_a_lost_gradient_is_found(on_four):
    *earlier, last = (away for _, away in on_four)
    assert min(earlier) > 1e-3, earlier
    assert last > 1e-6  # from the second step on, as its inputs are others


def one_step(nbytes):
    model = NaiveModelParallel(stages_of("sequential", 3)[0][dist.get_rank()])
    ((inputs, _),) = batches("sequential", nbytes // 48, 1)
    outputs = model(inputs)
    (outputs.sum() if model.is_last else outputs).backward()
    with torch.no_grad():
        model(inputs)


def test_messages_and_bytes_are_as_said():
    record = run_ranks(one_step, 3, 480, device="cpu", record=True).record
    for rank, expected in enumerate([[(1, 88), (1, 480)], [(2, 88), (2, 480), (0, 480)], [(1, 480)]]):
        sent = [(e.peer, e.nbytes) for e in record.select(rank=rank) if e.sends]
        assert sent == expected + [pair for pair in expected if pair[0] > rank]  # once more, without a backward pass
