"""One scale for a tensor: from the tensor itself, or from steps before; the same on all ranks."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dtlearn.mixed_precision.formats import FP8_E4M3, FP8_E5M2, TF32
from dtlearn.mixed_precision.fp8 import scaling
from dtlearn.mixed_precision.fp8.scaling import (
    CurrentScaling,
    DelayedScaling,
    local_amax,
    quantize,
    scale_for,
    update_scales,
)
from dtlearn.mixed_precision.rounding import round_to_nearest_even
from dtlearn.runtime.run import run_ranks

FORMATS = [FP8_E4M3, FP8_E5M2]


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_the_largest_number_lands_on_the_largest_of_the_format(fmt, size):
    torch.manual_seed(0)
    x = torch.randn(40, 50) * size
    result = CurrentScaling(fmt)(x)
    assert result.values.dtype == fmt.dtype and result.values.shape == x.shape
    assert result.values.float().abs().max() == fmt.largest
    assert result.scale.item() == pytest.approx(fmt.largest / x.abs().max().item(), rel=1e-6)
    rounded = round_to_nearest_even(x * result.scale, fmt, saturate=True)
    assert result.values.float().equal(rounded)  # torch's cast, and ours
    error = (result.dequantize() - x).abs()
    smallest = fmt.smallest_normal / result.scale
    assert (error <= torch.maximum(x.abs(), smallest) * fmt.epsilon / 2 * 1.001).all()


def test_without_a_scale_small_numbers_vanish():
    x = torch.full((10,), 1e-5)
    assert (quantize(x, torch.tensor(1.0), FP8_E4M3).dequantize() == 0).all()
    assert (CurrentScaling(FP8_E4M3)(x).dequantize() / x - 1).abs().max() < 1e-6


def test_zeros_and_nothing_have_a_scale_too():
    for x in (torch.zeros(3), torch.empty(0, 4)):
        result = CurrentScaling(FP8_E5M2)(x)
        assert result.scale.isfinite() and result.dequantize().equal(x)


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_an_overflow_stays_visible(value):
    x = torch.tensor([1.0, value, 2.0])
    assert CurrentScaling(FP8_E4M3)(x).dequantize()[1].isnan()
    delayed = DelayedScaling(FP8_E5M2)
    assert delayed(x).dequantize().isfinite().tolist() == [True, False, True]
    update_scales(delayed)
    assert (delayed.history == 0).all() and delayed.noted == 0  # and leaves no trace in later steps


def test_a_delayed_scale_comes_from_the_steps_before():
    delayed = DelayedScaling(FP8_E4M3, history_length=3)
    scales = []
    for amax in (2.0, 8.0, 1.0, 1.0, 1.0, 1.0):
        scales.append(delayed(torch.tensor([-amax, 0.5])).scale.item())
        update_scales(delayed)
    assert scales == [1, 448 / 2, 448 / 8, 448 / 8, 448 / 8, 448 / 1]


def test_steps_of_zeros_leave_the_scale_as_it_is():
    """As Transformer Engine's, also if all of the history is zeros: a layer that is not used for a while."""
    delayed = DelayedScaling(FP8_E4M3, history_length=2)
    scales = []
    for amax in (0.0, 8.0, 0.0, 0.0, 0.0, torch.inf, 4.0):
        delayed(torch.tensor([amax]))
        update_scales(delayed)
        scales.append(delayed.scale.item())
    assert scales == [1.0, 56.0, 56.0, 56.0, 56.0, 56.0, 112.0]


def test_an_update_before_backward_leaves_what_was_saved():
    delayed = DelayedScaling(FP8_E4M3)
    quantized = delayed(torch.ones(2))
    update_scales(delayed)
    assert quantized.scale == 1 and delayed.scale == 448


def test_what_has_grown_since_is_clipped_and_a_margin_leaves_room():
    for margin, expected in ((0, 1.0), (2, 4.0)):
        delayed = DelayedScaling(FP8_E4M3, margin=margin)
        delayed(torch.ones(1))
        update_scales(delayed)
        assert delayed(torch.tensor([6.0])).dequantize().item() == expected


