import pytest

from dtlearn.memory.ledger.record import MemoryRecord
from dtlearn.viz.memory.step_memory import peak_words, step_memories, step_memory
from tests.viz.memory.records import MILLION, record

NOTHING = MemoryRecord((), (), 0)


def test_categories_are_stacked_and_the_top_is_what_is_alive():
    fig = step_memory(record(), "t", "l")
    (ax,) = fig.axes
    top = ax.lines[0]
    assert list(top.get_ydata()) == [2, 5, 6, 10, 6, 3], "MB after each tick"
    assert len(ax.collections) == 4
    assert [text.get_text() for text in fig.legends[0].get_texts()] == [
        "temporaries",
        "activations",
        "gradients",
        "parameters",
    ]
    assert "MB" in ax.get_ylabel() and "not time" in ax.get_xlabel()


def test_phases_and_the_peak_with_its_owner_are_written_in_the_figure():
    words = [text.get_text() for text in step_memory(record()).axes[0].texts]
    assert {"forward", "backward"} <= set(words)
    (peak,) = [text for text in words if text.startswith("peak")]
    assert peak.split("\n") == [
        "peak: 10.0 MB",
        "largest made in this phase: 4.00 MB of temporaries",
        "aten::mul",
        "train.py:7",
    ]


def test_small_pictures_have_one_scale_and_shares_of_the_first_peak():
    fig = step_memories({"plain": record(), "half": record(MILLION)}, "t", "l")
    first, second = fig.axes[:2]
    assert first.get_ylim() == second.get_ylim()
    words = [[text.get_text() for text in ax.texts] for ax in (first, second)]
    assert words == [["plain", "10.0 MB"], ["half", "8.0 MB, 80 %"]]
    assert "dashed" in fig.texts[-1].get_text()


def test_seven_steps_take_three_rows_and_empty_places_have_no_axes():
    fig = step_memories({str(n): record() for n in range(7)})
    assert [ax.axison for ax in fig.axes] == [True] * 7 + [False] * 2


def test_the_peak_in_words():
    assert peak_words(record()) == (
        "peak 10.0 MB in backward (parameters 2.0, gradients 1.0, activations 3.0, temporaries 4.0); "
        "the largest storage made there: 4.00 MB of temporaries, aten::mul"
    )
    assert peak_words(NOTHING) == "nothing is alive"


def test_a_record_without_bytes_is_refused():
    with pytest.raises(ValueError, match="a record with bytes alive"):
        step_memory(NOTHING)
    with pytest.raises(ValueError, match="empty"):
        step_memories({"plain": record(), "empty": NOTHING})
    with pytest.raises(ValueError, match="no record"):
        step_memories({})
