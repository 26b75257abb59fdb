"""Emulated layers give what torch gives in 16 bits."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dtlearn.mixed_precision.formats import BF16, FP16, TF32
from dtlearn.mixed_precision.measure.emulated_linear import EmulatedLinear, convert_to_emulated, round_both_ways
from dtlearn.models import GPT, GPTConfig


@pytest.mark.parametrize("fmt", [BF16, FP16], ids=lambda fmt: fmt.name)
def test_values_and_gradients_are_those_of_torch_in_16_bits(fmt):
    torch.manual_seed(0)
    layer = EmulatedLinear(32, 16, fmt=fmt)
    x = torch.randn(3, 5, 32, requires_grad=True)
    y = layer(x)
    dy = torch.randn_like(y)
    y.backward(dy)
    real = [t.detach().to(fmt.dtype).requires_grad_() for t in (x, layer.weight, layer.bias)]
    real_y = F.linear(*real)
    real_y.backward(dy.to(fmt.dtype))
    for ours, theirs in zip(
        [y, x.grad, layer.weight.grad, layer.bias.grad], [real_y, *(t.grad for t in real)], strict=True
    ):
        assert ours.dtype == torch.float32 and ours.equal(ours.to(fmt.dtype).float())
        # The order of additions differs: by one step of the format where a sum is near a tie, or cancels.
        torch.testing.assert_close(ours, theirs.float(), rtol=fmt.epsilon, atol=4 * fmt.epsilon)
        assert (ours == theirs.float()).float().mean() > 0.8


def test_small_gradients_vanish_in_fp16_on_their_way_back():
    layer = EmulatedLinear(4, 4, fmt=FP16)
    x = torch.randn(2, 4, requires_grad=True)
    layer(x).backward(torch.full((2, 4), 2.0**-26))
    assert (x.grad == 0).all() and (layer.weight.grad == 0).all() and (layer.bias.grad == 0).all()


def test_rounding_goes_both_ways():
    x = torch.tensor([1.001], requires_grad=True)
    y = round_both_ways(x, torch.bfloat16)
    (y * 1.001).backward()
    assert y.item() == 1 == x.grad.item()


def test_conversion_keeps_parameters():
    gpt = GPT(GPTConfig(num_layers=1, tie_embeddings=True))
    before = dict(gpt.named_parameters())
    assert convert_to_emulated(gpt, BF16) is gpt
    after = dict(gpt.named_parameters())
    assert before.keys() == after.keys() and all(before[name] is after[name] for name in before)
    assert not [m for m in gpt.modules() if type(m) is nn.Linear]


def test_a_format_without_dtype_is_refused():
    with pytest.raises(ValueError, match="torch has no tensors of tf32"):
        EmulatedLinear(2, 2, fmt=TF32)
