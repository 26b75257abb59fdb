import pytest

from dtlearn.memory.ledger.record import MemoryRecord
from dtlearn.viz.zero.stage_memory import stage_memory
from tests.viz.zero.records import MILLION, memory

WHOLE = {"parameters": 2 * MILLION, "gradients": 2 * MILLION}
HALF = {"parameters": 2 * MILLION, "gradients": MILLION}


def test_record_and_formula_stand_side_by_side_on_one_scale():
    fig = stage_memory({"stage 1": memory(), "stage 2": memory(MILLION)}, {"stage 1": WHOLE, "stage 2": HALF})
    first, second = fig.axes
    assert first.get_ylim() == second.get_ylim()
    words = [{text.get_text() for text in ax.texts} for ax in (first, second)]
    assert words == [{"stage 1", "peak 7.0 MB", "4.0"}, {"stage 2", "peak 6.0 MB", "3.0"}]
    heights = [[bar.get_height() for bar in ax.patches] for ax in (first, second)]
    assert heights == [[2, 2], [2, 1]], "the formula's bars in MB"


def test_the_line_is_at_what_the_record_holds_at_that_moment_not_at_the_formula():
    fig = stage_memory({"stage 1": memory()}, {"stage 1": HALF})
    level = next(line for line in fig.axes[0].lines if line.get_linestyle() == "--" and line.get_ydata()[0] > 1)
    assert list(level.get_ydata()) == [4, 4] and level.get_xdata()[0] == 3


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="a formula are needed for each stage"):
        stage_memory({"stage 1": memory()}, {"stage 2": WHOLE})
    with pytest.raises(ValueError, match="a record with bytes alive"):
        stage_memory({}, {})
    with pytest.raises(ValueError, match="a record with bytes alive"):
        stage_memory({"a": MemoryRecord((), (), 0)}, {"a": WHOLE})
    with pytest.raises(ValueError, match="no phase 'clip': this record has forward, backward, step"):
        stage_memory({"a": memory()}, {"a": WHOLE}, moment="clip")
