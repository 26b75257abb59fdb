import pytest

from dtlearn.viz.tensor_parallel.layer_picture import draw_layer, layer_words
from tests.viz.tensor_parallel.layers import layer_run, sequence_parallel_run, tensor_parallel_run

RUNS = {"TP": tensor_parallel_run(), "TP and SP": sequence_parallel_run()}


def texts(ax):
    return [text.get_text() for text in ax.texts]


def test_each_call_is_a_box_in_the_lane_of_its_pass():
    fig = draw_layer(RUNS, "t", "l")
    first, second = fig.axes
    calls = [(p.get_gid(), p.get_x() > 0.5) for p in first.patches if p.get_gid()]
    assert calls == [("all_reduce", True), ("all_reduce", False)]
    calls = [(p.get_gid(), p.get_x() > 0.5) for p in second.patches if p.get_gid()]
    assert calls == [("all_gather", False), ("reduce_scatter", True), ("reduce_scatter", False), ("all_gather", True)]
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["all_gather", "all_reduce", "reduce_scatter"]


def test_f_and_g_stand_at_their_places_only():
    first, second = draw_layer(RUNS).axes
    assert [text for text in texts(first) if text in "fg"] == ["f", "g"]
    assert not [text for text in texts(second) if text in "fg"]


def test_operations_say_how_they_are_cut_and_what_they_make():
    ax = draw_layer(RUNS, between={"attention.output": "softmax"}).axes[0]
    assert {"query, key", "column-parallel", "(2, 4, 8) \u2192 (2, 4, 4)", "softmax"} <= set(texts(ax))
    assert "weights whole on every rank" in texts(ax)


def test_sums_stand_under_the_chain():
    first, second = draw_layer(RUNS).axes
    assert {"forward: 1 all-reduce, 256 bytes", "backward: 1 all-reduce, 256 bytes"} <= set(texts(first))
    assert "forward: 1 all-gather + 1 reduce-scatter, 256 bytes" in texts(second)
    assert "after backward: 1 all-reduce, 64 bytes" in texts(second)
    assert "forward: nothing" in texts(draw_layer({"alone": layer_run(world_size=1)}).axes[0])


def test_words():
    words = layer_words(RUNS)
    assert words.startswith("TP: norm then query, key then output. Forward: all-reduce, 256 bytes after output.")
    assert "Backward: all-reduce, 256 bytes between norm and query, key." in words
    assert words.endswith("After backward: all-reduce, 64 bytes.")


def test_two_layers_at_most():
    with pytest.raises(ValueError, match="one run or two"):
        draw_layer({})
    with pytest.raises(ValueError, match="one run or two"):
        draw_layer(dict.fromkeys("abc", tensor_parallel_run()))


def test_one_layer_alone_is_narrower():
    assert draw_layer({"TP": RUNS["TP"]}).get_figwidth() < draw_layer(RUNS).get_figwidth()
