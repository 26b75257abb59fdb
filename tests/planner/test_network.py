"""Seconds of collectives, and where groups lie."""

from dataclasses import replace

import pytest

from dtlearn.hybrid_parallel.layout import MeshLayout
from dtlearn.planner import Axes
from dtlearn.planner.network import (
    LATENCY,
    collective_seconds,
    cp_in_node,
    dp_in_node,
    pp_seconds,
    ring_share,
    tp_in_node,
)


def test_a_ring_sends_what_it_is_known_to_send():
    assert ring_share("all-reduce", 4) == 1.5
    assert ring_share("reduce-scatter", 2) == ring_share("all-gather", 2) == 0.5


@pytest.mark.parametrize(
    "axes",
    [Axes(8, 8, 1), Axes(4, 2, 8), Axes(2, 1, 32), Axes(1, 1, 64), Axes(2, 2, 8, 2), Axes(16, 4, 1), Axes(1, 64)],
)
def test_groups_lie_on_nodes_as_the_layout_has_them(gpt3, axes):
    """`hybrid_parallel`'s layout numbers the ranks; nodes are eight neighbouring numbers."""
    run = replace(gpt3, axes=axes)
    mesh = MeshLayout(axes.tp, axes.pp, axes.dp, axes.cp)

    def in_node(axis):
        return sum(rank < 8 for rank in mesh.group(0, axis))

    assert (tp_in_node(run), cp_in_node(run), dp_in_node(run)) == (in_node("tp"), in_node("cp"), in_node("dp"))


def test_seconds_are_bytes_by_bandwidth_and_a_latency(gpt3):
    chip, software = gpt3.cluster.chip, gpt3.software
    inside = collective_seconds(gpt3, "all-reduce", 8e9, 8, 8)
    assert inside == pytest.approx(2 * 7 / 8 * 8e9 / (chip.link * software.link) + 14 * LATENCY["link"])
    outside = collective_seconds(gpt3, "all-gather", 8e9, 8, 1)
    assert outside == pytest.approx(7 / 8 * 8e9 / (chip.network * software.net) + 7 * LATENCY["net"])
    assert collective_seconds(gpt3, "all-gather", 8e9, 8, 4) == pytest.approx(outside / 4, rel=0.01)  # four cards


def test_one_rank_and_no_bytes_take_no_time(gpt3):
    assert collective_seconds(gpt3, "all-reduce", 1e9, 1, 1) == 0
    assert collective_seconds(gpt3, "all-reduce", 0, 8, 8) == 0


def test_leaving_the_node_is_the_cliff(gpt3):
    near = collective_seconds(gpt3, "all-reduce", 1e9, 8, 8)
    assert collective_seconds(gpt3, "all-reduce", 1e9, 16, 8) > near
    assert collective_seconds(gpt3, "all-reduce", 1e9, 8, 1) > 8 * near
    assert pp_seconds(replace(gpt3, axes=Axes(1, 8, 8)), 1e9) < pp_seconds(gpt3, 1e9)
