import pytest

from dtlearn.planner import read_entries, score
from dtlearn.planner.score import JudgedNumber, PublishedNumber, counted
from dtlearn.viz.hybrid_parallel.score_picture import score_picture, score_words, scored_by_group
from tests.viz.hybrid_parallel.boxes import cut_off, overlapping


def judged(name, group, predicted, expected, **tolerance):
    entry = PublishedNumber(name, "target", group, "measured", "s", expected, {}, tolerance)
    return JudgedNumber(entry, predicted)


ROWS = [
    judged("b1", "b", 12.0, 10.0, rel=0.15),
    judged("a1", "a", 9.0, 10.0, rel=0.15),
    judged("a2", "a", 10.0, 10.0, abs=0.5, rel=0.01),
    judged("silent", "a", None, 10.0, rel=0.1),
    judged("formula", "a", None, "2(n-1)/n"),
    judged("plain", "b", 10.5, 10.0),
]


def marks(fig, gid):
    return [line for ax in fig.axes for line in ax.lines if line.get_gid() == gid]


def test_numbers_stand_by_group_with_their_ratio_and_their_own_tolerance():
    groups = scored_by_group(ROWS)
    assert [(row.name, row.ratio) for row in groups["a"]] == [("a1", 0.9), ("a2", 1.0)]
    assert [row.name for row in groups["b"]] == ["plain", "b1"]
    assert (groups["a"][1].low, groups["a"][1].high) == pytest.approx((0.95, 1.05)), "the wider of two tolerances"
    assert groups["b"][0].high == pytest.approx(1.1), "10 % where none is given"


def test_each_number_is_a_mark_and_what_is_outside_is_a_cross():
    fig = score_picture(ROWS)
    assert len(marks(fig, "inside")) == 3 and len(marks(fig, "tolerance")) == 4
    (cross,) = marks(fig, "outside")
    assert cross.get_xdata()[0] == pytest.approx(1.2) and cross.get_marker() == "X"
    assert fig.get_suptitle().startswith("3 of 4 predictions are inside")
    assert [text.get_text() for ax in fig.axes for text in ax.texts] == ["2 of 2", "1 of 2"]
    assert all("predicted / published" in ax.get_xlabel() for ax in fig.axes)


def test_a_ratio_far_away_stands_at_the_edge():
    fig = score_picture([judged("far", "a", 100.0, 1.0), judged("none", "b", 0.0, 1.0)])
    assert [line.get_xdata()[0] for line in marks(fig, "outside")] == pytest.approx([1.8, 0.55])


def test_the_whole_file_is_drawn_and_counted_as_the_table_counts_it():
    whole = score(read_entries())
    fig = score_picture(whole)
    inside, number = counted(whole)
    assert len(marks(fig, "inside")) == inside and len(marks(fig, "inside") + marks(fig, "outside")) == number
    texts = [text for ax in fig.axes for text in (*ax.texts, *ax.get_yticklabels(), ax.xaxis.label)]
    assert not overlapping(fig, texts) and not cut_off(fig, texts)


def test_a_verdict_and_the_drawn_tolerance_agree():
    for rows in scored_by_group(score(read_entries())).values():
        for row in rows:
            assert (row.low - 1e-6 <= row.ratio <= row.high + 1e-6) == row.inside, row.name


def test_words_name_what_is_outside():
    words = score_words(ROWS)
    assert "a 2 of 2, b 1 of 2" in words and "Outside, with the ratio: b1 1.20." in words


def test_without_a_prediction_there_is_no_picture():
    with pytest.raises(ValueError, match="of 1 none has one"):
        score_picture([judged("silent", "a", None, 10.0)])
