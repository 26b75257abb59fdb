"""Local SGD: with H = 1 data parallelism, but not with Adam; all workers in one process; torch's averager; bytes."""

import warnings

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

from dtlearn.data_parallel import DistributedDataParallel
from dtlearn.gradient_compression.averaging.periodic import PeriodicAveraging
from dtlearn.runtime.device import device as here
from tests.devices import run_ranks
from tests.gradient_compression.averaging.runs import (
    OPTIMIZERS,
    TOLERANCE,
    batch,
    difference,
    flat,
    gradients,
    make_model,
    on_rank,
    simulated,
    to_mean,
    train,
    with_batch_norm,
)

STEPS = 6


def every_step_and_ddp():
    """By optimizer: the largest difference of a run with H = 1 from data parallelism, and how far training went."""
    found = {}
    for name, make in OPTIMIZERS.items():
        mine = on_rank(lambda model, optimizer: PeriodicAveraging(model, optimizer, 1), STEPS, name)
        model = make_model().to(here())
        ddp = DistributedDataParallel(model)
        optimizer, trace = make(ddp.parameters()), []
        for step in range(STEPS):
            gradients(ddp, [batch(dist.get_rank(), step)])
            optimizer.step()
            trace.append(flat(model))
        found[name] = max(float((a - b).abs().max()) for a, b in zip(mine, trace, strict=True))
    return found


@pytest.mark.parametrize("ranks", [2, 4])
def test_with_one_local_step_it_is_data_parallelism_but_not_with_adam(ranks, device):
    for found in run_ranks(every_step_and_ddp, ranks, device=device):
        assert found["sgd"] < TOLERANCE and found["momentum"] < TOLERANCE, found
        # A step of Adam moves each parameter by about its learning rate, 0.01: the two are most of a step apart.
        assert found["adamw"] > 5e-3, found


def locally(period, optimizer):
    return on_rank(lambda model, inner: PeriodicAveraging(model, inner, period), STEPS, optimizer)


@pytest.mark.parametrize(("ranks", "period"), [(1, 2), (2, 3), (3, 2), (4, 2)])
def test_it_is_all_workers_in_one_process(ranks, period, device):
    run = run_ranks(locally, ranks, period, "adamw", device=device)
    assert difference(run, simulated(ranks, STEPS, period, to_mean)) < TOLERANCE
    if ranks > 1:
        assert not torch.equal(run[0][0], run[1][0]) and torch.equal(run[0][period - 1], run[1][period - 1])


class AveragesItsState(PeriodicAveraging):
    """The inner optimizer's moments are averaged too."""

    def synchronize(self):
        super().synchronize()
        for state in self.optimizer.state.values():
            for name in ("exp_avg", "exp_avg_sq"):
                state[name].div_(dist.get_world_size())
                dist.all_reduce(state[name])


def with_averaged_state():
    return on_rank(lambda model, inner: AveragesItsState(model, inner, 2), STEPS)


def test_sabotage_averaged_moments_give_other_parameters():
    run = run_ranks(with_averaged_state, 2, device="cpu")
    assert difference(run, simulated(2, STEPS, 2, to_mean)) > 1e-3


def beside_torch():
    model = make_model()
    inner = OPTIMIZERS["momentum"](model.parameters())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        averager = PeriodicModelAverager(period=2, warmup_steps=1)
    torchs = []
    for step in range(STEPS):
        gradients(model, [batch(dist.get_rank(), step)])
        inner.step()
        averager.average_parameters(model.parameters())
        torchs.append(flat(model))
    mine = locally(2, "momentum")
    return all(map(torch.equal, mine, torchs))


def test_it_is_torchs_averager_to_the_last_bit():
    assert run_ranks(beside_torch, 3, device="cpu").values == [True] * 3


def buffers_and_unused():
    model = with_batch_norm().to(here())
    rank = dist.get_rank()
    training = PeriodicAveraging(model, OPTIMIZERS["sgd"](model.parameters()), 2)
    train(training, model, 1)
    statistics = model[1].running_mean.clone()
    everyone = [torch.empty_like(statistics) for _ in range(2)]
    gradients(model, [batch(rank, 1)])
    if rank == 1:
        model[2].bias.grad = None  # a parameter that this rank's output does not depend on
        model[1].num_batches_tracked += 5
    before = training.parameters[-1].detach().clone()
    training.optimizer.step()
    dist.all_gather(everyone, model[1].running_mean)
    bias = [torch.empty_like(before) for _ in range(2)]
    dist.all_gather(bias, model[2].bias.detach())
    training.meet()
    return (
        torch.allclose(model[1].running_mean, torch.stack(everyone).mean(0), rtol=0, atol=1e-15),
        not torch.equal(*everyone),
        model[1].num_batches_tracked.item(),
        torch.allclose(model[2].bias, torch.stack(bias).mean(0), rtol=0, atol=1e-15),
        rank == 0 or torch.equal(bias[1], before),
    )


def test_buffers_are_averaged_and_a_parameter_that_only_one_rank_used(device):
    assert run_ranks(buffers_and_unused, 2, device=device).values == [(True, True, 2, True, True)] * 2


def for_the_record():
    locally(3, "sgd")


def test_bytes_of_the_record():
    run = run_ranks(for_the_record, 2, device="cpu", record=True)
    numel = flat(make_model()).numel()
    for rank in range(2):
        assert run.record.nbytes(rank=rank, op="all_reduce") == STEPS // 3 * 8 * numel
        assert len(run.record.select(rank=rank, op="all_reduce")) == STEPS // 3
