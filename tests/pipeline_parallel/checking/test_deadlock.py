import pytest

from dtlearn.pipeline_parallel import Post, find_deadlock


def steps(text: str) -> list[list[Post]]:
    """One rank's steps, with commas between them; ">1:a" sends a to rank 1, "<1:a" receives it."""
    ops = {">": "send", "<": "receive"}
    return [
        [Post(ops[word[0]], int(word[1 : word.index(":")]), word.split(":")[1]) for word in step.split()]
        for step in text.split(",")
    ]


@pytest.mark.parametrize(
    "orders",
    [
        [">1:a, <1:b", "<0:a, >0:b"],
        [">1:a <1:b", ">0:b <0:a"],  # both send; posted together, so both receives are there too
        ["<1:b >1:a", ">0:b <0:a"],
        [">1:a, >1:b, <1:c", "<0:a, <0:b >0:c"],
        [">1:a", "<0:a, >2:a", "<1:a"],
        [">1:a >2:a", "<0:a >2:b", "<1:b <0:a"],
    ],
)
def test_these_ranks_come_to_the_end(orders):
    assert find_deadlock([steps(order) for order in orders]) is None
    assert find_deadlock([steps(order) for order in orders], buffered=True) is None


@pytest.mark.parametrize(
    ("orders", "buffered_runs", "kind", "ranks", "message"),
    [
        (
            [">1:1F1, <1:1B0", ">0:1B0, <0:1F1"],
            *(True, "circle", (0, 1)),
            "rank 0 (step 0 of 2) sends 1F1 to rank 1; rank 1 (step 0 of 2) sends 1B0 to rank 0: each waits for the "
            "next, and the last for the first",
        ),
        (
            ["<1:b, >1:a", "<0:a, >0:b"],
            *(False, "circle", (0, 1)),
            "rank 0 (step 0 of 2) receives b from rank 1; rank 1 (step 0 of 2) receives a from rank 0: each waits for "
            "the next, and the last for the first",
        ),
        (
            [">1:a, >1:b", "<0:a"],
            *(True, "no-partner", (0, 1)),
            "rank 0 (step 1 of 2) sends b to rank 1, and rank 1 has come to its end without it",
        ),
        (
            [">1:a, >1:b", "<0:b, <0:a"],
            *(False, "other-message", (0, 1)),
            "rank 0 (step 0 of 2) sends a to rank 1, and rank 1 (step 0 of 2) receives b from rank 0: they disagree "
            "about the message",
        ),
    ],
)
def test_who_waits_for_whom_is_told(orders, buffered_runs, kind, ranks, message):
    orders = [steps(order) for order in orders]
    deadlock = find_deadlock(orders)
    assert deadlock is not None
    assert (deadlock.kind, deadlock.ranks, deadlock.message) == (kind, ranks, message) and str(deadlock) == message
    assert (find_deadlock(orders, buffered=True) is None) == buffered_runs


def test_a_ring_of_sends_and_a_rank_that_waits_for_it():
    ring = [steps(f">{(rank + 1) % 3}:a, <{(rank - 1) % 3}:a") for rank in range(3)]
    deadlock = find_deadlock([*ring, steps("<0:b")])
    assert deadlock.kind == "circle" and deadlock.ranks == (0, 1, 2)
    assert find_deadlock([steps(f">{(rank + 1) % 3}:a <{(rank - 1) % 3}:a") for rank in range(3)]) is None
    assert find_deadlock([steps(">1:a, <2:a"), steps("<0:a, >2:a"), steps("<1:a, >0:a")]) is None  # one receives first
    waiting_for_the_ring = find_deadlock([steps("<1:b"), *[steps(f">{1 + (r + 1) % 2}:a") for r in range(2)]])
    assert waiting_for_the_ring.ranks == (1, 2)


@pytest.mark.parametrize("text", [">2:a", "<0:a", ">-1:a"])
def test_a_peer_that_does_not_exist_is_told(text):
    with pytest.raises(ValueError, match=r"rank 0 (sends|receives) a .*: expected another one of 2 ranks"):
        find_deadlock([steps(text), []])
