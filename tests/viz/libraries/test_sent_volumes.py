"""Each bar is what its run sent, and the line what the paper says."""

from dataclasses import replace

import pytest

from dtlearn.libraries import RunDescription, load_stored_results, volume
from dtlearn.viz.libraries.sent_volumes import SHOWN, sent_volumes, volumes_words

STORED = load_stored_results()
PARAMETERS = RunDescription().config.num_parameters


def test_bars_are_what_was_sent_and_lines_what_is_said():
    (axes,) = sent_volumes(STORED, PARAMETERS).axes
    once = 4 * PARAMETERS / 2 / 1e6
    assert [text.get_text() for text in axes.get_yticklabels()] == [title for title, _ in SHOWN.values()]
    assert [line.get_xdata()[0] / once for line in axes.lines] == pytest.approx([units for _, units in SHOWN.values()])
    for row, name in enumerate(SHOWN):
        bars = [bar for bar in axes.patches if round(bar.get_y() + bar.get_height() / 2) == row]
        sent = sum(bar.get_width() for bar in bars) / once
        assert sent == pytest.approx(volume(STORED.results[name], PARAMETERS), abs=0.003), name


def test_the_surprises_are_seen():
    words = volumes_words(STORED, PARAMETERS)
    assert "ZeRO 2: 3.00, by the papers 2" in words and "ZeRO 3: 2.00, by the papers 3" in words
    assert "told to reduce: 2.00, by the papers 2" in words and "told to gather twice: 3.00, by the papers 3" in words


def test_a_run_that_is_missing():
    without = replace(STORED, results={name: run for name, run in STORED.results.items() if name != "zero3"})
    with pytest.raises(ValueError, match="zero3 are not stored"):
        sent_volumes(without, PARAMETERS)
