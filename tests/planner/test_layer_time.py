"""A block's time against times that were measured, and against the physics of its operations."""

from dataclasses import replace

import pytest

from dtlearn.memory.arithmetic.published import ModelSizes
from dtlearn.planner import Axes, Software, TrainingRun, parse_cluster
from dtlearn.planner.layer_time import head_seconds, layer_seconds, product_seconds

KORTHIKANTI = TrainingRun(
    ModelSizes("", 48, 6144, 64, 51200, 2048), parse_cluster("8xA100"), Axes(8), 4, microbatch=4, recompute="none",
    sequence_parallel=False, fused_attention=False,
)  # fmt: skip


def milliseconds(run):
    layer = layer_seconds(run)
    exposed = layer.communication * (1 - run.software.tp_hidden)
    return 1000 * (layer.forward + layer.backward + layer.recompute + exposed)


@pytest.mark.parametrize(
    ("changes", "printed"),
    [  # Korthikanti et al., 2205.05198, table 4: both passes of a layer of the 22B, tp 8
        ({}, 19.6),
        ({"sequence_parallel": True}, 19.0),
        ({"recompute": "full"}, 27.2),
        ({"recompute": "selective"}, 20.9),
        ({"recompute": "selective", "sequence_parallel": True}, 20.3),
    ],
)
def test_measured_layers_are_met_without_calibration(changes, printed):
    assert milliseconds(replace(KORTHIKANTI, **changes)) == pytest.approx(printed, rel=0.08)


def test_a_large_product_reaches_the_ceiling_and_a_thin_one_does_not():
    chip = KORTHIKANTI.cluster.chip

    def efficiency(m, n, k):
        return 2 * m * n * k / product_seconds(KORTHIKANTI, m, n, k) / chip.peak

    assert 0.95 * chip.ceiling < efficiency(16384, 16384, 16384) < chip.ceiling
    assert efficiency(128, 16384, 16384) < 0.5 * chip.ceiling
    assert efficiency(16384, 16384, 16400) < 0.85 * efficiency(16384, 16384, 16384)  # no multiple of 64


def test_more_ranks_of_tp_are_faster_but_not_as_many_times_as_fast():
    one, eight = (layer_seconds(replace(KORTHIKANTI, axes=Axes(tp))) for tp in (1, 8))
    assert eight.forward > one.forward / 8
    assert one.communication == 0 < eight.communication


def test_a_micro_batch_twice_as_large_takes_less_than_twice_as_long():
    one, two = (layer_seconds(replace(KORTHIKANTI, microbatch=size)) for size in (1, 2))
    assert one.forward < two.forward < 2 * one.forward


def test_scores_that_are_not_fused_cost_memory_traffic():
    assert layer_seconds(replace(KORTHIKANTI, fused_attention=True)).forward < layer_seconds(KORTHIKANTI).forward


def test_software_scales_what_it_says():
    half = replace(KORTHIKANTI, software=Software(efficiency=0.46))
    assert layer_seconds(half).forward == pytest.approx(2 * layer_seconds(KORTHIKANTI).forward)
    assert head_seconds(half) == pytest.approx(2 * head_seconds(KORTHIKANTI))
    eager = replace(KORTHIKANTI, software=Software(streams=2))
    assert layer_seconds(eager).forward > layer_seconds(KORTHIKANTI).forward
