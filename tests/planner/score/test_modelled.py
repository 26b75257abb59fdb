"""Targets of a whole step, and what they take from the inputs where a measurement stands there."""

import pytest

from dtlearn.planner.score.entries import CannotPredict, PublishedNumber
from dtlearn.planner.score.inputs import Reader
from dtlearn.planner.score.modelled import MODELLED

LAYOUT = {
    "heads": 96, "hidden": 12288, "layers": 96, "tp": 8, "pp": 8, "dp": 4, "gpus": 256, "global_batch": 768,
    "seq": 2048, "vocab": 51200, "device": "A100", "peak_tflops": 312, "recompute": "full",
}  # fmt: skip


def value(target, name="x", unit="", **inputs):
    return MODELLED[target](Reader(PublishedNumber(name, target, unit=unit, inputs=inputs)))


def test_a_measurement_is_used_where_it_stands():
    tokens = {"params": 6684024832, "layers": 32, "hidden": 4096, "seq": 8192, "device": "H100-80GB"}
    of = {**tokens, "peak_tflops": 989.5, "tokens_per_s_per_gpu": 6935}
    assert value("throughput.mfu", **of) == pytest.approx(37.14, abs=0.01)  # llm-foundry, H100 table
    assert value("throughput.hfu", activation_checkpointing=True, **of) == pytest.approx(37.14 * 4 / 3, abs=0.02)
    days = {"params": 174.6e9, "tokens": 300e9, "gpus": 1024, "tflops_per_gpu": 140}
    assert value("throughput.training_days", **days) == pytest.approx(34, rel=0.01)  # 2104.04473, section 5.1
    assert value("time.layer_fwd_bwd", forward_ms=7.7, backward_ms=11.9) == pytest.approx(19.6)


def test_targets_of_one_step_agree():
    seconds = value("throughput.iteration_time", **LAYOUT)
    tokens = value("throughput.tokens_per_s", **LAYOUT)
    assert tokens == pytest.approx(768 * 2048 / seconds)
    assert value("throughput.tokens_per_s_per_gpu", **LAYOUT) == pytest.approx(tokens / 256)
    assert value("throughput.training_days", unit="days for 300B tokens", **LAYOUT) == pytest.approx(
        300e9 / tokens / 86400
    )
    rate = value("throughput.per_gpu", **LAYOUT)
    assert value("throughput.aggregate", **LAYOUT) == pytest.approx(rate * 256 / 1000)
    assert value("throughput.pct_peak", **LAYOUT) == pytest.approx(rate / 3.12)
    assert value("throughput.mfu", **LAYOUT) == pytest.approx(0.75 * value("throughput.hfu", **LAYOUT), rel=0.02)


def test_megatron_counts_the_recomputation_and_others_do_not():
    full = value("throughput.per_gpu", **LAYOUT)
    model = value("throughput.per_gpu", unit="TFLOP/s per GPU (model FLOPs)", **LAYOUT)
    assert full / model == pytest.approx(4 / 3, rel=0.02)


def test_a_layer_is_predicted_without_its_times():
    of = {
        "heads": 64,
        "hidden": 6144,
        "tp": 8,
        "microbatch": 4,
        "seq": 2048,
        "recompute": "selective",
        "device": "A100",
    }
    assert value("time.layer_fwd_bwd", **of) == pytest.approx(20.9, rel=0.15)
    assert "layers" not in of


def test_selective_recomputation_gains():
    assert 20 < value("throughput.ratio", **{**LAYOUT, "recompute": "selective"}) < 45


@pytest.mark.parametrize(
    ("name", "params", "tokens", "peak", "hours"),
    [  # model cards of Llama 2 and 3.1, and 2302.13971, table 15
        ("llama1_65b", 65.2e9, 1.4e12, 312e12, 1022362),
        ("llama2_70b", 68.98e9, 2e12, 312e12, 1720320),
        ("llama31_405b", 405e9, 15.6e12, 989.5e12, 30.84e6),
    ],
)
def test_hours_of_whole_runs(name, params, tokens, peak, hours):
    assert value("throughput.gpu_hours", name, params=params, tokens=tokens, peak_flops=peak) == pytest.approx(
        hours, rel=0.35
    )


def test_memory_of_a_device():
    assert 20e9 < value("memory.peak_per_device", **LAYOUT) < 80e9


def test_palm_by_name_alone():
    assert value("throughput.mfu", "palm540b_mfu_noattn") == pytest.approx(45.7, abs=0.1)
    assert value("throughput.mfu", "palm540b_mfu") == pytest.approx(46.2, abs=0.1)
    with pytest.raises(CannotPredict):
        value("throughput.mfu", "gopher")
