"""What the checks of chapter 7 expect is what torch does."""

from types import SimpleNamespace

import pytest
import torch

from dtlearn.checks.ch07_mixed_precision import bug_hunt, clip_over_ranks, format_limits, master_weights
from dtlearn.grading.judging.compare import difference


def cases(module, ranks):
    """The cases of a check, each with its inputs."""
    return [(case, module.CHECK.inputs(case)) for case in module.CHECK.all_cases(ranks, seed=3)]


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


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_clipping_is_that_of_torch_on_one_process(ranks):
    for case, given in cases(clip_over_ranks, ranks):
        right, scale = clip_over_ranks.expected(case, given), given[0]["scale"]
        lists = [*(own["shards"] for own in given), given[0]["replicated"]]
        whole = [torch.nn.Parameter(torch.zeros_like(g)) for own in lists for g in own if g is not None]
        for parameter, g in zip(whole, (g for own in lists for g in own if g is not None), strict=True):
            parameter.grad = g / scale
        norm = torch.nn.utils.clip_grad_norm_(whole, given[0]["max_norm"])
        assert {result["norm"] is None for result in right} == {not norm.isfinite()}, case.name
        if norm.isfinite():
            parts = [*(result["shards"] for result in right), right[0]["replicated"]]
            clipped = [g for own in parts for g in own if g is not None]
            assert not difference([p.grad for p in whole], clipped, 1e-4, 1e-5), case.name
            assert not difference([norm.item()] * ranks, [result["norm"] for result in right], 1e-5, 0)


@pytest.mark.parametrize("kind", ["all", "NaN", "weight", "bias"])
def test_an_overflow_is_of_its_kind(kind):
    weight, x = torch.tensor([[0.1, -0.2, 0.05]]), torch.tensor([[0.5, 1.0, -0.3]]).repeat(4, 1)
    model = bug_hunt.model_of(weight)
    given = [{"batches": [bug_hunt.overflowing(kind, weight, x, torch.zeros(4, 1))]}]
    seen = dict(zip(("weight", "bias"), bug_hunt.mean_gradient(model, given, 0, 256.0), strict=True))
    assert [name for name, g in seen.items() if not g.isfinite().all()] == ([kind] if kind in seen else [*seen])
    assert all(g.isnan().all() for g in seen.values()) == (kind == "NaN")


def test_no_master_is_near_the_middle_of_two_weights():
    """So its last bits, in which right answers differ, decide nothing."""
    for case, given in cases(master_weights, 2):
        assert all(master_weights.is_sure(own) for own in given), case.name
        exact = [{**own, "weights": [w.double() for w in own["weights"]]} for own in given]
        for own, double in zip(given, exact, strict=True):
            for of_step, more in zip(master_weights.masters_of(own), master_weights.masters_of(double), strict=True):
                assert not difference(of_step, more, 5e-7, 0), case.name
