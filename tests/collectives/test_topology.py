"""Which links a message uses, how fast they are, and topologies that cannot be."""

import pytest

from dtlearn.collectives.topology import DGX_H100, RACKS_OF_DGX_H100, Level, Topology, flat, nodes


def test_topologies_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="shared_by"):
        Level("card", 8, 3, 0, 1)
    with pytest.raises(ValueError, match="begin with unit 1"):
        Topology("odd", (Level("card", 8, 8, 0, 1),))
    with pytest.raises(ValueError, match="shared evenly"):
        nodes(8, (0, 1), (0, 1), cards=3)


def test_a_message_pays_for_the_levels_that_it_crosses():
    cluster = nodes(2, inside=(1e-6, 100e9), between=(9e-6, 1e9))
    assert cluster.path(0, 1) == [(0, 0, "out"), (0, 1, "in")]
    assert cluster.path(0, 2) == [(0, 0, "out"), (0, 2, "in"), (1, 0, "out"), (1, 1, "in")]
    assert (cluster.latency(0, 1), cluster.latency(0, 2)) == (1e-6, 9e-6)


@pytest.mark.parametrize(
    ("shared_by", "latency", "bandwidth"), [(0, 0, 1), (-1, 0, 1), (3, 0, 1), (1, -1e-9, 1), (1, 0, 0), (1, 0, -1)]
)
def test_a_level_is_refused_for_each_of_its_numbers(shared_by, latency, bandwidth):
    with pytest.raises(ValueError, match="card: shared_by must divide the ranks of a unit"):
        Level("card", 8, shared_by, latency, bandwidth)


def test_numbers_at_the_limit_are_allowed():
    level = Level("card", 8, 8, 0, 1e-9)
    assert (level.shared_by, level.latency) == (8, 0)


@pytest.mark.parametrize("units", [(), (2,), (1, 1), (1, 8, 8), (1, 8, 4)])
def test_units_grow_from_one(units):
    with pytest.raises(ValueError, match=r"must begin with unit 1 and grow"):
        Topology("odd", tuple(Level("x", unit, 1, 0, 1) for unit in units))
    assert Topology("even", tuple(Level("x", unit, 1, 0, 1) for unit in (1, 2, 8))).levels[2].unit == 8


def test_ranks_share_as_many_cards_as_there_are():
    one, two = (nodes(4, (0, 2), (1, 3), cards=cards) for cards in (1, 2))
    assert [level.shared_by for level in one.levels] == [1, 4]
    assert [level.shared_by for level in two.levels] == [1, 2]
    assert (one.levels[0].bandwidth, one.levels[1].latency, one.levels[1].bandwidth) == (2, 1, 3)
    assert one.path(1, 6)[2:] == [(1, 0, "out"), (1, 1, "in")]
    assert two.path(1, 6)[2:] == [(1, 0, "out"), (1, 3, "in")]
    assert one.name == "nodes of 4, 1 network card each" and two.name == "nodes of 4, 2 network cards each"
    assert nodes(4, (0, 2), (1, 3)) == one


def test_a_flat_network_has_a_port_for_each_rank():
    assert flat(1e-6, 1e9).path(3, 5) == [(0, 3, "out"), (0, 5, "in")]


def test_the_figures_of_a_dgx_are_those_of_its_data_sheet():
    inside, between = DGX_H100.levels
    assert (inside.bandwidth, between.bandwidth, between.unit, between.shared_by) == (450e9, 50e9, 8, 1)
    assert (DGX_H100.latency(0, 7), DGX_H100.latency(0, 8)) == (3e-6, 8e-6)


def test_racks_share_their_uplinks():
    card, uplink = RACKS_OF_DGX_H100.levels[1:]
    assert RACKS_OF_DGX_H100.levels[:2] == DGX_H100.levels
    assert RACKS_OF_DGX_H100.path(0, 31) == DGX_H100.path(0, 31)
    assert RACKS_OF_DGX_H100.path(31, 32)[-2:] == [(2, 0, "out"), (2, 1, "in")]
    assert uplink.bandwidth == uplink.shared_by * card.bandwidth / 2
