import pytest
from matplotlib.colors import to_hex

from dtlearn.hybrid_parallel.layout import MeshLayout
from dtlearn.viz.hybrid_parallel.layout_nodes import layout_on_nodes, layout_words, nodes_of_replica
from dtlearn.viz.style import rank_color
from tests.viz.hybrid_parallel.boxes import cut_off, overlapping

BLOOM = MeshLayout(tp=4, pp=12, dp=8)  # 2211.05100
LLAMA = MeshLayout(tp=8, pp=16, dp=128)  # 2407.21783
DEEPSPEED = MeshLayout(tp=4, pp=4, dp=2)
DP_FIRST = MeshLayout(tp=4, pp=12, dp=8, order=("dp", "tp", "pp", "cp", "ep"))


def all_texts(fig):
    return [text for ax in fig.axes for text in ax.texts]


def test_blooms_copy_is_on_six_nodes_and_its_gradients_go_to_eight():
    place = nodes_of_replica(BLOOM)
    assert place.nodes == (0, 1, 2, 3, 4, 5) and place.peers == (0, 6, 12, 18, 24, 30, 36, 42)
    assert place.num_nodes == 48
    assert nodes_of_replica(DP_FIRST).nodes == tuple(range(48)) and nodes_of_replica(DP_FIRST).peers == (0,)


def test_the_map_has_every_node_and_marks_those_of_the_replica():
    of_map, _ = layout_on_nodes(BLOOM, replica=1).axes
    assert cells(of_map, "replica", 24) == [6, 7, 8, 9, 10, 11]
    assert cells(of_map, "peers", 24) == [0, 12, 18, 24, 30, 36, 42]
    assert sorted(n for name in ("replica", "peers", "others") for n in cells(of_map, name, 24)) == list(range(48))
    assert [text.get_text() for text in of_map.texts] == [str(node) for node in range(48)]


def cells(ax, name, columns):
    """Numbers of the nodes that have one look, by where they stand in the map."""
    (found,) = [collection for collection in ax.collections if collection.get_gid() == name]
    corners = [path.vertices.min(axis=0) for path in found.get_paths()]
    return [int(y) * columns + int(x) for x, y in corners]


def test_each_tensor_parallel_group_of_the_replica_is_a_frame_in_the_colour_of_its_stage():
    _, rows = layout_on_nodes(BLOOM).axes
    frames = [patch for patch in rows.patches if patch.get_gid() == "group"]
    assert [to_hex(frame.get_facecolor()) for frame in frames] == [to_hex(rank_color(stage)) for stage in range(12)]
    assert all(frame.get_width() == pytest.approx(4 - 0.1) for frame in frames)
    words = [text.get_text() for text in rows.texts]
    assert [word for word in words if word.isdigit()] == [str(rank) for rank in range(48)]
    assert [word for word in words if word.startswith("stage")] == [f"stage {stage}" for stage in range(12)]


def test_with_dp_inside_a_node_holds_eight_replicas_and_one_rank_of_each():
    fig = layout_on_nodes(DP_FIRST)
    _, rows = fig.axes
    kinds = [patch.get_gid() for patch in rows.patches]
    assert kinds.count("group") == 16 and kinds.count("other") == 16 * 7, "16 nodes are drawn in full"
    assert rows.get_title(loc="left") == "Replica 0, the first 16 of 48 nodes: each GPU with its rank"
    assert "one copy of the model is on 48 of 48 nodes" in fig.get_suptitle()


def test_thousands_of_nodes_are_a_map_and_one_replicas_nodes():
    of_map, rows = layout_on_nodes(LLAMA, replica=127).axes
    assert cells(of_map, "replica", 64) == list(range(2032, 2048)) and not of_map.texts
    assert len(cells(of_map, "peers", 64)) == 127 and len(cells(of_map, "others", 64)) == 2048 - 127 - 16
    words = [text.get_text() for text in rows.texts]
    assert "ranks 16376 to 16383" in words and "stage 15" in words and "node 2047" in words


@pytest.mark.parametrize(("layout", "size"), [(BLOOM, 8), (LLAMA, 8), (DEEPSPEED, 8), (DEEPSPEED, 4), (DP_FIRST, 8)])
def test_labels_do_not_lie_on_each_other(layout, size):
    fig = layout_on_nodes(layout, size, replica=layout.num_replicas - 1)
    assert not overlapping(fig, all_texts(fig)) and not cut_off(fig, all_texts(fig))
    assert {text.get_fontsize() for text in all_texts(fig)} == {9}


def test_words():
    assert layout_words(BLOOM) == (
        "384 ranks on 48 nodes of 8, tp4 pp12 dp8 from the innermost axis outwards. Replica 0 is on 6 nodes, 0 to 5; "
        "a tensor-parallel group of it is on 1, its pipeline of 12 stages on 6, and the data-parallel group of its "
        "first rank on 8."
    )
    assert "Replica 0 is on 1 node, 0;" in layout_words(MeshLayout(tp=2, pp=2, dp=2), 4)
    assert "Replica 0 is on 4 nodes, 0, 2, 4, ...;" in layout_words(
        MeshLayout(tp=2, pp=2, dp=2, order=("cp", "ep", "dp", "pp", "tp")), 1
    )


def test_what_there_is_not_is_refused():
    with pytest.raises(ValueError, match="a replica from 0 to 7 are needed; got 8 ranks in a node and replica 8"):
        layout_on_nodes(BLOOM, replica=8)
    with pytest.raises(ValueError, match="got 0 ranks"):
        layout_on_nodes(BLOOM, ranks_per_node=0)
