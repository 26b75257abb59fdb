import pytest

from dtlearn.viz.zero.shard_map import shard_map, shard_words
from dtlearn.zero.partition.flat import plan_flat
from dtlearn.zero.partition.per_parameter import plan_per_parameter

NAMES = ["w", "b"]
FLAT = plan_flat([6, 3], 2)
ROWS = plan_per_parameter([(1, 6), (3,)], 2)  # one row: rank 1 owns nothing of w


def test_each_rank_has_a_row_of_pieces_and_padding():
    fig = shard_map({"flat": FLAT, "rows": ROWS}, NAMES, "t", "l")
    flat, rows = fig.axes
    assert [text.get_text() for text in flat.texts] == ["owns 5", "owns 4, padding 1", "w[0:5]", "w[5:6]", "b", "flat"]
    assert len([patch for patch in flat.patches if patch.get_gid() == "padding"]) == 1
    assert len([patch for patch in rows.patches if patch.get_gid() == "padding"]) == 2
    assert flat.get_xlim() == rows.get_xlim()
    assert [text.get_text() for text in flat.get_yticklabels()] == ["rank 0", "rank 1"]


def test_a_rank_that_owns_nothing_says_so():
    fig = shard_map({"rows": plan_per_parameter([(1, 6)], 2)}, ["w"])
    assert "owns nothing" in [text.get_text() for text in fig.axes[0].texts]


def test_in_words():
    assert shard_words(FLAT, NAMES) == "rank 0: w[0:5]; rank 1: w[5:6], b"
    assert shard_words(plan_per_parameter([(1, 6)], 2), ["w"]) == "rank 0: w; rank 1: nothing"


def test_names_have_to_fit():
    with pytest.raises(ValueError, match=r"partitions of 1 parameters are needed; .* wrong: .'flat'"):
        shard_map({"flat": FLAT}, ["w"])
    with pytest.raises(ValueError, match="partitions of 2 parameters"):
        shard_map({}, NAMES)
