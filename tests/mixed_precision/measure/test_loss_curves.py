"""The same run in several formats: who follows float32, and who does not."""

import pytest

from dtlearn.mixed_precision.measure.loss_curves import KINDS, train_curve

STEPS = 25


def late(curve):
    """Mean loss of the last ten steps."""
    return sum(curve.losses[-10:]) / 10


@pytest.fixture(scope="module")
def curves():
    return {kind: train_curve(kind, STEPS) for kind in KINDS}


def test_all_follow_float32_but_unscaled_fp16(curves):
    exact = late(curves["fp32"])
    assert exact < 3.5 < curves["fp32"].losses[0]
    away = {kind: abs(late(curve) - exact) for kind, curve in curves.items()}
    assert max(away["bf16"], away["fp16"], away["fp8"]) < 0.02
    assert away["fp16 unscaled"] > 0.3
    assert len({curve.losses for curve in curves.values()}) == len(KINDS)  # none of them is float32 in disguise


def test_only_fp16_is_scaled(curves):
    assert {kind: set(curve.scales) for kind, curve in curves.items()} == {
        kind: {65536.0 if kind == "fp16" else 1.0} for kind in KINDS
    }
    assert all(len(c.losses) == len(c.scales) == STEPS and not c.skipped for c in curves.values())


def test_a_run_is_the_same_every_time(curves):
    assert train_curve("fp16", 3).losses == curves["fp16"].losses[:3]
    assert train_curve("fp16", 3, seed=1).losses != curves["fp16"].losses[:3]


def test_small_batches_lose_little_without_a_scale(curves):
    assert abs(late(train_curve("fp16 unscaled", STEPS, num_microbatches=1)) - late(curves["fp32"])) < 0.02


def test_a_scale_that_is_too_large_skips_steps_until_it_fits():
    curve = train_curve("fp16", 12, init_scale=2.0**36, growth_interval=3)
    first = curve.skipped[0]
    assert first == 0 and curve.losses[1] == pytest.approx(curve.losses[0], abs=0.2)
    for step in range(11):
        factor = 0.5 if step in curve.skipped else curve.scales[step + 1] / curve.scales[step]
        assert curve.scales[step + 1] == factor * curve.scales[step] and factor in (0.5, 1, 2)
    assert 2 < len(curve.skipped) < 12


def test_another_kind_is_refused():
    with pytest.raises(ValueError, match="kind must be one of fp32, bf16, fp16, fp16 unscaled, fp8; got 'fp4'"):
        train_curve("fp4")
