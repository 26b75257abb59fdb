"""Edits are pure: each gives a new draft, and nothing that a person types can raise."""

import pytest

from dtlearn.viz.pipeline.editor.draft import Draft, History, Recipe

TEXT = "0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1"


def words(draft: Draft) -> list[str]:
    return [" ".join(row) for row in draft.rows]


def test_a_draft_is_made_by_a_generator():
    draft = Draft.from_recipe(Recipe("1f1b", 2, 2, chunks=3))
    assert draft.text == TEXT and draft.recipe == Recipe("1f1b", 2, 2, chunks=1)
    assert Draft.from_recipe(Recipe("interleaved", 2, 2)).recipe == Recipe("interleaved", 2, 2, chunks=2)
    assert Draft.from_recipe(Recipe("interleaved", 2, 2, chunks=3)).recipe == Recipe("interleaved", 2, 2, chunks=3)
    with pytest.raises(ValueError, match="3 is no multiple of 2"):
        Draft.from_recipe(Recipe("interleaved", 2, 3))


def test_a_word_changes_places_with_its_neighbour():
    draft, place = Draft(TEXT).shifted(0, 1, 1)
    assert words(draft)[0] == "0F0 0B0 0F1 0B1" and place == (0, 2)
    draft, place = draft.shifted(*place, -1)
    assert draft.text == TEXT and place == (0, 1)


@pytest.mark.parametrize("move", [(0, 0, -1), (0, 3, 1), (7, 0, 1), (0, 9, 1), (-1, 0, 1)])
def test_past_the_end_nothing_moves(move):
    assert Draft(TEXT).shifted(*move) == (Draft(TEXT), move[:2])


def test_a_word_goes_to_another_rank():
    draft, place = Draft(TEXT).carried(0, 1, 1)
    assert words(draft) == ["0F0 0B0 0B1", "1F0 0F1 1B0 1F1 1B1"] and place == (1, 1)
    assert draft.carried(1, 1, 0)[0].text == TEXT
    short = Draft("0F0 0B0 0F1\n1F0")
    assert short.carried(0, 2, 1) == (Draft("0F0 0B0\n1F0 0F1"), (1, 1))


@pytest.mark.parametrize("target", [-1, 0, 2])
def test_without_a_rank_to_go_to_nothing_moves(target):
    assert Draft(TEXT).carried(0, 1, target) == (Draft(TEXT), (0, 1))


def test_the_last_word_of_a_rank_leaves_an_idle_rank():
    draft, _ = Draft("0F0\n1F0 1B0").carried(0, 0, 1)
    assert draft.text == ".\n0F0 1F0 1B0" and len(draft.rows) == 2


def test_a_word_that_is_dropped_on_a_rank_leaves_the_other():
    assert words(Draft(TEXT).dropped(1, ("1F0", "0F1", "1B0", "1F1", "1B1"))) == ["0F0 0B0 0B1", "1F0 0F1 1B0 1F1 1B1"]
    assert words(Draft(TEXT).dropped(0, ("0F1", "0F0", "0B0", "0B1")))[0] == "0F1 0F0 0B0 0B1"
    assert words(Draft(TEXT).dropped(0, ("0F0",))) == ["0F0", "1F0 1B0 1F1 1B1"]  # taken out
    assert words(Draft(TEXT).dropped(0, ("0F0", "0F0", "0F1", "0B0", "0B1")))[0].startswith("0F0 0F0")  # typed twice


def test_changes_are_undone_and_done_again():
    history = History(Draft("a"))
    assert not history.can_undo and not history.undo() and not history.redo()
    assert not history.change(Draft("a")), "the same is no change"
    assert history.change(Draft("b")) and history.change(Draft("c"))
    assert history.undo() and history.undo() and history.draft.text == "a" and not history.can_undo
    assert history.redo() and history.draft.text == "b" and history.can_redo
    history.change(Draft("d"))
    assert not history.can_redo and history.undo() and history.draft.text == "b"
