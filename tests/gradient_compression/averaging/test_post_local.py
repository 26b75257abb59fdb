"""Post-local SGD: torch's hook, averager and optimizer to the last bit; the hook alone; bytes."""

import warnings

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel as TorchDDP

from dtlearn.data_parallel import DistributedDataParallel
from dtlearn.gradient_compression.averaging.post_local import PostLocalSGD, post_local_hook
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
    simulated,
    to_mean,
    train,
)

with warnings.catch_warnings():  # torch 2.13: "`torch.jit.script` is deprecated"
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch.distributed.optim import PostLocalSGDOptimizer

WARM_UP, PERIOD, STEPS = 3, 2, 8


def near_ones():
    """The group of this rank and its neighbour."""
    pairs = [dist.new_group([start, start + 1]) for start in range(0, dist.get_world_size(), 2)]
    return pairs[dist.get_rank() // 2]


def mine(wrapper, inner_group):
    model = make_model(dist.get_rank()).to(here())
    ddp = wrapper(model)
    training = PostLocalSGD(ddp, OPTIMIZERS["momentum"](ddp.parameters()), PERIOD, WARM_UP, inner_group=inner_group)
    ddp.register_comm_hook(training, post_local_hook)
    trace = []
    for step in range(STEPS):
        gradients(ddp, [batch(dist.get_rank(), step)])
        training.step()
        trace.append(flat(model).cpu())
    return trace


def torchs(inner_group):
    model = make_model()
    ddp = TorchDDP(model)
    state = PostLocalSGDState(None, inner_group, WARM_UP, post_local_gradient_allreduce=inner_group is not None)
    ddp.register_comm_hook(state, post_localSGD_hook)
    averager = PeriodicModelAverager(PERIOD, warmup_steps=WARM_UP + PERIOD - 1)
    optimizer = PostLocalSGDOptimizer(OPTIMIZERS["momentum"](ddp.parameters()), averager)
    trace = []
    for step in range(STEPS):
        gradients(ddp, [batch(dist.get_rank(), step)])
        optimizer.step()
        trace.append(flat(model))
    return trace


def beside_torch():
    near = near_ones()
    found = {}
    for name, inner_group in {"alone": None, "near": near}.items():
        found[name] = all(map(torch.equal, torchs(inner_group), mine(TorchDDP, inner_group)))
    return found


def test_it_is_torchs_to_the_last_bit():
    assert run_ranks(beside_torch, 4, device="cpu").values == [{"alone": True, "near": True}] * 4


def ours():
    return mine(DistributedDataParallel, None)


def test_under_our_ddp_it_is_data_parallelism_and_then_local_steps(device):
    run = run_ranks(ours, 2, device=device)
    for step in range(WARM_UP):
        assert torch.equal(run[0][step], run[1][step])
    parted = [not torch.equal(run[0][step], run[1][step]) for step in range(WARM_UP, STEPS)]
    assert parted == [True, False, True, False, True]  # steps 4 and 6 after the warm-up's 3 are followed by a mean
    large_batch = simulated(1, WARM_UP, WARM_UP + 1, to_mean, "momentum", ranks_of=lambda worker: [0, 1])
    assert difference([run[0][:WARM_UP]], large_batch) < TOLERANCE


def without_hook():
    """The hook was forgotten: the copies stay equal, and the first meeting says so."""
    ddp = DistributedDataParallel(make_model())
    training = PostLocalSGD(ddp, OPTIMIZERS["sgd"](ddp.parameters()), PERIOD, 0)
    with pytest.raises(ValueError, match="averages the gradients over these ranks already"):
        train(training, ddp, PERIOD, dist.get_rank())
    with pytest.raises(ValueError, match="warmup_steps must be 0 or more, got -1"):
        PostLocalSGD(ddp, training.optimizer, PERIOD, -1)


def test_a_forgotten_hook_and_bad_input():
    run_ranks(without_hook, 2, device="cpu")


def test_bytes_of_the_record():
    run = run_ranks(ours, 2, device="cpu", record=True)
    for rank in range(2):
        sizes = [event.nbytes for event in run.record.select(rank=rank, op="all_reduce")]
        assert sizes == [8 * flat(make_model()).numel()] * (WARM_UP + 2)
