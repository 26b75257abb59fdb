"""`Link`: what it may be, what it says of itself, which links a group uses."""

from dataclasses import asdict

import pytest

from dtlearn.runtime.device import Placement
from dtlearn.runtime.link.link import _NAMED, Link, connect

ETHERNET = Link.named("1 Gb/s")
CLUSTER = Link(30e-6, 1.25e9, inside=Link(3.4e-6, 50e9), ranks_per_node=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"latency": -1}, "latency must be a number of seconds from 0 to 10"),
        ({"latency": "50 us"}, "latency must be"),
        ({"latency": float("nan")}, "latency must be"),
        ({"latency": 50}, "latency must be"),  # microseconds, probably
        ({"bandwidth": 0}, r"bandwidth must be a number of bytes per second.*1 Gb/s is 125e6"),
        ({"bandwidth": 10}, "bandwidth must be"),  # gigabits, probably
        ({"bandwidth": float("inf")}, "bandwidth must be"),
        ({"bandwidth": True}, "bandwidth must be"),
        ({"inside": ETHERNET}, "belong together"),
        ({"ranks_per_node": 2}, "belong together"),
        ({"inside": 1e9, "ranks_per_node": 2}, "inside must be a Link of one level"),
        ({"inside": CLUSTER, "ranks_per_node": 2}, "inside must be a Link of one level"),
        ({"inside": ETHERNET, "ranks_per_node": 0}, "ranks_per_node must be a whole number"),
    ],
)
def test_what_no_link_can_be(arguments, message):
    with pytest.raises(ValueError, match=message):
        Link(**arguments)


def test_names():
    assert Link.named("1 Gb/s") == Link() == Link(50e-6, 125e6)
    assert all(Link.named(name).bandwidth == bandwidth for name, (_, bandwidth) in _NAMED.items())
    with pytest.raises(ValueError, match=r"a link has one of the names 'internet', .*; got '1GbE'"):
        Link.named("1GbE")


@pytest.mark.parametrize(
    ("link", "label"),
    [
        (ETHERNET, "emulated link: 1 Gb/s, 50 us"),
        (Link.named("internet"), "emulated link: 100 Mb/s, 20 ms"),
        (CLUSTER, "emulated link: 10 Gb/s, 30 us; inside nodes of 2: 400 Gb/s, 3.4 us"),
    ],
)
def test_the_label_has_the_figures(link, label):
    assert link.label == label


@pytest.mark.parametrize("link", [ETHERNET, CLUSTER])
def test_it_travels_as_plain_values(link):
    assert Link.from_plain(asdict(link)) == link


@pytest.mark.parametrize(
    ("ranks", "nodes", "per_node"),
    [
        ([0, 1, 2, 3], 2, 2),
        ([0, 1], 1, 2),
        ([2, 3], 1, 2),
        ([0, 2], 2, 1),
        ([1, 2], 2, 1),
        ([0, 1, 2], 3, 1),  # uneven: the slow link throughout
    ],
)
def test_the_nodes_of_a_group(ranks, nodes, per_node):
    layout = CLUSTER.layout(ranks)
    assert (layout.between.width, layout.inside.width) == (nodes, per_node)
    assert (layout.between.latency, layout.inside.latency) == (30e-6, 3.4e-6)


def test_without_levels_all_ranks_are_apart():
    layout = ETHERNET.layout([0, 5, 7])
    assert (layout.between.width, layout.inside.width) == (3, 1)
    assert ETHERNET.crosses(0, 1)


def test_seconds():
    assert ETHERNET.seconds("all_reduce", 1 << 20, 2) == pytest.approx(2 * (50e-6 + (1 << 19) / 125e6))
    assert ETHERNET.seconds("send", 125e6) == pytest.approx(1 + 50e-6)
    assert CLUSTER.seconds("send", 0, [0, 1]) == 3.4e-6 and CLUSTER.seconds("recv", 0, [1, 2]) == 30e-6
    assert CLUSTER.seconds("broadcast", 0, [1, 0]) == 3.4e-6
    with pytest.raises(ValueError, match="a message is between two ranks; got ranks=3"):
        ETHERNET.seconds("send", 1, 3)


def test_the_label_is_in_the_placement_and_leaves_with_the_link():
    cpu = Placement("gloo", ("cpu", "cpu"), "asked for")
    linked = connect(cpu, ETHERNET)
    assert linked.where == "gloo on CPU, emulated link: 1 Gb/s, 50 us"
    assert str(linked) == "gloo on CPU, emulated link: 1 Gb/s, 50 us: asked for"
    assert connect(linked, None) == cpu


@pytest.mark.parametrize(
    ("placement", "link", "message"),
    [
        (Placement("gloo", ("cpu",), ""), 1e9, "link must be a dtlearn.Link"),
        (Placement("nccl", ("cuda:0", "cuda:1"), ""), ETHERNET, "works with gloo on CPU"),
        (Placement("gloo", ("cuda:0", "cuda:0"), ""), ETHERNET, "works with gloo on CPU"),
    ],
)
def test_what_cannot_be_linked(placement, link, message):
    with pytest.raises(ValueError, match=message):
        connect(placement, link)
