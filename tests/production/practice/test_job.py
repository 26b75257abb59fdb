import random

import pytest
import torch
import torch.distributed as dist

from dtlearn import run_ranks
from dtlearn.production.practice.job import PracticeJob, PracticeOptions, PracticeSampler, PracticeScaler


def trained(options, steps=6):
    """On each rank: losses, parameters and residual of a job."""
    rank = dist.get_rank()
    torch.manual_seed(rank)
    random.seed(rank)
    x = torch.randn(14, 3)
    job = PracticeJob(x, x.sum(1), PracticeOptions(**options))
    losses = job.train(steps)
    return losses, torch.nn.utils.parameters_to_vector(job.model.parameters()).detach(), job.residual


@pytest.mark.parametrize(
    "options",
    [
        *({"momentum": 0.9}, {"decay": 0.5}, {"float16": True}, {"batch": 4, "shuffle": True}, {"dropout": 0.5}),
        *({"flips": True}, {"topk": 0.2}),
    ],
    ids=lambda options: next(iter(options)),
)
def test_each_difficulty_changes_the_run_and_ranks_stay_equal(options):
    (losses, parameters, residual), (_, others, other_residual) = run_ranks(trained, 2, options)
    assert torch.equal(parameters, others) and losses != run_ranks(trained, 2, {})[0][0]
    assert ("topk" in options) == (not torch.equal(residual, other_residual))


def test_plain_sgd_learns():
    losses = run_ranks(trained, 1, {}, 40)[0][0]
    assert losses[-1] < losses[0] / 2


def test_a_scale_falls_after_an_overflow_and_grows_after_three_good_steps():
    scaler = PracticeScaler()
    first = scaler.scale
    for overflow in (True, False, False, False):
        scaler.update(overflow)
    assert (scaler.scale, scaler.good_steps) == (first / 8, 0)


def test_a_sampler_goes_on_at_its_place():
    whole, first, second = (PracticeSampler(10, 4, True) for _ in range(3))
    rows = [whole.take().tolist() for _ in range(5)]
    begun = [first.take().tolist() for _ in range(3)]
    second.load_state_dict(first.state_dict())
    assert [*begun, *(second.take().tolist() for _ in range(2))] == rows
    assert len({row for part in rows[:2] for row in part}) == 8
