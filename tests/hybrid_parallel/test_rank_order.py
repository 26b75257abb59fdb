"""What the order of the axes costs: by hand, and for BLOOM's layout."""

import pytest

from dtlearn.hybrid_parallel import MeshLayout, bytes_between_nodes, compare_orders, links

SENT = {"tp": 1000.0, "pp": 10.0, "dp": 100.0}
CUBE = MeshLayout(tp=2, pp=2, dp=2)


def test_links_are_rings_and_the_pipeline_is_a_line():
    assert links(MeshLayout(tp=3), "tp") == [(0, 1), (1, 2), (2, 0)]
    assert links(MeshLayout(pp=3), "pp") == [(0, 1), (1, 2)]
    assert links(MeshLayout(pp=3), "tp") == []


def test_by_hand_on_nodes_of_two():
    """tp inside: 4 cuts of pp leave a node, and all 8 links of dp. dp inside: all 8 links of tp do."""
    assert bytes_between_nodes(CUBE, SENT, 2) == {"tp": 0, "pp": 40, "dp": 800}
    other = MeshLayout(tp=2, pp=2, dp=2, order=("dp", "pp", "cp", "ep", "tp"))
    assert bytes_between_nodes(other, SENT, 2) == {"tp": 8000, "pp": 40, "dp": 0}


def test_in_one_node_nothing_leaves_it():
    assert sum(bytes_between_nodes(CUBE, SENT, 8).values()) == 0


def test_what_sends_most_comes_first():
    best, *_, worst = compare_orders(CUBE, SENT, 2)
    assert best.layout.order[0] == "tp" and best.total == 840
    assert worst.layout.order[0] != "tp" and worst.total > 8000
    assert len({cost.layout.order for cost in compare_orders(CUBE, SENT, 2)}) == 6


def test_the_layouts_own_order_wins_a_tie():
    assert compare_orders(CUBE, SENT, 8)[0].layout == CUBE


def test_bloom_on_nodes_of_eight():
    """Two tp groups in a node: tp never leaves it. With dp inside, each node has one dp group, and tp leaves it."""
    sent = {"tp": 4.0, "pp": 1.0, "dp": 2.0}
    inside = bytes_between_nodes(MeshLayout(tp=4, pp=12, dp=8), sent, 8)
    assert inside["tp"] == 0 and inside["dp"] == 2 * 384
    assert inside["pp"] == 8 * 4 * 5  # of 11 cuts, those between ranks of two nodes: 5 of them, in 32 pipelines
    dp_inside = MeshLayout(tp=4, pp=12, dp=8, order=("dp", "tp", "cp", "ep", "pp"))
    assert bytes_between_nodes(dp_inside, sent, 8) == {"tp": 4 * 384, "pp": 11 * 32, "dp": 0}


def test_what_is_missing_is_said():
    with pytest.raises(ValueError, match="does not say how much along dp"):
        compare_orders(CUBE, {"tp": 1.0, "pp": 1.0}, 2)
    with pytest.raises(ValueError, match="a node has 1 rank or more, got 0"):
        bytes_between_nodes(CUBE, SENT, 0)
