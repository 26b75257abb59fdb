"""What all methods share: copies that begin as one, two levels of groups, and gradients that are averaged already."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as TorchDDP

from dtlearn.data_parallel import DistributedDataParallel
from dtlearn.gradient_compression.averaging.local_steps import LocalSteps
from dtlearn.gradient_compression.averaging.periodic import PeriodicAveraging
from dtlearn.runtime.device import device as here
from dtlearn.runtime.link.link import Link
from tests.devices import run_ranks
from tests.gradient_compression.averaging.runs import (
    OPTIMIZERS,
    TOLERANCE,
    batch,
    difference,
    flat,
    gradients,
    make_model,
    simulated,
    to_mean,
    train,
)

STEPS, PERIOD = 6, 3
WRAPPERS = {"ours": DistributedDataParallel, "torch": TorchDDP}


def two_levels(wrapper, everywhere):
    """Ranks 0 and 1 are near each other, and so are 2 and 3. Averaged is over all ranks, or over the slow group."""
    rank = dist.get_rank()
    fast = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
    slow = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank % 2]
    model = make_model(rank).to(here())
    options = {"group": fast} if wrapper == "ours" else {"process_group": fast}
    ddp = WRAPPERS[wrapper](model, **options)
    training = PeriodicAveraging(ddp, OPTIMIZERS["adamw"](ddp.parameters()), PERIOD, group=None if everywhere else slow)
    trace = []
    for step in range(STEPS):
        gradients(ddp, [batch(rank, step)])
        training.step()
        trace.append(flat(model).cpu())
    return trace


def is_two_workers(run):
    expected = simulated(2, STEPS, PERIOD, to_mean, ranks_of=lambda worker: [2 * worker, 2 * worker + 1])
    return difference(run, expected, worker_of=lambda rank: rank // 2) < TOLERANCE


@pytest.mark.parametrize("everywhere", [False, True])
def test_two_groups_of_two_are_two_workers(everywhere, device):
    assert is_two_workers(run_ranks(two_levels, 4, "ours", everywhere, device=device))


def test_and_under_torchs_ddp():
    assert is_two_workers(run_ranks(two_levels, 4, "torch", False, device="cpu"))


def test_bytes_of_the_two_levels_on_their_links():
    link = Link(latency=1e-4, bandwidth=1e6, inside=Link(latency=1e-6, bandwidth=1e9), ranks_per_node=2)
    run = run_ranks(two_levels, 4, "ours", False, device="cpu", record=True, link=link)
    numel = flat(make_model()).numel()
    for rank in range(4):
        calls = run.record.select(rank=rank, op="all_reduce")
        sizes = {group: sum(e.nbytes for e in calls if e.group == group) for group in {e.group for e in calls}}
        assert sorted(sizes.values()) == [STEPS // PERIOD * 8 * numel, STEPS * 8 * numel]


def still_synchronising(wrapper):
    rank = dist.get_rank()
    model = make_model().to(here())
    ddp = WRAPPERS[wrapper](model)
    training = PeriodicAveraging(ddp, OPTIMIZERS["sgd"](ddp.parameters()), 2)
    with pytest.raises(ValueError, match="averages the gradients over these ranks already") as error:
        train(training, ddp, 2, rank)
    return str(error.value)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_ddp_that_still_synchronises_is_noticed(wrapper):
    for message in run_ranks(still_synchronising, 2, wrapper, device="cpu"):
        assert message.startswith("expected parameters that differ after 2 local steps, but those of all 2 ranks are")


def others():
    """A loss scaler that skips the first steps is no such case; nor is a rank alone; what is wrong at the start."""
    rank = dist.get_rank()
    model = make_model(rank).to(here())
    training = PeriodicAveraging(model, OPTIMIZERS["sgd"](model.parameters()), 1)
    begun = flat(model).cpu()
    assert training.step()  # no gradients yet: nothing has moved
    gradients(model, [batch(rank, 0)])
    assert training.step() and training.steps == 2
    alone = PeriodicAveraging(model, training.optimizer, 2, group=[dist.new_group([0]), dist.new_group([1])][rank])
    assert [alone.step() for _ in range(4)] == [False, True, False, True]
    with pytest.raises(ValueError, match="period must be 1 local step or more, got 0"):
        PeriodicAveraging(model, training.optimizer, 0)
    with pytest.raises(ValueError, match="nothing to train"):
        PeriodicAveraging(nn.Identity(), training.optimizer, 1)
    with pytest.raises(RuntimeError, match="the model of rank 1 is not that of rank 0"):
        PeriodicAveraging(nn.Linear(1 + rank, 1).to(here()), training.optimizer, 1)
    with pytest.raises(NotImplementedError):
        LocalSteps(model, training.optimizer, 1, group=alone.group).meet()
    return begun


def test_copies_begin_as_one_and_bad_input(device):
    for begun in run_ranks(others, 2, device=device):
        assert torch.equal(begun, flat(make_model(0)))
