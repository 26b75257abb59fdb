"""Messages and bytes of each algorithm, against the formulae of its docstring, from the plans alone."""

import math
from collections import Counter

import pytest

from dtlearn.collectives import halving_doubling, hierarchical, naive, ring, tree
from dtlearn.collectives.algorithms.plan import Move
from tests.collectives.plans import ROOTED, UNROOTED, all_plans

SIZES = [1, 2, 3, 4, 6, 8, 16]


def most_chunks(plan):
    return max(plan.chunks_sent(r) for r in range(plan.num_ranks))


@pytest.mark.parametrize("N", SIZES)
def test_ring(N):
    for make, times in ((ring.all_reduce, 2), (ring.reduce_scatter, 1), (ring.all_gather, 1), (ring.all_to_all, 1)):
        plan = make(N)
        assert len(plan.steps) == times * (N - 1)
        assert {plan.messages(r) for r in range(N)} == {times * (N - 1)}
        assert {plan.chunks_sent(r) for r in range(N)} == {times * (N - 1)}
        for step in plan.steps:  # every rank sends once and receives once: no link waits for another
            assert sorted(m.src for m in step) == sorted(m.dst for m in step) == list(range(N))


@pytest.mark.parametrize(("N", "root"), [(N, root) for N in SIZES for root in (0, 1) if root < N])
def test_tree(N, root):
    depth = math.ceil(math.log2(N))
    for make in (tree.broadcast, tree.reduce, tree.scatter, tree.gather):
        plan = make(N, root)
        assert len(plan.steps) == depth
    assert tree.broadcast(N, root).messages(root) == depth
    assert most_chunks(tree.reduce(N, root)) == (1 if N > 1 else 0)
    assert tree.scatter(N, root).chunks_sent(root) == N - 1
    assert len(tree.all_reduce(N).steps) == 2 * depth
    assert most_chunks(tree.all_reduce(N)) <= 1 + depth


@pytest.mark.parametrize("N", SIZES)
def test_double_tree(N):
    plan = tree.double_all_reduce(N, 8)
    assert plan.num_chunks == 16
    assert most_chunks(plan) <= 2 * 16  # twice the tensor, whatever N is
    for step in plan.steps:  # one piece out and one in, at the most
        assert len({m.src for m in step}) == len({m.dst for m in step}) == len(step)
    if N > 1:
        assert len(plan.steps) <= 1.3 * 2 * 16 + 4 * math.ceil(math.log2(N))
        assert len(tree.double_all_reduce(N, 1).steps) <= 4 * math.ceil(math.log2(N)) + 2
    with pytest.raises(ValueError, match="at least 1 piece; got 0"):
        tree.double_all_reduce(N, 0)


@pytest.mark.parametrize("N", range(2, 34))
def test_an_inner_rank_of_one_tree_is_a_leaf_of_the_other(N):
    first, second = tree.double_parents(N)
    for parents in (first, second):
        assert len(parents) == N - 1
        assert max(Counter(parents.values()).values()) <= 2
    both = set(first.values()) & set(second.values())
    assert len(both) <= N % 2  # of an odd number one is inner in both


@pytest.mark.parametrize("N", [1, 2, 4, 8, 16])
def test_halving_doubling_has_the_bytes_of_a_ring_in_the_steps_of_a_tree(N):
    plan = halving_doubling.all_reduce(N)
    assert len(plan.steps) == 2 * int(math.log2(N))
    assert {plan.chunks_sent(r) for r in range(N)} == {2 * (N - 1)}


@pytest.mark.parametrize(("N", "L"), [(4, 2), (8, 4), (8, 2), (12, 3), (6, 6), (5, 1)])
def test_hierarchical(N, L):
    plan = hierarchical.all_reduce(N, L)
    M = N // L
    assert len(plan.steps) == 2 * (L - 1) + 2 * (M - 1)
    assert {plan.chunks_sent(r) for r in range(N)} == {2 * (N - 1)}  # of N chunks: as much as a flat ring
    out = [m for step in plan.steps for m in step if m.src // L != m.dst // L]
    sent = {r: sum(m.last - m.first for m in out if m.src == r) for r in range(N)}
    assert set(sent.values()) == {2 * (M - 1)}  # 2(M-1)/N of the tensor = 2(N-L)/(N L)
    assert all(m.src % L == m.dst % L for m in out)


@pytest.mark.parametrize(("N", "L"), [(6, 4), (6, 0), (6, -1), (4, 8)])
def test_hierarchical_refuses_nodes_of_different_sizes(N, L):
    with pytest.raises(ValueError, match=f"{N} ranks cannot be cut into nodes of {L}"):
        hierarchical.all_reduce(N, L)


def test_a_plan_among_other_ranks_with_other_chunks():
    steps = hierarchical.renamed(ring.all_gather(2), [4, 7], first=10, width=3)
    assert steps == [(Move(4, 7, 10, 13), Move(7, 4, 13, 16))]
    (step,) = hierarchical.renamed(ring.reduce_scatter(2), [1, 0])
    assert step == (Move(1, 0, 1, 2, reduce=True), Move(0, 1, 0, 1, reduce=True))


@pytest.mark.parametrize("make", [*ROOTED.values(), *UNROOTED.values()], ids=[*ROOTED, *UNROOTED])
def test_a_group_without_ranks_is_refused(make):
    for num_ranks in (0, -1):
        with pytest.raises(ValueError, match="a group has at least 1 rank"):
            make(num_ranks)
    assert make(1).num_ranks == 1


@pytest.mark.parametrize("make", ROOTED.values(), ids=ROOTED)
def test_a_root_outside_the_group_is_refused(make):
    for root in (-1, 3):
        with pytest.raises(ValueError, match="the root must be a rank of the group, 0 to 2"):
            make(3, root)
    assert make(3, 2).root == 2 and make(3).root == 0


def test_hierarchical_without_ranks_is_refused():
    for num_ranks, per_node in ((0, 1), (0, 0), (-4, 2)):
        with pytest.raises(ValueError, match=f"a group has at least 1 rank; got {num_ranks}"):
            hierarchical.all_reduce(num_ranks, per_node)


@pytest.mark.parametrize("N", [1, 3])
def test_a_plan_says_what_it_is(N):
    for name, plan in all_plans(N):
        op, algorithm, *_ = name.split()
        assert (plan.op, plan.algorithm.replace("-", "_"), plan.num_ranks) == (op, algorithm, N)
        assert (plan.root is None) == ("root" not in name)


@pytest.mark.parametrize("N", SIZES)
def test_naive_sends_one_message_at_a_time_through_one_rank(N):
    for plan in (naive.all_reduce(N), naive.all_gather(N), naive.reduce_scatter(N)):
        assert len(plan.steps) == 2 * (N - 1)
        assert all(len(step) == 1 and 0 in (step[0].src, step[0].dst) for step in plan.steps)
