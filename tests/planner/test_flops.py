"""FLOPs against utilisations that papers print, and against the matrices one by one."""

import pytest

from dtlearn.memory.arithmetic.published import ModelSizes
from dtlearn.planner import find_model
from dtlearn.planner.flops import (
    eq3,
    hardware_flops,
    korthikanti_hardware,
    model_flops,
    palm_flops_per_token,
    utilisation,
)


@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "gpus", "batch", "seconds", "mfu", "hfu"),
    [  # Korthikanti et al., 2205.05198, table 5: on A100 with selective recomputation
        (48, 6144, 64, 8, 4, 1.10, 41.5, 43.7),
        (96, 12288, 96, 64, 64, 13.75, 51.4, 52.8),
        (105, 20480, 128, 280, 280, 37.83, 56.0, 57.0),
        (128, 25600, 160, 512, 512, 71.49, 56.3, 57.0),
    ],
)
def test_utilisations_are_those_of_the_paper(layers, hidden, heads, gpus, batch, seconds, mfu, hfu):
    model = ModelSizes("", layers, hidden, heads, 51200, 2048)
    flops = model_flops(model, batch * 2048, 2048)
    assert 100 * utilisation(flops, seconds, gpus, 312e12) == pytest.approx(mfu, abs=0.4)  # seconds have three digits
    hardware = korthikanti_hardware(model, batch, 2048)
    assert 100 * utilisation(hardware, seconds, gpus, 312e12) == pytest.approx(hfu, abs=0.4)
    assert flops < hardware_flops(model, batch * 2048, 2048, "selective") < hardware  # the paper's s/6h, not s/18h


def test_palms_utilisation():
    """PaLM, 2204.02311, table 3: 46.2 % with attention, 45.7 % without, from 238.3 thousand tokens/s."""
    with_attention = 6 * 540.35e9 + 12 * 118 * 48 * 256 * 2048
    assert 238.3e3 * with_attention / (6144 * 275e12) == pytest.approx(0.462, abs=0.001)
    assert 238.3e3 * palm_flops_per_token(540e9) / (6144 * 275e12) == pytest.approx(0.457, abs=0.001)


def test_megatrons_equation_is_the_blocks_four_times_and_the_head_three_times():
    model = ModelSizes("", 80, 12288, 96, 51200, 2048)
    assert eq3(model, 8, 2048) == pytest.approx(hardware_flops(model, 8 * 2048, 2048, "full"))


def test_matrices_one_by_one():
    """Grouped heads and SwiGLU: Llama 3 8B, each matrix of a layer as it is."""
    model = find_model("Llama 3 8B")
    matrices = 4096 * 4096 + 2 * 4096 * 1024 + 4096 * 4096 + 3 * 4096 * 14336
    attention = 2 * 4096 * 8192  # scores and their product with the values: h numbers for each of s tokens
    head = 4096 * 128256
    expected = 6 * 10 * (32 * (matrices + attention) + head)
    assert model_flops(model, 10, 8192) == pytest.approx(expected)


def test_recomputation_never_counts_as_model_flops():
    model = find_model("gpt-3")
    none, full = (hardware_flops(model, 2048, 2048, way) for way in ("none", "full"))
    assert none == model_flops(model, 2048, 2048)
    assert 1.3 < full / none < 4 / 3
