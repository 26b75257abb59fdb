import pytest

from dtlearn.cli.doctor import group as g


def told(**of_last):
    """What 4 ranks say, the last of them with differences."""
    one = {"seconds": 0.002, "right": True, "torch": "2.13.0", "nccl": ""}
    return [one, one, one, {**one, **of_last}]


def test_the_slowest_rank_counts_and_the_bus_carries_its_share():
    check = g.check_all_reduce(told(seconds=0.003), 1_000_000)
    # 2 * 3/4 * 1 MB in 3 ms
    assert check.found.startswith("1 MB over 4 ranks in 3.0 ms: bus bandwidth 0.5 GB/s")
    assert check.state == "ok"


def test_one_rank_has_no_bus():
    assert g.check_all_reduce(told()[:1], 1_000_000).found == "1 MB over 1 ranks in 2.0 ms"


def test_a_wrong_sum_is_a_problem():
    check = g.check_all_reduce(told(right=False), 1_000_000)
    assert (check.state, "wrong on ranks 3" in check.found) == ("problem", True)


@pytest.mark.parametrize(
    ("differs", "state", "says"),
    [
        ({}, "ok", "torch 2.13.0; gloo"),
        ({"torch": "2.13.0+cu126"}, "note", "torch 2.13.0 (ranks 0, 1, 2); 2.13.0+cu126 (rank 3)"),
    ],
)
def test_builds(differs, state, says):
    check = g.check_builds(told(**differs))
    assert (check.state, check.found.startswith(says)) == (state, True)


def test_two_versions_of_nccl_are_a_problem():
    ranks = [{**t, "nccl": v} for t, v in zip(told(), ["2.27.3", "2.27.3", "2.27.3", "2.21.5"], strict=True)]
    check = g.check_builds(ranks)
    assert check.state == "problem" and "NCCL 2.27.3 (ranks 0, 1, 2); 2.21.5 (rank 3)" in check.found


def test_one_node_reaches_all_others():
    assert g.check_mesh([object()]).state == "ok"
