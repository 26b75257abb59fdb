"""The formats of what is gathered and reduced: torch's rules; overflow agreed over ranks; what each format loses."""

import math

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy as TorchPolicy
from torch.distributed.fsdp import fully_shard

from dtlearn.mixed_precision import GradScaler
from dtlearn.models import MLP, max_difference, snapshot_parameters
from dtlearn.runtime.run import run_ranks
from dtlearn.sharing.flat_collectives import all_gather_single, reduce_scatter_single
from dtlearn.zero.clipping import clip_grad_norm_
from dtlearn.zero.precision import MixedPrecisionPolicy, divisors
from dtlearn.zero.stages.zero3 import FullyShardedDataParallel

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


def test_it_has_torchs_names_and_defaults():
    own, torchs = MixedPrecisionPolicy(), TorchPolicy()
    for name in ("param_dtype", "reduce_dtype", "output_dtype", "cast_forward_inputs"):
        assert getattr(own, name) == getattr(torchs, name)


@pytest.mark.parametrize("name", ["param_dtype", "reduce_dtype", "output_dtype"])
def test_a_format_without_a_point_is_refused(name):
    with pytest.raises(ValueError, match=rf"{name} must be a floating-point dtype .* got torch.int8"):
        MixedPrecisionPolicy(**{name: torch.int8})


def test_nothing_is_copied_where_nothing_changes():
    shard, policy = torch.randn(3), MixedPrecisionPolicy()
    assert policy.to_gather(shard).data_ptr() == shard.data_ptr()
    assert policy.to_reduce(shard, 4).data_ptr() == shard.data_ptr()
    assert policy.cast_inputs((shard,), {"x": 1}) == ((shard,), {"x": 1})
    assert policy.cast_outputs([shard]) == [shard]


def test_inputs_and_outputs_are_cast_in_any_nest_and_whole_numbers_are_not():
    policy = MixedPrecisionPolicy(BF16, output_dtype=FP32)
    (x, nest), kwargs = policy.cast_inputs((torch.ones(2), [torch.ones(2).double(), 3]), {"ids": torch.tensor([1])})
    assert x.dtype == nest[0].dtype == BF16 and nest[1] == 3 and kwargs["ids"].dtype == torch.int64
    assert policy.cast_outputs({"y": x})["y"].dtype == FP32
    left = MixedPrecisionPolicy(BF16, cast_forward_inputs=False).cast_inputs((torch.ones(2),), {})
    assert left[0][0].dtype == FP32


def test_divisors_are_torchs():
    collectives = pytest.importorskip("torch.distributed.fsdp._fully_shard._fsdp_collectives")

    class Ranks:
        def __init__(self, number):
            self.number = number

        def size(self):
            return self.number

    for number in range(1, 33):
        before, after = divisors(number, FP16)
        assert collectives._get_gradient_divide_factors(Ranks(number), None, FP16)[:2] == (before, after)
        assert before * after == number
        assert divisors(number, FP32) == divisors(number, BF16) == (1.0, number)


