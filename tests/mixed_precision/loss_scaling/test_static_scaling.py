"""Scaling with a constant saves small gradients, and loses the weights at the first overflow."""

import math

import pytest
import torch
from torch import nn

from dtlearn.mixed_precision.loss_scaling.grad_scaler import GradScaler
from dtlearn.mixed_precision.loss_scaling.static_scaling import StaticScaler, largest_static_scale


def weights_after(scaler, coefficients, clip=None):
    """The weight, from 1, after steps with these gradients, which pass through float16 in the backward pass."""
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    for coefficient in coefficients:
        optimizer.zero_grad()
        scaler.scale((weight.half().float() * coefficient).sum()).backward()  # the gradient is float16 at `.half()`
        if clip:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_([weight], clip)
        scaler.step(optimizer)
        scaler.update()
    return weight.item()


def test_small_gradients_survive_with_a_scale_only():
    gradient = 2.0**-26
    assert weights_after(StaticScaler(1), [gradient] * 4) == 1.0
    assert weights_after(StaticScaler(1024), [1000 * gradient]) == 1 - 1000 * gradient
    scaled = StaticScaler(2.0**16)
    weight = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaled.scale((weight.half().float() * gradient).sum()).backward()
    scaled.step(optimizer)
    assert weight.item() == -gradient


def test_as_the_dynamic_scaler_while_nothing_overflows():
    coefficients = [0.5, -0.25, 0.125]
    for clip in (None, 0.3):
        assert weights_after(StaticScaler(256), coefficients, clip) == weights_after(
            GradScaler(256.0), coefficients, clip
        )


def test_an_overflow_spoils_the_weights_for_good():
    assert math.isfinite(weights_after(GradScaler(1024.0), [100.0, 1.0]))
    assert not math.isfinite(weights_after(StaticScaler(1024), [100.0, 1.0]))


def test_the_scale():
    assert StaticScaler(8).get_scale() == 8.0
    for scale in (0, -1, math.inf, math.nan):
        with pytest.raises(ValueError, match="must be positive and finite"):
            StaticScaler(scale)


@pytest.mark.parametrize("largest", [1e-6, 0.7, 3.0, 65_504.0, 1e6])
def test_the_largest_static_scale_just_fits(largest):
    scale = largest_static_scale(largest)
    assert math.log2(scale).is_integer() and largest * scale <= 65_504 < largest * scale * 2
    assert torch.tensor(largest * scale).half().isfinite()
    with pytest.raises(ValueError, match="largest gradient must be positive"):
        largest_static_scale(0.0)
