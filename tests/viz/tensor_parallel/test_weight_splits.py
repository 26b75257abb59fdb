from dtlearn.viz.tensor_parallel.local_weights import LocalWeight
from dtlearn.viz.tensor_parallel.weight_splits import draw_splits, split_words
from tests.viz.tensor_parallel.layers import WEIGHTS

RANKS = [WEIGHTS, WEIGHTS]


def boxes(fig, gid):
    return [(p.get_x(), p.get_y(), p.get_width(), p.get_height()) for p in fig.axes[0].patches if p.get_gid() == gid]


def test_parts_are_to_scale_and_cut_as_the_layers_say():
    fig = draw_splits(RANKS, label="a model", names={"attention": "heads"})
    table, query, query_bias, output = zip(boxes(fig, "rank 0"), boxes(fig, "rank 1"), strict=True)
    assert table[0][0] == table[1][0] and table[1][1] > table[0][1]  # tokens are rows
    assert query[0][1] == query[1][1] and query[1][0] > query[0][0]  # outputs are columns
    assert query_bias[0][1] == query_bias[1][1]
    assert output[0][0] == output[1][0] and output[1][1] > output[0][1]  # inputs are rows
    element = query[0][2] / 4
    assert abs(query[0][3] / element - 8) < 1e-9 and abs(table[0][2] / element - 4) < 1e-9
    assert len(boxes(fig, "whole")) == 2
    assert (
        len([line for line in fig.axes[0].lines if line.get_gid() == "head"]) == 2 * 2
    )  # in each weight two heads on each rank


def test_title_and_words_say_what_a_rank_holds():
    fig = draw_splits(RANKS, label="a model", names={"attention": "heads"})
    assert fig.get_suptitle().strip() == "Each of 2 ranks holds 116 of 216 parameters"
    texts = [text.get_text() for text in fig.axes[0].texts]
    assert "heads" in texts and "norms" in texts and "8 x 8" in texts and "rank 1" in texts
    words = split_words(RANKS)
    assert words.startswith("2 ranks, each with 116 of 216 parameters. Cut by tokens: table (16, 4).")
    assert "Cut by outputs in whole heads: attention.query (8, 8) and bias." in words
    assert "Cut by inputs in whole heads: attention.output (8, 8)." in words
    assert "Whole on every rank: attention.output's bias, norm (8,)." in words


def test_a_part_that_several_ranks_hold_names_them():
    key = [LocalWeight("attention.key.weight", (8, 8), 0, 8, copies=2)]
    fig = draw_splits([key] * 4, "t")
    assert [text.get_text() for text in fig.axes[0].texts][-3:-1] == ["ranks 0, 1", "ranks 2, 3"]
    assert "each part on 2 ranks: attention.key (16, 8)" in split_words([key] * 4)


def test_a_legend_explains_only_what_is_there():
    fig = draw_splits([[LocalWeight("up.weight", (4, 8), 0)]] * 2)
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["rank 0", "rank 1"]
    assert len(draw_splits(RANKS).legends[0].get_texts()) == 5


def test_a_rank_with_one_head_has_no_line_between_heads():
    fig = draw_splits([[LocalWeight("attention.query.weight", (4, 8), 0, head_size=4)]] * 2)
    assert not [line for line in fig.axes[0].lines if line.get_gid() == "head"]
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["rank 0", "rank 1"]