def average(gradient, policy):
    """Reduce-scatter by the policy: this rank's part, as it arrives at a float32 shard."""
    size = dist.get_world_size()
    shard = torch.zeros(gradient.numel() // size)
    sent = policy.to_reduce(gradient.clone(), size)
    reduced = torch.empty(shard.numel(), dtype=sent.dtype)
    reduce_scatter_single(reduced, sent)
    return policy.to_shard(reduced, shard, size)


def every_format():
    """On four ranks: by format, what each rank's part of a mean became."""
    rank, found = dist.get_rank(), {}
    big = torch.full((8,), 30_000.0, dtype=FP16)  # the sum over 4 ranks is beyond float16
    small = torch.full((8,), 2.0**-24, dtype=FP16)  # the smallest number of float16: a quarter of it is 0
    uneven = torch.full((8,), 1.0 if rank == 0 else 2.0**-9, dtype=BF16)  # 1 + 2^-9 is 1 in bfloat16
    for name, policy in {"fp32": MixedPrecisionPolicy(BF16, FP32), "as it is": MixedPrecisionPolicy(BF16)}.items():
        for kind, gradient in {"big": big, "small": small, "uneven": uneven}.items():
            found[name, kind] = average(gradient, policy)
    # sabotage
    whole = big.clone()
    dist.all_reduce(whole)
    found["divided after", "big"] = whole / 4
    found["divided before", "small"] = small / 4
    return found


def test_what_a_format_loses_in_the_sum():
    for found in run_ranks(every_format, 4, device="cpu"):
        assert all(mean.dtype == FP32 and mean.shape == (2,) for key, mean in found.items() if "divided" not in key[0])
        exact = (1 + 3 * 2.0**-9) / 4
        assert found["fp32", "big"].tolist() == [30_000.0] * 2
        assert found["fp32", "small"].tolist() == [2.0**-24] * 2
        assert found["fp32", "uneven"].tolist() == [exact] * 2
        assert found["as it is", "big"].tolist() == [30_000.0] * 2  # half of the division before the sum, half after
        assert found["as it is", "uneven"].sub(exact).abs().min() > 0.0004
        assert found["divided after", "big"].isinf().all()
        assert found["divided before", "small"].eq(0).all()


# Masters, gathered weights and the sum: a step by hand, against the same step in one process.


def step_by_hand(policy):
    """Bytes of the all-gather and what a step of SGD makes of the shard, where the gradient is the mean of x."""
    size, rank = dist.get_world_size(), dist.get_rank()
    weight = torch.linspace(1.0, 2.0, 12).chunk(size)[rank].clone()
    piece = nn.Parameter(weight.clone())
    gathered = torch.empty(12, dtype=policy.gather_dtype(FP32), requires_grad=False)
    all_gather_single(gathered, policy.to_gather(piece))
    gathered.requires_grad_()
    x = torch.arange(12.0) * (rank + 1)
    (gathered * policy.cast_inputs((x,), {})[0][0]).sum().backward()
    flat = policy.to_reduce(gathered.grad, size)
    reduced = torch.empty(piece.numel(), dtype=flat.dtype)
    reduce_scatter_single(reduced, flat)
    piece.grad = policy.to_shard(reduced, piece, size)
    torch.optim.SGD([piece], lr=1e-3).step()
    return gathered.dtype, piece.detach(), weight


@pytest.mark.parametrize(
    ("param", "reduce", "gathers", "reduces"), [(None, None, 4, 4), (BF16, None, 2, 2), (BF16, FP32, 2, 4)]
)
def test_masters_stay_in_float32_and_half_the_bytes_are_sent(param, reduce, gathers, reduces):
    result = run_ranks(step_by_hand, 3, MixedPrecisionPolicy(param, reduce), device="cpu", record=True)
    for rank, (dtype, piece, before) in enumerate(result):
        assert dtype == (param or FP32) and piece.dtype == FP32
        exact = before - 1e-3 * 2 * torch.arange(12.0).chunk(3)[rank]  # the mean of 1, 2, 3 is 2
        assert (piece - exact).abs().max() < (1e-7 if param is None else 1e-4)
        assert not torch.equal(piece[1:], before[1:])  # a step of 0.002 from 1.5 is lost in bfloat16, not here
        calls = [(call.op, call.nbytes) for call in result.record.select(rank=rank)]
        assert [nbytes for _, nbytes in calls] == [gathers * 4, reduces * 12]


# Overflow: chapter 7's scaler on top of pieces.


def scaled_steps(agree):
    """Five steps in which rank 1's piece overflows once; scale and weights afterwards."""
    rank = dist.get_rank()
    own = [nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(0))]
    own = own if rank < 2 else own[1:]  # the third rank has an empty piece only
    optimizer = torch.optim.Adam(own, lr=0.1)
    scaler = GradScaler(8.0, growth_interval=100, group=dist.group.WORLD if agree else None)
    for step in range(5):
        scaler.scale(torch.ones(()))
        for piece in own:
            piece.grad = torch.full_like(piece, math.inf if (step, rank) == (2, 1) else 8.0)
        scaler.unscale_(optimizer)
        clip_grad_norm_(own, 1e9)
        scaler.step(optimizer)
        scaler.update()
    steps = {int(optimizer.state[piece]["step"]) for piece in own if optimizer.state[piece]}
    return scaler.get_scale(), steps, own[0].detach()


