"""What the checks of chapter 7 expect is what torch does."""

from types import SimpleNamespace

import pytest
import torch

from dtlearn.checks.ch07_mixed_precision import format_limits, loss_scaler, master_weights, round_to_bf16
from dtlearn.checks.ch07_mixed_precision._wrong_scalers import MISTAKES
from dtlearn.grading.judging.compare import difference

RANKS = 1


def cases(module):
    """The cases of a check, each with its inputs."""
    return [(case, module.CHECK.inputs(case)) for case in module.CHECK.all_cases(RANKS, seed=3)]


@pytest.mark.parametrize(
    ("bits", "dtype", "whole"),
    [
        ((5, 10), torch.float16, torch.int16),
        ((8, 7), torch.bfloat16, torch.int16),
        ((5, 2), torch.float8_e5m2, torch.uint8),
        ((8, 23), torch.float32, torch.int32),
        ((4, 3), torch.float8_e4m3fn, torch.uint8),  # the one without infinity
    ],
)
def test_the_limits_are_those_of_torch(bits, dtype, whole):
    given = dict(zip(("exponent_bits", "mantissa_bits"), bits, strict=True)) | {"has_infinity": bits != (4, 3)}
    (limits,) = format_limits.expected(SimpleNamespace(), [given])
    info = torch.finfo(dtype)
    assert (limits["largest"], limits["smallest_normal"], limits["epsilon"]) == (info.max, info.tiny, info.eps)
    assert limits["smallest_subnormal"] == torch.tensor([1], dtype=whole).view(dtype).double().item()


def test_the_rounding_is_that_of_torchs_cast():
    for case, given in cases(round_to_bf16):
        for right, i in zip(round_to_bf16.expected(case, given), given, strict=True):
            x = i["x"].mT if i["transposed"] else i["x"]
            cast, wanted = (t.contiguous().view(torch.int32) for t in (x.bfloat16().float(), right))
            assert bool(((cast == wanted) | (x.isnan() & right.isnan())).all()), case.name


@pytest.mark.parametrize("mistake", master_weights._NAMES)
def test_each_mistake_with_masters_shows_in_some_case(mistake):
    runs = [
        (master_weights.trained(i), master_weights.trained(i, mistake)) for _, g in cases(master_weights) for i in g
    ]
    assert not all(master_weights._alike([right], [wrong]) for right, wrong in runs)


def test_the_scaler_has_the_trajectory_of_torchs():
    for case, given in cases(loss_scaler):
        for i in given:
            run = loss_scaler.on_rank(lambda **options: torch.amp.GradScaler("cpu", **options), **i)
            assert run["used"] and not difference(loss_scaler.trained(i), run["run"], 1e-6, 0), case.name


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_of_a_scaler_shows_in_some_case(mistake):
    runs = [(loss_scaler.trained(i), loss_scaler.trained(i, mistake)) for _, given in cases(loss_scaler) for i in given]
    assert any(difference(right, wrong, 1e-5, 1e-7) for right, wrong in runs)
