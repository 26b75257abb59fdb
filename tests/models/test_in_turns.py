"""Every way in every round, in an order that turns; and what is read from the times."""

import time

import pytest
import torch.distributed as dist

from dtlearn.models.in_turns import difference, ratio, slowest, time_in_turns, turns
from dtlearn.runtime.run import run_ranks


def in_order(rounds, warm):
    """Which way ran when, and how many times were taken of each."""
    ran = []
    ways = {name: lambda name=name: ran.append(name) for name in "abc"}
    times = time_in_turns(ways, rounds, warm)
    return "".join(ran), {name: len(seconds) for name, seconds in times.items()}


@pytest.mark.parametrize(("rounds", "warm", "order"), [(1, 1, "cbaabc"), (3, 0, "cbaabccba"), (2, 2, "cbaabc" * 2)])
def test_each_round_has_every_way_in_an_order_that_turns(rounds, warm, order):
    assert run_ranks(in_order, 1, rounds, warm, device="cpu").values == [(order, dict.fromkeys("abc", rounds))]


def test_whose_turn_it_is():
    assert "".join(f"{number}{name}" for number, name in turns({"a": 1, "b": 2}, 3)) == "0b0a1a1b2b2a"


def slow_and_late():
    """Rank 1 comes late to each way, of which the second takes long: the first one's time knows of neither."""

    def late():
        time.sleep(0.2 * dist.get_rank())

    return time_in_turns({"sleeps": lambda: time.sleep(0.1), "late": late}, 2)


def test_a_time_begins_when_all_ranks_are_there():
    first, second = run_ranks(slow_and_late, 2, device="cpu").values
    assert min(first["sleeps"] + second["sleeps"]) >= 0.1 > max(first["late"])
    assert min(first["sleeps"]) < 0.2 <= min(second["late"])  # rank 0 waited at the barrier, which is not timed


def test_barriers_stand_between_the_times():
    record = run_ranks(in_order, 2, 2, 1, device="cpu", record=True).record
    assert {(rank, op): count for (rank, op), count in record.counts().items()} == {
        (0, "barrier"): 9,
        (1, "barrier"): 9,
    }


def test_the_last_rank_counts_round_by_round():
    per_rank = [{"a": (1.0, 2.0), "b": (3.0, 3.0)}, {"a": (2.0, 1.0), "b": (2.0, 5.0)}]
    assert slowest(per_rank) == {"a": (2.0, 2.0), "b": (3.0, 5.0)}


def test_ratio_and_difference_compare_neighbours_in_time():
    """A round that was slow for both does not matter."""
    assert ratio((2.0, 20.0, 3.0), (1.0, 10.0, 1.0)) == 2.0
    assert ratio((3.0, 5.0), (2.0, 2.0)) == (1.5 + 2.5) / 2
    assert difference((2.0, 11.0, 3.0), (1.0, 10.0, 1.0)) == 1.0
    with pytest.raises(ValueError):
        ratio((1.0, 2.0), (1.0,))
    with pytest.raises(ValueError):
        difference((1.0, 2.0), (1.0,))
