"""The formulas, against numbers worked out by hand."""

import pytest

from dtlearn.collectives import hierarchical, ring, tree
from dtlearn.collectives.cost import plan_seconds
from dtlearn.collectives.topology import flat, nodes
from dtlearn.runtime.link.cost import Connection, LinkedGroup, seconds
from dtlearn.runtime.link.link import Link

# Ten thousand bytes a second and a latency of 1 s make sums that can be done in the head.
FLAT = LinkedGroup(Connection(4, 1.0, 1e4), Connection(1, 1.0, 1e4))
NODE = LinkedGroup(Connection(1, 1.0, 1e4), Connection(4, 0.1, 1e5))  # all in one node
TWO_LEVELS = LinkedGroup(Connection(2, 1.0, 1e4), Connection(4, 0.1, 1e5))


@pytest.mark.parametrize(
    ("op", "nbytes", "expected"),
    [
        ("all_reduce", 40_000, 6 * (1 + 1)),  # 2 (N-1) steps with a quarter each
        ("reduce_scatter", 40_000, 3 * (1 + 1)),
        ("reduce_scatter_tensor", 40_000, 3 * (1 + 1)),
        ("all_gather", 10_000, 3 * (1 + 1)),  # a shard goes in
        ("all_gather_into_tensor", 10_000, 3 * (1 + 1)),
        ("broadcast", 10_000, 2 * (1 + 1)),
        ("reduce", 10_000, 2 * (1 + 1)),
        ("gather", 10_000, 2 * 1 + 3 * 1),
        ("scatter", 40_000, 2 * 1 + 3 * 1),  # the root's whole list
        ("all_to_all", 40_000, 3 * (1 + 1)),
        ("all_to_all_single", 40_000, 3 * (1 + 1)),
        ("barrier", 0, 2),
        ("monitored_barrier", 0, 2),
    ],
)
def test_one_level(op, nbytes, expected):
    assert seconds(op, nbytes, FLAT) == pytest.approx(expected)
    assert seconds(op, nbytes, NODE) == pytest.approx(expected / 10)  # a tenth of the latency, ten times the bandwidth


@pytest.mark.parametrize(
    ("op", "nbytes", "expected"),
    [
        # Shards of 10 000 bytes on the slow link once, then twice as much to each of three neighbours.
        ("all_gather", 10_000, 1 * (1 + 1) + 3 * (0.1 + 0.2)),
        ("reduce_scatter", 80_000, 3 * (0.1 + 0.2) + 1 * (1 + 1)),
        ("all_reduce", 80_000, 2 * (3 * (0.1 + 0.2) + 1 * (1 + 1))),
        ("broadcast", 10_000, 1 * (1 + 1) + 2 * (0.1 + 0.1)),
        ("gather", 10_000, 2 * 0.1 + 3 * 0.1 + 1 + 4),  # a node's four shards pass the slow link
        ("scatter", 80_000, 2 * 0.1 + 3 * 0.1 + 1 + 4),
        ("all_to_all", 80_000, 3 * (0.1 + 0.1) + 4 * (1 + 1)),
        ("barrier", 0, 2 * 2 * 0.1 + 1),
    ],
)
def test_two_levels(op, nbytes, expected):
    assert seconds(op, nbytes, TWO_LEVELS) == pytest.approx(expected)


@pytest.mark.parametrize(("ranks", "steps"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4)])
def test_a_tree_takes_the_logarithm_rounded_up(ranks, steps):
    assert seconds("broadcast", 0, LinkedGroup(Connection(ranks, 1.0, 1.0), Connection(1, 1.0, 1.0))) == steps


def test_one_rank_pays_nothing():
    alone = LinkedGroup(Connection(1, 1.0, 1.0), Connection(1, 1.0, 1.0))
    assert all(seconds(op, 1000, alone) == 0 for op in ("all_reduce", "all_gather", "gather", "all_to_all", "barrier"))


def test_the_ring_is_independent_of_the_number_of_ranks_for_large_messages():
    times = [
        seconds("all_reduce", 1e9, LinkedGroup(Connection(n, 0.0, 1e9), Connection(1, 0.0, 1e9))) for n in (2, 64, 1024)
    ]
    assert times == pytest.approx([1.0, 2 * 63 / 64, 2 * 1023 / 1024])


def test_a_message():
    assert Connection(2, 1.0, 1e4).message(20_000) == pytest.approx(3.0)


def test_an_unknown_operation():
    with pytest.raises(ValueError, match=r"op must be one of all_gather, .*; got 'all_gossip'"):
        seconds("all_gossip", 1, FLAT)


@pytest.mark.parametrize("n", [2, 3, 4, 7, 8])
def test_the_plans_of_the_course_cost_the_same(n):
    """`dtlearn.collectives` adds up the steps of an algorithm, message by message; here the sum is in closed form."""
    link, nbytes = Link(), 840 << 10  # divisible by all n
    topology = flat(link.latency, link.bandwidth)
    shard = nbytes / n
    for op, payload, plan in [
        ("all_reduce", nbytes, ring.all_reduce(n)),
        ("reduce_scatter", nbytes, ring.reduce_scatter(n)),
        ("all_gather", shard, ring.all_gather(n)),
        ("broadcast", nbytes, tree.broadcast(n)),
        ("reduce", nbytes, tree.reduce(n)),
        ("all_to_all", nbytes, ring.all_to_all(n)),
    ]:
        assert link.seconds(op, payload, n) == pytest.approx(plan_seconds(plan, nbytes, topology)), op
    if n in (2, 4, 8):  # elsewhere the parts of a tree are uneven
        for op, payload, plan in [("gather", shard, tree.gather(n)), ("scatter", nbytes, tree.scatter(n))]:
            assert link.seconds(op, payload, n) == pytest.approx(plan_seconds(plan, nbytes, topology)), op


@pytest.mark.parametrize(("n", "per_node"), [(4, 2), (8, 2), (8, 4)])
def test_two_levels_cost_what_the_hierarchical_plan_does(n, per_node):
    link = Link(30e-6, 1e9, inside=Link(3e-6, 50e9), ranks_per_node=per_node)
    topology = nodes(per_node, (3e-6, 50e9), (30e-6, 1e9), cards=per_node)
    plan = hierarchical.all_reduce(n, per_node)
    assert link.seconds("all_reduce", 1 << 20, n) == pytest.approx(plan_seconds(plan, 1 << 20, topology))
