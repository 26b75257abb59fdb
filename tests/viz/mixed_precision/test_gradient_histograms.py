import pytest
import torch

from dtlearn.mixed_precision.formats import BF16, FP8_E4M3, FP16
from dtlearn.mixed_precision.measure.gradients import Histogram, log2_histogram, shares_in
from dtlearn.viz.mixed_precision.gradient_histograms import fate, gradient_histograms, share_of


@pytest.mark.parametrize(
    ("exponent", "what"),
    [
        (-26, "becomes 0"),
        (-25, "subnormal: fewer bits"),
        (-15, "subnormal: fewer bits"),
        (-14, "normal"),
        (15, "normal"),
        (16, "overflows"),
    ],
)
def test_the_fate_of_a_power_of_two_is_that_of_its_numbers(exponent, what):
    assert fate(exponent, FP16) == what
    between = 1.3 * 2.0**exponent
    assert (FP16.round(between) == 0) == (what == "becomes 0")
    assert (FP16.round(between) == float("inf")) == (what == "overflows")


def test_the_share_is_that_of_rounding_each_number():
    torch.manual_seed(0)
    x = torch.randn(4096) * 2.0**-25
    for scale in (0, 3):
        share = share_of(log2_histogram(x).shifted(scale), FP16)
        assert share == pytest.approx(shares_in(x, FP16, 2.0**scale).zero, abs=1e-3) and share > 0.01
    assert share_of(Histogram(0, (), 7), FP16) == 0


LAYERS = {"first": Histogram(-30, (8, 2), 1), "second": Histogram(-20, (1, 4), 0)}


def test_rows_are_layers_and_columns_are_scales():
    fig = gradient_histograms(LAYERS, FP16, scales=(0, 16), ranges=(BF16, FP16, FP8_E4M3), title="t", label="l")
    plain, scaled = fig.axes[:2]
    assert [tick.get_text() for tick in plain.get_yticklabels()] == ["first", "second"]
    words = [[text.get_text() for text in ax.texts] for ax in (plain, scaled)]
    assert "100 % lost" in words[0] and "0.0 % lost" in words[0] and "not scaled" in words[0]
    assert words[1].count("0.0 % lost") == 2 and "loss times 2^16 = 65,536" in words[1]
    assert {bar.get_x() for bar in plain.patches} == {-30, -29, -20, -19}
    assert {bar.get_x() for bar in scaled.patches} == {-14, -13, -4, -3}
    labels = [text.get_text() for text in fig.legends[0].get_texts()]
    fates = ["becomes 0 in fp16", "subnormal: fewer bits in fp16", "normal in fp16"]
    assert labels == [*fates, "the limits between these, in fp16"]
    ranges = fig.axes[2]
    assert [tick.get_text() for tick in ranges.get_yticklabels()][1] == "range of fp16"
    assert len(ranges.lines) == 2, "bf16 goes on at both ends"


def test_without_ranges_there_is_one_row_of_axes():
    assert len(gradient_histograms(LAYERS, FP16, scales=(0,)).axes) == 1


@pytest.mark.parametrize(("layers", "scales"), [({}, (0,)), (LAYERS, ()), ({"zeros": Histogram(0, (), 3)}, (0,))])
def test_nothing_to_draw_is_refused(layers, scales):
    with pytest.raises(ValueError, match="a layer and a scale or more"):
        gradient_histograms(layers, FP16, scales)
