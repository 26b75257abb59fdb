"""The page: to the last bit what the real server computes; a sabotaged one is not."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector

from dtlearn.parameter_server import page_parameter_server as page
from dtlearn.parameter_server.consistency import Asynchronous, Synchronous
from dtlearn.runtime.run import run_ranks
from tests.parameter_server.runs import OPTIMIZERS, compute_on, flat_of, make_model, reference, train

STEPS = 4


def train_page(optimizer="adam", synchronous=True, server=page.OneServer, steps_of=(STEPS,) * 3):
    """On the server (parameters, staleness), on workers the parameters of each step."""
    rank, model = dist.get_rank(), make_model()
    if rank == page.SERVER:
        flat = nn.Parameter(parameters_to_vector(model.parameters()).detach())
        running = server(flat, OPTIMIZERS[optimizer]([flat]), synchronous)
        running.serve()
        return flat.detach(), running.staleness
    parameters, compute, seen = list(model.parameters()), compute_on(model, rank - 1), []
    for number in range(steps_of[rank - 1]):
        page.pull(parameters)
        compute(number)
        seen.append(parameters_to_vector(parameters).detach())
        page.push([p.grad for p in parameters])
    dist.send(torch.tensor(page.DONE), page.SERVER)
    return seen


class FirstOnly(page.OneServer):
    """Does not wait for all."""

    def __init__(self, flat, optimizer, synchronous):
        super().__init__(flat, optimizer, synchronous=False)


class OneOptimizerStepTooMany(page.OneServer):
    def __init__(self, flat, optimizer, synchronous):
        super().__init__(flat, optimizer, synchronous)
        step = optimizer.step
        optimizer.step = lambda: (step(), step())


SABOTAGES = {"first only": FirstOnly, "too many steps": OneOptimizerStepTooMany}


def sabotaged(name):
    return train_page(server=SABOTAGES[name])


def unequal():
    return train_page(steps_of=(1, STEPS))


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_it_is_the_real_server(optimizer):
    real, mine = run_ranks(train, 3, 1, STEPS, optimizer, Synchronous()), run_ranks(train_page, 3, optimizer)
    assert torch.equal(mine[0][0], flat_of(real))
    for rank in (1, 2):
        assert all(map(torch.equal, mine[rank], real[rank][1]))
    assert mine[0][1] == [0] * (2 * STEPS)


def test_one_asynchronous_worker_is_plain_training():
    real = run_ranks(train, 2, 1, STEPS, "adam", Asynchronous())
    mine = run_ranks(train_page, 2, "adam", False)
    assert torch.equal(mine[0][0], flat_of(real)) and torch.equal(mine[0][0], reference(1, STEPS, "adam")[-1])


def test_asynchronous_pushes_are_updates_of_their_own():
    mine = run_ranks(train_page, 3, "sgd", False)
    assert len(mine[0][1]) == 2 * STEPS and max(mine[0][1]) >= 0 and bool(mine[0][0].isfinite().all())
    assert not torch.equal(mine[0][0], reference(2, STEPS)[-1])


def test_workers_may_finish_at_different_times():
    run = run_ranks(unequal, 3)
    assert len(run[0][1]) == 1 + STEPS and len(run[2]) == STEPS


@pytest.mark.parametrize("name", SABOTAGES)
def test_sabotage_is_noticed(name):
    assert float((run_ranks(sabotaged, 3, name)[0][0] - reference(2, STEPS, "adam")[-1]).abs().max()) > 1e-6
