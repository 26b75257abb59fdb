"""Clipping: torch's on one rank; over ranks, the norm of the whole model; and what clipping before unscaling does."""

import math

import pytest
import torch
import torch.distributed as dist
from torch import nn

import dtlearn
from dtlearn.mixed_precision import GradScaler, clip_grad_norm_, global_norm
from tests.devices import run_ranks


def parameters(factor=1.0, dtype=torch.float32, shapes=((3, 4), (5,), (), (0,), (2,))):
    g = torch.Generator().manual_seed(0)
    made = [nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in shapes]
    for parameter in made[:-1]:  # the last one has no gradient
        parameter.grad = (torch.randn(parameter.shape, generator=g) * factor).to(dtype)
    return made


@pytest.mark.parametrize("factor", [0.01, 1.0, 1e4])
def test_on_one_rank_it_is_torchs(factor):
    mine, theirs = parameters(factor), parameters(factor)
    norms = clip_grad_norm_(mine, 1.0), nn.utils.clip_grad_norm_(theirs, 1.0)
    assert torch.equal(*norms) and norms[0].dtype == torch.float32
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(mine[:-1], theirs[:-1], strict=True))
    assert torch.equal(global_norm(mine), nn.utils.get_total_norm([p.grad for p in theirs[:-1]]))


@pytest.mark.parametrize("norm_type", [1, 2.0, 3.0, math.inf])
def test_any_norm_stands_where_torchs_does(norm_type):
    mine, theirs = (parameters(shapes=[(3, 4), (5,), ()]) for _ in range(2))
    assert torch.equal(clip_grad_norm_(mine, 0.5, norm_type), nn.utils.clip_grad_norm_(theirs, 0.5, norm_type))
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(mine[:-1], theirs[:-1], strict=True))


def test_the_norm_of_16_bit_gradients_is_taken_in_float32():
    many = nn.Parameter(torch.zeros(100, dtype=torch.float16))
    many.grad = torch.full_like(many, 60_000)  # the norm is 600,000
    assert global_norm([many]).item() == pytest.approx(600_000)
    assert nn.utils.clip_grad_norm_([many], 1.0).isinf()


def test_no_gradients():
    assert clip_grad_norm_(parameters()[-1:], 1.0).item() == 0.0
    assert clip_grad_norm_([], 1.0).item() == 0.0
    assert clip_grad_norm_(parameters()[1], 1.0) == global_norm(parameters()[1:2]) > 0  # one, not its rows


def test_a_norm_that_is_not_finite():
    broken = parameters()
    broken[0].grad[0, 0] = math.inf
    with pytest.raises(RuntimeError, match=r"norm of the gradients is inf: .* Leave error_if_nonfinite=False"):
        clip_grad_norm_(broken, 1.0, error_if_nonfinite=True)
    assert clip_grad_norm_(broken, 1.0).isinf()
    for wrong in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="max_norm must be positive"):
            clip_grad_norm_(parameters(), wrong)


# Over ranks.


def clip_shards(max_norm, over_ranks, say_replicated):
    """Each rank has an equal part of 12 gradients, and a bias that all have. Norm and clipped gradients."""
    rank, size = dist.get_rank(), dist.get_world_size()
    here = {"device": dtlearn.device()}
    whole = torch.arange(1.0, 13.0, **here)
    shard, bias = nn.Parameter(torch.zeros(12 // size, **here)), nn.Parameter(torch.zeros(2, **here))
    shard.grad, bias.grad = whole.chunk(size)[rank].clone(), torch.tensor([20.0, -10.0], **here)
    norm = clip_grad_norm_(
        (p for p in [bias, shard]),
        max_norm,
        group=dist.group.WORLD if over_ranks else None,
        replicated=[bias] if say_replicated else (),
    )
    return norm.item(), shard.grad, bias.grad


def expected(max_norm):
    weight, bias = nn.Parameter(torch.zeros(12)), nn.Parameter(torch.zeros(2))
    weight.grad, bias.grad = torch.arange(1.0, 13.0), torch.tensor([20.0, -10.0])
    return nn.utils.clip_grad_norm_([weight, bias], max_norm).item(), weight.grad, bias.grad


def distance(results, max_norm):
    norm, weight, bias = expected(max_norm)
    apart = [abs(result[0] - norm) for result in results]
    apart += [(torch.cat([shard for _, shard, _ in results]) - weight).abs().max().item()]
    return max(apart + [(each - bias).abs().max().item() for _, _, each in results])


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_shards_are_clipped_as_the_whole_and_send_four_bytes(world_size, device):
    result = run_ranks(clip_shards, world_size, 5.0, True, True, device=device, record=True)
    assert distance(list(result), 5.0) < 1e-5
    for rank in range(world_size):
        assert [call.nbytes for call in result.record.select(rank=rank)] == [4]


@pytest.mark.parametrize(("over_ranks", "say_replicated"), [(False, True), (True, False)])
def test_a_norm_of_the_shard_alone_or_a_parameter_counted_twice_is_found(over_ranks, say_replicated):
    result = run_ranks(clip_shards, 2, 5.0, over_ranks, say_replicated, device="cpu")
    assert distance(list(result), 5.0) > 0.1


def test_long_enough_a_norm_leaves_all_as_it_is():
    for _, _, bias in run_ranks(clip_shards, 2, 100.0, True, True, device="cpu"):
        assert bias.tolist() == [20.0, -10.0]


# The order: unscale, then clip.


def trained(unscale_first, scale=2.0**16):
    """Ten steps of length 0.1 at most towards 1, from 0, if gradients are clipped to 1."""
    weight = nn.Parameter(torch.zeros(1))
    optimizer, scaler = torch.optim.SGD([weight], lr=0.1), GradScaler(scale)
    for _ in range(10):
        optimizer.zero_grad()
        scaler.scale((weight - 1).abs().sum() * 8).backward()
        if unscale_first:
            scaler.unscale_(optimizer)
        clip_grad_norm_([weight], 1.0)
        scaler.step(optimizer)
        scaler.update()
    return weight.item()


def test_clipping_before_unscaling_all_but_stops_training():
    without_scale = trained(True, scale=1.0)
    assert trained(True) == without_scale == pytest.approx(1.0, abs=1e-5)
    assert trained(False) == pytest.approx(1.0 / 2**16, rel=1e-3)
