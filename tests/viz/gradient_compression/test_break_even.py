import pytest

from dtlearn.gradient_compression.break_even import CommTime
from dtlearn.viz.gradient_compression.break_even import break_even_curves, break_even_words

PLAIN = CommTime(1e9, 0.0)
CODED = {"sign": CommTime(0.5e9, 1.0), "casts": CommTime(0.5e9, 0.0)}


def test_a_line_for_each_codec_and_a_mark_where_it_crosses():
    fig = break_even_curves(PLAIN, CODED)
    ax = fig.axes[0]
    plain, sign, casts = (line for line in ax.lines if len(line.get_xdata()) == 200)
    assert list(plain.get_ydata()) == pytest.approx([1e9 / b for b in plain.get_xdata()])
    assert list(sign.get_ydata()) == pytest.approx([1 + 0.5e9 / b for b in sign.get_xdata()])
    marks = [line for line in ax.lines if line.get_marker() not in ("None", "") and len(line.get_xdata()) == 1]
    assert [(m.get_xdata()[0], m.get_ydata()[0]) for m in marks] == [(0.5e9, 2.0)]
    texts = [text.get_text() for text in fig.legends[0].get_texts()]
    assert texts == ["without a codec", "sign: pays below 4 Gb/s", "casts: always pays"]
    assert casts.get_linestyle() != sign.get_linestyle()


def test_the_axis_is_in_bits_and_a_crossing_outside_has_no_mark():
    ax = break_even_curves(PLAIN, CODED, speeds=(1e9, 1e12)).axes[0]
    assert not [line for line in ax.lines if len(line.get_xdata()) == 1]
    ax.figure.draw_without_rendering()
    assert [text.get_text() for text in ax.get_xticklabels()] == ["10 Gb/s", "100 Gb/s", "1 Tb/s"]


def test_the_words():
    assert break_even_words(PLAIN, CODED) == "sign pays below 4 Gb/s; casts always pays"


def test_bad_input():
    for coded, speeds in (({}, (1, 2)), (CODED, (2, 1)), (CODED, (0, 1))):
        with pytest.raises(ValueError, match="a codec, and a lower and a higher speed"):
            break_even_curves(PLAIN, coded, speeds)