def test_an_overflow_on_one_rank_is_one_on_all():
    for scale, steps, weight in run_ranks(scaled_steps, 3, True, device="cpu"):
        assert scale == 4.0 and steps == {4} and weight.isfinite().all()


def test_without_agreement_ranks_drift_apart():
    scales, steps, _ = zip(*run_ranks(scaled_steps, 3, False, device="cpu"), strict=True)
    assert scales == (8.0, 4.0, 8.0) and steps[0] == {5} and steps[1] == {4}


# Stage 3 with a policy, beside `fully_shard` with torch's.

POLICIES = [(BF16, FP32), (BF16, None), (FP16, None), (None, BF16)]


def mlp():
    torch.manual_seed(0)
    return MLP((6, 16, 16, 4))


def train(model, optimizer, scaler=None, overflow_in=None):
    rank, losses = dist.get_rank(), []
    for step in range(4):
        inputs = torch.randn(3, 6, generator=torch.Generator().manual_seed(10 * step + rank))
        if (step, rank) == (overflow_in, 1):
            inputs *= 1e30  # infinite in float16
        loss = model(inputs).float().square().mean()
        losses.append(loss.item())
        optimizer.zero_grad()
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
    return losses


def ours(policy):
    return FullyShardedDataParallel(mlp(), units=(nn.Linear,), policy=MixedPrecisionPolicy(*policy))


def torchs(policy):
    model = mlp()
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mp_policy=TorchPolicy(*policy))
    fully_shard(model, mp_policy=TorchPolicy(*policy))
    return model


def whole_parameters(model):
    if isinstance(model, FullyShardedDataParallel):
        with model.unsharded():
            return snapshot_parameters(model.module)
    return {name: parameter.detach().full_tensor() for name, parameter in model.named_parameters()}


def stage_3_beside_torchs():
    """How far losses and parameters are from torch's, and those from float32, by policy."""
    found = {}
    exact = ours((None, None))
    train(exact, torch.optim.SGD(exact.parameters(), lr=0.1))
    for policy in POLICIES:
        mine, theirs = ours(policy), torchs(policy)
        losses = [train(model, torch.optim.SGD(model.parameters(), lr=0.1)) for model in (mine, theirs)]
        parameters = whole_parameters(mine)
        assert all(p.dtype == FP32 for p in mine.parameters())
        found[policy] = (
            max(abs(a - b) for a, b in zip(*losses, strict=True)),
            max_difference(parameters, whole_parameters(theirs)).value,
            max_difference(parameters, whole_parameters(exact)).value,
        )
    return found


def test_stage_3_is_fully_shard_with_the_same_policy():
    for found in run_ranks(stage_3_beside_torchs, 3, device="cpu"):
        for policy, (losses, parameters, rounding) in found.items():
            # A sum in 16 bits depends on its order, and on whether it is divided before it is float32 again.
            tolerance = 1e-6 if policy[1] is FP32 else 3e-4
            assert losses < tolerance and parameters < tolerance, (policy, losses, parameters)
            assert rounding > 2e-6, (policy, rounding)  # it is another run than that in float32


def overflow_in_stage_3(agree):
    """A batch of rank 1 overflows in its third step; the scale, the weights, and Adam's steps."""
    model = ours((FP16, FP32))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scaler = GradScaler(8.0, growth_interval=100, group=dist.group.WORLD if agree else None)
    train(model, optimizer, scaler, overflow_in=2)
    steps = {int(optimizer.state[p]["step"]) for p in model.sharded_params if p.numel()}
    return scaler.get_scale(), steps, all(p.isfinite().all() for p in model.parameters())


def test_an_overflow_in_stage_3_is_skipped_by_all():
    for scale, steps, finite in run_ranks(overflow_in_stage_3, 3, True, device="cpu"):
        assert (scale, steps, finite) == (4.0, {3}, True)
