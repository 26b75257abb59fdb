import ipywidgets
import pytest

from dtlearn.viz.pipeline.editor import edit_schedule
from dtlearn.viz.pipeline.editor.draft import Recipe, TypedTimes


@pytest.fixture
def shown(monkeypatch):
    outputs = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: outputs.append(data))
    return outputs


def test_headless_it_is_a_figure_a_table_and_the_text(shown):
    edit_schedule(Recipe("1f1b", 2, 2), live=False)
    picture, words, table, text = shown
    assert "image/png" in picture and "Makespan 180 ms" in words["text/plain"] and "live activations" in str(table)
    assert text["text/plain"] == "0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1"


def test_live_the_controls_come_first_and_the_figure_is_folded(shown):
    edit_schedule(Recipe("1f1b", 2, 2), live=True)
    editor, note, static = shown
    assert isinstance(editor.inside, ipywidgets.VBox) and "to change the schedule" in note["text/plain"]
    assert "The editor as it begins" in static["text/html"] and "0F0 0F1" in static["text/plain"]


def test_what_cannot_be_run_is_refused():
    with pytest.raises(ValueError, match="the times of F"):
        edit_schedule(Recipe("1f1b", 2, 2), live=False, times=TypedTimes(forward="soon"))
    with pytest.raises(ValueError, match="no multiple"):
        edit_schedule(Recipe("interleaved", 2, 3), live=False)
