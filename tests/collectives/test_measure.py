"""Times of the package's collectives beside the library's, and the line through them."""

import pytest

from dtlearn.collectives import ring, tree
from dtlearn.collectives.cost import plan_seconds
from dtlearn.collectives.measure import ALGORITHMS, fit_plan, plan_of, slowest, time_on_rank
from dtlearn.collectives.topology import flat
from dtlearn.runtime.run import run_ranks


def all_ops(sizes, rounds):
    return {op: time_on_rank(op, sizes, rounds) for op in ALGORITHMS}


def test_every_algorithm_is_timed_at_every_size():
    per_rank = run_ranks(all_ops, 2, [8, 4096], 2, device="cpu", timeout=120).values
    for op, names in ALGORITHMS.items():
        times = slowest([told[op] for told in per_rank])
        assert set(times) == {"library", *names}
        for name, of_sizes in times.items():
            assert list(of_sizes) == [8, 4096]
            assert all(len(seconds) == 2 and min(seconds) > 0 for seconds in of_sizes.values())
            assert times[name][8][0] == max(told[op][name][8][0] for told in per_rank)


def test_the_hierarchical_way_is_left_out_where_nodes_would_differ():
    for times in run_ranks(time_on_rank, 3, "all_reduce", [8], 1, device="cpu").values:
        assert list(times) == ["library", "ring", "tree", "halving-doubling", "naive"]
    for times in run_ranks(time_on_rank, 3, "all_reduce", [8], 1, 3, device="cpu").values:
        assert list(times) == ["library", *ALGORITHMS["all_reduce"]]


def test_only_what_is_asked_for_is_timed():
    for times in run_ranks(time_on_rank, 2, "all_reduce", [8], 1, 2, ["tree", "library"], device="cpu").values:
        assert list(times) == ["tree", "library"]


@pytest.mark.parametrize("plan", [ring.all_reduce(4), tree.all_reduce(8)])
def test_times_of_a_known_link_give_that_link(plan):
    link = flat(5e-5, 1e9)
    fitted = fit_plan(plan, {n: plan_seconds(plan, n, link) for n in (1e3, 1e5, 1e7)})
    assert (fitted.latency, fitted.bandwidth) == (pytest.approx(5e-5), pytest.approx(1e9))
    assert fitted.residual < 1e-6


def test_plan_of_knows_nodes():
    assert plan_of("all_reduce", "hierarchical", 4).algorithm == "hierarchical"
    assert plan_of("all_gather", "ring", 3) == ring.all_gather(3)
