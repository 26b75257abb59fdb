"""What a run is made of; that a resume takes all of it up: `test_checkpoint.py`."""

import random

import numpy as np
import pytest
import torch

from dtlearn.train.options import Options, settle
from dtlearn.train.ranks.rank_0 import TrainError
from dtlearn.train.state import FORMAT, digest, require_same_run, rng_state, seed_rank, set_rng_state
from dtlearn.train.task import Defaults

SETTINGS = settle(Options(seed=4), Defaults(epochs=3, batch_size=8, lr=0.5, warmup=2))
CPU = torch.device("cpu")


def numbers():
    return [torch.rand(()).item(), random.random(), np.random.rand()]


def test_each_rank_and_each_resume_has_random_numbers_of_its_own():
    seen = []
    for seed, rank, step in [(0, 0, 0), (0, 1, 0), (0, 0, 5), (0, 1, 5), (0, 0, 6), (7, 0, 5)]:
        seed_rank(seed, rank, step)
        seen.append(tuple(numbers()))
    assert len(set(seen)) == len(seen)
    assert all(len(set(kind)) == len(seen) for kind in zip(*seen, strict=True))
    seed_rank(0, 1)
    assert tuple(numbers()) == seen[1]


def test_the_states_of_all_generators_are_put_back():
    seed_rank(3, 0)
    np.random.randn()  # keeps a second number in hand
    state = rng_state(CPU)
    after = numbers()
    seed_rank(4, 0)
    assert numbers() != after
    set_rng_state(state, CPU)
    assert numbers() == after


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"format": FORMAT + 1}, f"a.pt has format {FORMAT + 1}, this script reads {FORMAT}"),
        ({"task": "text"}, "a.pt was made with --task text, this run has --task digits"),
        ({"batch_size": 16}, "a.pt was made with --batch-size 16, this run has --batch-size 8"),
        ({"seed": 0}, "a.pt was made with --seed 0, this run has --seed 4: add --seed 0 to go on with it"),
    ],
)
def test_the_state_of_another_run_is_refused(changed, message):
    def state(**changes):
        version = changes.pop("format", FORMAT)
        return {"format": version, "arguments": {"task": "digits", "batch_size": 8, "seed": 4, "lr": 9.0, **changes}}

    require_same_run(state(), SETTINGS, "a.pt")  # another learning rate may be
    with pytest.raises(TrainError) as refused:
        require_same_run(state(**changed), SETTINGS, "a.pt")
    assert str(refused.value).startswith(message)


def test_a_digest_is_of_every_bit_and_every_name():
    model = torch.nn.BatchNorm1d(2)
    first = digest(model)
    assert digest(torch.nn.BatchNorm1d(2)) == first and len(first) == 64
    model.running_mean[1] = 1e-30
    assert digest(model) != first
    model.running_mean[1] = 0.0
    assert digest(model) == first != digest(torch.nn.Sequential(model))
