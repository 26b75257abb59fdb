import pytest

from dtlearn.memory.arithmetic.fits import MemoryEstimate
from dtlearn.viz.memory.fit_bars import fit_bars

LARGE, SMALL = (
    MemoryEstimate({"parameters": 90 * 10**9}, 80 * 10**9),
    MemoryEstimate({"parameters": 70 * 10**9}, 80 * 10**9),
)


@pytest.mark.parametrize(
    ("fits", "says"),
    [
        ({"plain": SMALL, "checkpoint": SMALL}, "Llama on one H100: fits"),
        ({"plain": LARGE, "checkpoint": SMALL}, "Llama on one H100: fits with checkpoint"),
        ({"plain": LARGE, "checkpoint": LARGE}, "Llama on one H100: does not fit"),
    ],
)
def test_the_title_is_the_answer(fits, says):
    ax = fit_bars(fits, "Llama", "H100", "l").axes[0]
    assert ax.get_title(loc="left") == says


def test_each_bar_says_whether_it_fits_and_the_line_is_the_gpus():
    fig = fit_bars({"plain": LARGE, "checkpoint": SMALL}, "Llama", "H100")
    words = [text.get_text() for text in fig.axes[0].texts]
    assert words == ["90.0 GB does not fit", "70.0 GB fits"]
    assert "H100: 80.0 GB" in [text.get_text() for text in fig.legends[0].get_texts()]


@pytest.mark.parametrize("fits", [{}, {"a": SMALL, "b": MemoryEstimate({"parameters": 1}, 2)}])
def test_variants_of_several_gpus_are_refused(fits):
    with pytest.raises(ValueError, match="variants on one GPU"):
        fit_bars(fits, "Llama", "H100")
