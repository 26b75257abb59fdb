"""AnalyticTarget targets against figures that are printed elsewhere than in the file of entries."""

import pytest

from dtlearn.planner.score.analytic import FORMULAS
from dtlearn.planner.score.entries import CannotPredict, PublishedNumber
from dtlearn.planner.score.inputs import Reader
from dtlearn.planner.score.scoring import predict


def value(target, name="x", unit="", **inputs):
    return FORMULAS[target](Reader(PublishedNumber(name, target, unit=unit, inputs=inputs)))


@pytest.mark.parametrize(
    ("stage", "gigabytes"),
    [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)],  # ZeRO, 1910.02054, figure 1
)
def test_zeros_figure_1(stage, gigabytes):
    of = value("memory.model_states_per_device", params=7.5e9, dp=64, zero_stage=stage)
    assert of / 1e9 == pytest.approx(gigabytes, abs=0.06)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [  # Megatron Core, dist_optimizer.md
        ({"distributed_optimizer": False, "dtypes": "fp16_fp16"}, 20),
        ({"distributed_optimizer": True, "dtypes": "fp16_fp16", "dp": 8}, 4 + 16 / 8),
        ({"distributed_optimizer": True, "dtypes": "bf16_fp32grad", "dp": 8}, 6 + 12 / 8),
        ({"distributed_optimizer": False, "dtypes": "fp32_fp32"}, 16),
    ],
)
def test_megatrons_bytes(inputs, expected):
    assert value("memory.bytes_per_param", **inputs) == expected


def test_deepspeeds_estimators():
    """The functions' own text for t5-3b: 5.31 GB with ZeRO-2 and offload on 8 GPUs; three options of ZeRO-3."""
    state = "memory.model_states_per_device"
    of = {"params": 2851e6, "largest_layer_params": 32e6, "gpus": 8}
    assert value(state, zero_stage=2, offload="optimizer=cpu", **of) / 2**30 == pytest.approx(5.31, abs=0.01)
    assert value(state, zero_stage=2, offload="none", **of) / 2**30 == pytest.approx(10.62 + 5.31, abs=0.02)
    assert value(state, offload="param=cpu,optimizer=cpu", **of) == 4 * 32e6
    assert value(state, offload="optimizer=cpu", **of) == 4 * 32e6 + 2 * 2851e6 / 8
    assert value(state, **of) == 4 * 32e6 + 18 * 2851e6 / 8


@pytest.mark.parametrize(
    ("name", "chunks", "idle", "peak"),
    [
        ("zb_units_GPipe", 1, 9, 8),
        ("zb_units_1F1B", 1, 9, 4),
        ("ZB-H2", 1, 0, 7),
        ("LoopedBFS", 2, 4.5, 16),
        ("interleaved", 2, 4.5, 11),
        ("zb_units_ZBV", 2, 1.5, 8),
    ],
)
def test_schedules_by_name(name, chunks, idle, peak):
    """p 4, m 8, F = B = W."""
    inputs = {"pp": 4, "microbatches": 8, "virtual_stages": chunks}
    assert value("pipeline.idle_units", name, **inputs) == pytest.approx(idle)
    assert value("pipeline.peak_activation", name, **inputs) == pytest.approx(peak)


def test_bubbles_in_both_conventions():
    assert value("pipeline.bubble_over_ideal", pp=4, microbatches=8) == 3 / 8
    assert value("pipeline.bubble_over_total", pp=4, microbatches=8) == 3 / 11
    assert value("pipeline.bubble_over_ideal", pp=4, microbatches=8, virtual_stages=3) == 1 / 8


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("zeropp_fwd_allgather", 0.5),
        ("zeropp_bwd_allgather", 0.0),
        ("zeropp_grad_reduce_scatter", 0.25),
        ("zeropp_total", 0.75),
        ("zero3_baseline_total", 3.0),
        ("baseline_fwd_allgather", 1.0),
    ],
)
def test_zero_plus_plus(name, expected):
    """2306.10209, table 1: 3 M, of which 0.75 M is left."""
    assert value("comm.cross_node_volume", name) == expected


@pytest.mark.parametrize(("name", "expected"), [("all_gpu", 16), ("g16", 14), ("update_cpu", 4), ("g16_and_update", 2)])
def test_offload(name, expected):
    """ZeRO-Offload, 2101.06840, table 1."""
    assert value("memory.gpu_bytes_per_param", name) == expected


def test_activations_of_the_first_stage():
    """2205.05198, section 4.2.3: the first stage keeps L layers' worth, whatever p is, and more when interleaved."""
    of = {"heads": 96, "hidden": 12288, "layers": 96, "tp": 8, "seq": 2048, "microbatch": 1, "recompute": "none"}
    plain = value("memory.activation_first_stage", sequence_parallel=True, pp=8, **of)
    assert plain == 2048 * 12288 * 96 / 8 * (34 + 5 * 96 * 2048 / 12288)
    interleaved = value("memory.activation_first_stage", sequence_parallel=True, pp=8, virtual_stages=3, **of)
    assert interleaved / plain == pytest.approx(1 + 7 / 24)


@pytest.mark.parametrize(
    ("name", "percent"), [("korth_fig7_sp", 62.0), ("korth_fig7_selective", 56.5), ("korth_fig7_combined", 18.5)]
)
def test_figure_7(name, percent):
    of = {"heads": 96, "hidden": 12288, "tp": 8, "seq": 2048}
    assert value("memory.activation_fraction_of_tp_baseline", name, **of) == pytest.approx(percent, abs=0.1)


def test_counts_and_products():
    assert value("topology.world_size", tp=8, cp=16, pp=16, dp=8) == 16384
    assert value("batch.tokens_per_step", dp=128, batch_per_dp=16, seq=8192) == 2**24
    assert value("comm.allreduce_bytes_per_rank", ranks=4) == 1.5
    assert value("comm.dp_volume_per_step", "zero_comm_stage3") == 3
    assert value("flops.compute_optimal", params=70e9, tokens=1.4e12) == pytest.approx(5.88e23)
    assert value("memory.max_params", mp=1, gpus=64, zero_stage=3) == 128e9
    assert value("memory.model_params", params=1e9, bytes_per_param=12) == 12e9
    assert value("checkpoint.size", params=176e9) / 1e12 == pytest.approx(2.3, rel=0.1)
    assert value("goodput.mtbf_hours", failures=419, days=54) == pytest.approx(3.1, abs=0.05)
    assert value("pipeline.speedup", pp=2, microbatches=1) == 1


def test_what_is_missing_is_named():
    with pytest.raises(CannotPredict, match="lack seq"):
        value("memory.activation_per_layer", hidden=1, heads=1)
    assert "lack pp" in predict(PublishedNumber("", "pipeline.bubble_over_ideal")).reason
