from dataclasses import replace

import pytest

from dtlearn.viz.gradient_compression.loss_over_cost import loss_over_cost, loss_words
from tests.viz.gradient_compression.method_runs import made

RUNS = [made("dense", 1000), made("sign", 100, seconds=0.25, first=3.1)]


def lines(ax):
    return [line for line in ax.lines if len(line.get_xdata()) > 2]


def test_three_panels_with_one_line_for_each_method():
    steps, sent, seconds = loss_over_cost(RUNS).axes
    for ax in (steps, sent, seconds):
        assert len(lines(ax)) == 2
        assert list(lines(ax)[0].get_ydata()) == pytest.approx([2.8, 2.7, 2.6, 2.5, 2.4, 2.3])  # means of five
    assert [list(line.get_xdata()) for line in lines(steps)] == [[5, 6, 7, 8, 9, 10]] * 2
    # A loss is taken before its step: that of step 5 when four steps have sent.
    assert list(lines(sent)[1].get_xdata()) == [600, 750, 900, 1050, 1200, 1350]
    assert list(lines(seconds)[1].get_xdata()) == [1, 1.25, 1.5, 1.75, 2, 2.25]
    assert sent.get_xscale() == "log"
    assert [ax.get_xlabel() for ax in (steps, sent, seconds)] == ["step", "bytes that a rank has sent", "seconds"]


def test_the_steps_alone():
    (steps,) = loss_over_cost(RUNS, only_steps=True).axes
    assert len(lines(steps)) == 2
    assert steps.get_xlabel() == "step"


def test_what_has_sent_nothing_yet_has_no_place_among_the_bytes():
    late = replace(made("late", 0), sent=(0.0,) * 6 + (50.0,) * 4)
    assert list(lines(loss_over_cost([late]).axes[1])[0].get_xdata()) == [50, 100, 150]
    never = made("never", 0)
    assert not lines(loss_over_cost([RUNS[0], never]).axes[1])[1:]


def test_the_target_is_marked_and_in_the_legend():
    fig = loss_over_cost(RUNS, target=2.6)
    texts = [text.get_text() for text in fig.legends[0].get_texts()]
    assert texts == ["dense: 9 kB, 3 s", "sign: 1.05 kB, 1.75 s"]
    assert loss_over_cost(RUNS, target=0.1).legends[0].get_texts()[0].get_text() == "dense: not to 0.1"
    marks = [line for line in fig.axes[2].lines if len(line.get_xdata()) == 1]
    assert [(m.get_xdata()[0], round(m.get_ydata()[0], 6)) for m in marks] == [(3.0, 2.6), (1.75, 2.6)]


def test_one_method_can_stand_out():
    wide = {
        name: [line.get_linewidth() for line in lines(loss_over_cost(RUNS, highlight=name).axes[0])]
        for name in ("dense", "sign")
    }
    assert wide["dense"] == wide["sign"][::-1] and wide["sign"][1] > wide["sign"][0]
    with pytest.raises(ValueError, match="highlight must be one of dense, sign; got 'x'"):
        loss_over_cost(RUNS, highlight="x")


def test_the_words():
    assert loss_words(RUNS[:1]) == "dense: loss 2.30 after 15 kB and 5 s"


def test_bad_input():
    with pytest.raises(ValueError, match="1 to 10 methods"):
        loss_over_cost([])
    with pytest.raises(ValueError, match="5 steps or more"):
        loss_over_cost([made("short", 1, steps=4)])
