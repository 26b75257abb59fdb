"""The page of the loss scaler: the trajectory of the package's and of torch's, where single ranks overflow."""

import itertools
import math

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

import dtlearn
from dtlearn.mixed_precision import GradScaler
from dtlearn.mixed_precision.page_grad_scaler import DynamicGradScaler
from tests.devices import run_ranks

STEPS = 24
OVERFLOWS = {2: (0, math.inf), 5: (-1, math.inf), 6: (1, math.nan), 12: (-1, 3e38), 13: (0, -math.inf)}  # one rank each
OPTIONS = [
    {"growth_interval": 3},
    {"growth_interval": 2, "growth_factor": 1.5, "backoff_factor": 0.75},
]  # numbers of float32
OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.1),
}


def train(scaler, make_optimizer):
    """This rank's scales, and the bytes of its weights, after each step; each rank has a model of its own."""
    rank, size = dist.get_rank(), dist.get_world_size()
    generator = torch.Generator().manual_seed(rank)
    model = nn.Sequential(nn.Linear(4 + rank, 3), nn.Tanh(), nn.Linear(3, 2))
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator)
    model.to(dtlearn.device())
    optimizer = make_optimizer([{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.01}])
    history = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4 + rank, generator=generator).to(dtlearn.device())).square().mean()
        where, factor = OVERFLOWS.get(step, (0, 1.0))
        scaler.scale(loss * (factor if rank == where % size else 1.0)).backward()
        if step % 2:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
        scale = scaler.current_scale.item() if isinstance(scaler, DynamicGradScaler) else scaler.get_scale()
        history.append((scale, weights.cpu().numpy().tobytes()))
    return history


def on_rank():
    """{(number of options, optimizer): {scaler: history}}."""
    world, histories = dist.group.WORLD, {}
    for number, options in enumerate(OPTIONS):
        for name, make_optimizer in OPTIMIZERS.items():
            scalers = {
                "page": DynamicGradScaler(**options),
                "package": GradScaler(**options, group=world),
                "torch": ShardedGradScaler("cpu", **options, process_group=world),
            }
            if dist.get_world_size() == 1:
                scalers["torch.amp"] = torch.amp.GradScaler("cpu", **options)
            histories[number, name] = {kind: train(scaler, make_optimizer) for kind, scaler in scalers.items()}
    return histories


@pytest.mark.filterwarnings("ignore:the loss was infinite or NaN")
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_it_has_the_scales_and_weights_of_the_others(world_size):
    result = run_ranks(on_rank, world_size, device="cpu", record=True)
    for case in result[0]:
        for histories in (rank[case] for rank in result):
            assert all(history == histories["page"] for history in histories.values())
        of_ranks = [[scale for scale, _ in rank[case]["page"]] for rank in result]
        assert of_ranks == of_ranks[:1] * world_size  # one decision
        scales = [2.0**16, *of_ranks[0]]
        moves = [(after > before) - (after < before) for before, after in itertools.pairwise(scales)]
        assert [step for step, move in enumerate(moves) if move < 0] == list(OVERFLOWS) and 1 in moves
    runs = len(result[0]) * 3 * STEPS  # of page, package, and torch's
    for rank in range(world_size):
        assert [call.nbytes for call in result.record.select(rank=rank, op="all_reduce")] == [4] * runs


def page_and_package():
    scalers = DynamicGradScaler(**OPTIONS[0]), GradScaler(**OPTIONS[0], group=dist.group.WORLD)
    return [train(scaler, OPTIMIZERS["AdamW"]) for scaler in scalers]


@pytest.mark.filterwarnings("ignore:the loss was infinite or NaN")
def test_it_has_the_packages_scales_and_weights_on_another_device(other_device):
    for page, package in run_ranks(page_and_package, 2, device=other_device):
        assert page == package and len({scale for scale, _ in page}) > 3


def without_the_maximum():
    """Sabotage: each rank keeps its own flag."""
    dist.all_reduce = lambda *_, **__: None
    return train(DynamicGradScaler(**OPTIONS[0]), OPTIMIZERS["SGD"])


def test_ranks_part_without_the_all_reduce():
    scales = [[scale for scale, _ in history] for history in run_ranks(without_the_maximum, 2, device="cpu")]
    assert scales[0] != scales[1]


def test_a_float16_loss_is_scaled_in_float32():
    scaled = DynamicGradScaler(2.0**17).scale(torch.tensor(1.0, dtype=torch.float16))
    assert (scaled.dtype, scaled.item()) == (torch.float32, 2.0**17)