def test_several_calls_in_a_step_and_evaluation():
    delayed = DelayedScaling(FP8_E4M3)
    delayed(torch.full((2,), 3.0))
    delayed(torch.full((2,), 2.0))  # the layer is used twice, or its forward pass is computed again
    delayed.eval()
    delayed(torch.full((2,), 9.0))
    update_scales(nn.ModuleList([delayed]))
    assert delayed.history.tolist() == [3.0] + [0.0] * 15


def test_a_run_goes_on_from_its_state():
    first, other = (DelayedScaling(FP8_E5M2, 4) for _ in range(2))
    for step in range(6):
        first(torch.tensor([1.0 + step]))
        update_scales(first)
    other.load_state_dict(first.state_dict())
    x = torch.randn(20)
    assert first(x).values.view(torch.uint8).equal(other(x).values.view(torch.uint8))


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="history_length >= 1 and margin >= 0, got 0 and 0"):
        DelayedScaling(FP8_E4M3, 0)
    with pytest.raises(ValueError, match="got 3 and -1"):
        DelayedScaling(FP8_E4M3, 3, -1)
    with pytest.raises(ValueError, match="torch has no tensors of tf32"):
        quantize(torch.ones(1), torch.tensor(1.0), TF32)


def test_an_amax_that_is_not_finite_makes_nan():
    assert scale_for(torch.tensor(torch.nan), FP8_E4M3).isnan()
    assert scale_for(torch.tensor(torch.inf), FP8_E4M3) == 0  # and infinity times 0 is NaN
    assert local_amax(torch.tensor([1.0, -torch.nan])).isnan()


def shards(agreed):
    """On each rank: its rows of a weight in 8 bits, and its scale."""
    if not agreed:
        scaling.dist.all_reduce = lambda *args, **kwargs: None
    rank, size = dist.get_rank(), dist.get_world_size()
    weight = torch.randn(12, 5, generator=torch.Generator().manual_seed(0))
    result = CurrentScaling(FP8_E4M3)(weight.chunk(size)[rank])
    return result.values.view(torch.uint8), result.scale.item()


def is_the_whole(world_size, agreed):
    """Whether the shards are those of the whole weight's cast, with one scale."""
    whole = CurrentScaling(FP8_E4M3)(torch.randn(12, 5, generator=torch.Generator().manual_seed(0)))
    parts = run_ranks(shards, world_size, agreed, device="cpu").values
    together = torch.cat([values for values, _ in parts])
    return together.equal(whole.values.view(torch.uint8)) and {s for _, s in parts} == {whole.scale.item()}


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_shards_are_those_of_the_whole_tensor(world_size):
    assert is_the_whole(world_size, agreed=True)


def test_shards_without_agreement_are_not():
    assert not is_the_whole(3, agreed=False)


def histories():
    delayed = nn.ModuleList(DelayedScaling(fmt, 2) for fmt in (FP8_E4M3, FP8_E5M2))
    for step in range(3):
        for part in delayed:
            part(torch.tensor([float(10 * step + dist.get_rank())]))
        update_scales(delayed)
    return [part.history.tolist() for part in delayed]


def test_histories_are_the_same_on_all_ranks_with_one_call_a_step():
    result = run_ranks(histories, 3, device="cpu", record=True)
    assert result.values == [[[22.0, 12.0]] * 2] * 3
    assert [(e.op, e.nbytes) for e in result.record if e.rank == 0] == [("all_reduce", 2 * 4)] * 3


def in_groups():
    groups = [dist.new_group([0, 2]), dist.new_group([1])]
    rank = dist.get_rank()
    cast = CurrentScaling(FP8_E4M3, group=groups[rank % 2])
    return copy.deepcopy(nn.ModuleList([cast]))[0](torch.tensor([1.0 + rank])).scale.item()


def test_only_the_group_agrees_also_of_a_copy():
    assert run_ranks(in_groups, 3, device="cpu").values == pytest.approx([448 / 3, 448 / 2, 448 / 3])
