"""What is shown of a draft: words for whoever does not see the picture, and nothing typed becomes HTML."""

from dtlearn.viz.pipeline.editor.assess import assess
from dtlearn.viz.pipeline.editor.draft import Draft, Recipe
from dtlearn.viz.pipeline.editor.pages import (
    MAX_SHOWN,
    measured_page,
    numbers,
    numbers_page,
    picture,
    picture_page,
    verdict_page,
)
from tests.viz.pipeline.editor.runs import record_of

VALID = assess(Draft.from_recipe(Recipe("interleaved", 2, 4, chunks=2)))


def test_a_right_schedule_is_said_to_be_so_with_its_sizes():
    assert '<p role="status"><b>Valid.</b> 2 ranks, 4 stages, 4 micro-batches: each action' in verdict_page(VALID)
    alone = assess(Draft.from_recipe(Recipe("gpipe", 1, 1)))
    assert "1 rank, 1 stage, 1 micro-batch:" in verdict_page(alone)


def test_a_wrong_one_is_told_why_and_nothing_typed_becomes_html():
    page = verdict_page(assess(Draft("<script>")))
    assert "This is no schedule" in page and 'role="alert"' in page
    assert "<script>" not in page and "&lt;script&gt;" in page
    page = verdict_page(assess(Draft("0F0")))
    assert "This cannot be run: 1 problem." in page and "rank 0 never does 0B0" in page


def test_of_many_problems_the_first_are_shown():
    found = assess(Draft("0F0 0F0 0F0 0F0 0F0 0F0 0F0 0F0 0F0"))
    assert len(found.problems) > MAX_SHOWN
    page = verdict_page(found)
    assert page.count("<li>") == MAX_SHOWN and f"and {len(found.problems) - MAX_SHOWN} more" in page


def test_the_numbers_name_both_conventions_and_count_memory_in_parts_of_the_model():
    table = numbers(VALID)
    assert "idle / useful time 12.5 %, idle / total time 11.1 %" in table.caption
    assert "Makespan 270 ms" in table.caption
    assert "Most live activations of a rank: 2.5 (1 is one micro-batch of 1/p of the model)" in table.caption
    assert [row[-1] for row in table.rows] == ["2.5", "1.5"]
    assert "<table>" in numbers_page(VALID)


def test_the_picture_has_words():
    assert picture(VALID).alt == numbers(VALID).caption
    assert picture_page(VALID).startswith("<img alt=")


def test_of_a_stuck_schedule_there_is_what_can_be_done_and_no_numbers():
    stuck = assess(Draft("0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1"))
    assert picture(stuck).alt.endswith("Then nobody goes on: rank 0 before 0B0, rank 1 before 1F1.")
    assert numbers(stuck) is None and numbers_page(stuck) == ""
    assert picture(assess(Draft("0B0 0F0"))) is None and picture_page(assess(Draft(""))) == ""


def test_a_measured_run_stands_below_the_computed_one():
    page = measured_page(VALID, record_of(VALID.timeline))
    assert "Two Gantt charts, with emulated stage times. Computed: Makespan 270 ms." in page
