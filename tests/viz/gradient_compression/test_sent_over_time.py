from dataclasses import replace

import pytest

from dtlearn.viz.gradient_compression.sent_over_time import sent_over_time
from tests.viz.gradient_compression.method_runs import made


def bars(fig):
    return [patch for patch in fig.axes[0].patches if patch.get_height() < 0]


def test_a_bar_for_each_step_that_sends():
    rare = replace(made("rare", 0, steps=4), sent=(0.0, 0.0, 0.0, 1500.0))
    fig = sent_over_time([made("dense", 1000, steps=4), rare])
    assert len(bars(fig)) == 5
    assert [bar.get_x() for bar in bars(fig)] == [0, 0.5, 1, 1.5, 1.5]
    assert {round(-bar.get_height(), 6) for bar in bars(fig)} == {0.8}
    assert [text.get_text() for text in fig.axes[0].texts[:2]] == ["6 kB in 2 s", "1.5 kB in 2 s"]
    assert [text.get_text() for text in fig.axes[0].get_yticklabels()] == ["dense", "rare"]


def test_heights_are_bytes_and_the_smallest_stays_visible():
    fig = sent_over_time([made("dense", 1000, steps=1), made("half", 500, steps=1), made("tiny", 1, steps=1)])
    assert [round(-bar.get_height(), 3) for bar in bars(fig)] == [0.8, 0.4, 0.035]


def test_bad_input():
    with pytest.raises(ValueError, match="none sent a byte"):
        sent_over_time([made("never", 0)])
    with pytest.raises(ValueError, match="1 to 10 methods"):
        sent_over_time([])
