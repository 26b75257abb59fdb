"""The controls, without a browser: what a person sets changes the draft, and all that is shown follows it."""

import ipywidgets
import pytest

from dtlearn.viz.pipeline.editor.draft import Draft, Recipe
from dtlearn.viz.pipeline.editor.form import Form
from tests.viz.pipeline.editor.runs import record_of


@pytest.fixture(autouse=True)
def no_drawing(monkeypatch):
    """Pictures take half a second each, and have tests of their own."""
    monkeypatch.setattr("dtlearn.viz.pipeline.editor.pages.Picture.img", lambda picture: f'<img alt="{picture.alt}">')


def form(run=None, recipe: Recipe | None = None) -> Form:
    return Form(ipywidgets, Draft.from_recipe(recipe or Recipe("1f1b", 2, 2)), run)


def click(button: ipywidgets.Button) -> None:
    button.click()


def test_it_begins_with_the_draft():
    f = form(recipe=Recipe("interleaved", 2, 4, chunks=3))
    assert (f.name.value, f.ranks.value, f.microbatches.value, f.chunks.value) == ("interleaved", 2, 4, 3)
    assert not f.chunks.disabled and "Valid." in f.verdict.value and "<img" in f.picture.value
    assert f.text.value == f.history.draft.text and [list(t.value) for t in f.tags] == list(
        map(list, f.history.draft.rows)
    )
    assert f.undo.disabled and f.redo.disabled


def test_another_size_is_another_schedule():
    f = form()
    f.ranks.value = 3
    assert len(f.history.draft.rows) == 3 and len(f.tags) == 3 and "3 ranks" in f.verdict.value
    assert f.chunks.disabled
    f.name.value = "zbv"
    assert f.chunks.value == 2 and f.chunks.disabled and "6 stages" in f.verdict.value
    f.microbatches.value = 4
    f.name.value = "interleaved"
    assert "No such schedule: interleaved: micro-batches go in groups of 3" in f.said.value
    assert "6 stages" in f.verdict.value, "what was there stays"


def test_typed_text_is_read_at_once():
    f = form()
    f.text.value = "0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1"
    assert "nobody can go on" in f.verdict.value and f.numbers.value == ""
    assert list(f.tags[0].value) == ["0F0", "0B0", "0F1", "0B1"]
    f.text.value = "anything <b>"
    assert "This is no schedule" in f.verdict.value and f.picture.value == ""
    click(f.undo)
    click(f.undo)
    assert "Valid." in f.verdict.value and f.text.value == Draft.from_recipe(Recipe("1f1b", 2, 2)).text
    click(f.redo)
    assert "nobody can go on" in f.verdict.value and not f.redo.disabled


def test_a_dragged_tag_is_moved():
    f = form()
    f.tags[0].value = ["0F0", "0B0", "0F1", "0B1"]
    assert f.text.value.startswith("0F0 0B0 0F1 0B1\n") and "Valid." in f.verdict.value
    f.tags[1].value = ["0F1", *f.tags[1].value]
    assert list(f.tags[0].value) == ["0F0", "0B0", "0B1"], "an action is done once"
    assert "rank 1, position 0: 0F1" in f.verdict.value and "but rank 0 holds stage 0" in f.verdict.value


def test_buttons_move_the_chosen_action():
    f = form()
    earlier, later, above, below = f.moves
    f.action.value = (0, 1)  # 0F1
    click(later)
    assert f.history.draft.rows[0] == ("0F0", "0B0", "0F1", "0B1") and f.action.value == (0, 2), "it stays chosen"
    click(earlier)
    click(below)
    assert f.history.draft.rows[1][1] == "0F1" and f.action.value == (1, 1)
    click(above)
    assert f.history.draft.text == Draft.from_recipe(Recipe("1f1b", 2, 2)).text
    click(above)
    assert f.action.value == (0, 1), "there is no rank above"
    f.text.value = ""
    click(later)
    assert f.action.value is None and f.history.draft.text == ""


def test_stage_times_count_at_once_and_wrong_ones_are_told():
    f = form()
    f.times[0].value = "20 60"
    assert "Makespan 260 ms" in f.numbers.value
    f.times[0].value = "20 60 1"
    assert "expected 1 number, or 2" in f.verdict.value and f.numbers.value == ""


def test_undo_brings_the_sizes_back():
    f = form()
    f.microbatches.value = 5
    click(f.undo)
    assert f.microbatches.value == 2 and len(f.history.draft.rows[0]) == 4


def test_a_run_is_drawn_beside_what_was_computed_and_only_a_right_schedule_can_be_run():
    asked = []

    def run(schedule, times, transfer):
        asked.append((schedule, times, transfer))
        return record_of(f.assessment.timeline)

    f = form(run)
    assert f.run.description == "Run it on 2 ranks with these stage times, emulated"
    click(f.run)
    assert "Two Gantt charts" in f.measured.value and f.said.value == ""
    assert asked[0][1].forward == 0.02 and asked[0][2] == 0
    f.text.value = "0F0"
    assert f.run.disabled and f.measured.value == ""
    click(f.run)
    assert len(asked) == 1


@pytest.mark.parametrize("error", [RuntimeError("rank 1 <ended>"), ValueError("the record has no actions")])
def test_a_run_that_fails_is_told(error):
    def run(schedule, times, transfer):
        raise error

    f = form(run)
    click(f.run)
    assert "The run failed" in f.said.value and "<ended>" not in f.said.value and not f.run.disabled


def test_without_ranks_there_is_no_button():
    f = form()
    assert f.run not in f.widget.children and f.measured not in f.widget.children
