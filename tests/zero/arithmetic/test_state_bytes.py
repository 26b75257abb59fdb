"""The formula, by hand and to the byte of the ledger on real ranks."""

import pytest

from dtlearn.memory import CONVENTIONS
from dtlearn.memory.arithmetic.published import zero_bytes
from dtlearn.memory.arithmetic.training_state import training_state
from dtlearn.runtime.run import run_ranks
from dtlearn.zero import gathered_elements, plan_flat, plan_whole_tensors, state_bytes
from tests.zero.arithmetic.runs import CATEGORIES, STAGES, memory, trained_in

ADAM = CONVENTIONS["fp32 Adam"]


def by_ledger():
    return {stage: memory(stage) for stage in STAGES}


def test_the_ledger_counts_the_same_bytes():
    padded = 0
    for rank, of_rank in enumerate(run_ranks(by_ledger, 3, device="cpu")):
        for stage, (after, gathered, partition, units) in of_rank.items():
            kept, prefetch = "kept" in stage, 0 if "prefetch 0" in stage else 1
            elements = gathered_elements(partition, units, prefetch, kept=kept) if units else 0
            ours = state_bytes(
                partition,
                int(stage[0]),
                ADAM,
                rank=rank,
                per_tensor=4,
                trained=trained_in(stage, partition),
                gathered=elements,
            )
            assert after == {name: ours[name] for name in CATEGORIES}, stage
            assert gathered == ours["communication"] or not units, stage
            padded += partition.padding
    assert padded > 0


def test_the_formulas_of_the_paper():
    size, n = 6_000_000, 8
    for stage, expected in enumerate([16 * size, 4 * size + 12 * size // n, 2 * size + 14 * size // n, 16 * size // n]):
        ours = state_bytes(plan_flat([size], n), stage, CONVENTIONS["mixed 16"])
        assert sum(ours.values()) == expected
        assert ours == {**zero_bytes(training_state(size, "mixed 16"), stage, n), "communication": 0}


def test_padding_and_what_each_rank_owns():
    partition = plan_flat([3, 4], 4)  # 2 each, and a number of padding on rank 3
    assert [state_bytes(partition, 1, ADAM, rank=r)["optimizer state"] for r in range(4)] == [16, 16, 16, 8]
    assert [state_bytes(partition, 1, ADAM, rank=r, per_tensor=4)["optimizer state"] for r in range(4)] == [
        24,
        24,
        24,
        16,
    ]
    for stage, (weights, gradients) in enumerate([(7, 7), (8, 7), (8, 2), (2, 2)]):
        ours = state_bytes(partition, stage, ADAM, rank=3)
        assert (ours["parameters"], ours["gradients"]) == (4 * weights, 4 * gradients)
    whole = plan_whole_tensors([10, 3], 2)
    assert [state_bytes(whole, 1, ADAM, rank=r)["optimizer state"] for r in range(2)] == [80, 24]


def test_frozen_parameters_are_weights_and_nothing_else():
    partition = plan_flat([8, 4], 2, kinds=["frozen", "trained"])
    for stage, expected in enumerate([(48, 16, 32), (48, 16, 16), (48, 8, 16), (24, 8, 16)]):
        ours = state_bytes(partition, stage, ADAM, trained=[1])
        assert tuple(ours[name] for name in CATEGORIES) == expected


def test_what_is_gathered():
    partition = plan_flat([1, 10, 30, 20], 1, 1)
    units = [[0], [1], [2], [3]]
    assert [gathered_elements(partition, units, prefetch) for prefetch in range(4)] == [31, 51, 61, 61]
    assert gathered_elements(partition, units, 0, kept=True) == 61
    assert gathered_elements(partition, [[0, 1, 2, 3]], 2) == 61  # one unit: all at once


@pytest.mark.parametrize(("stage", "rank"), [(4, 0), (1, 2), (1, -1)])
def test_bad_input(stage, rank):
    with pytest.raises(ValueError, match="stage must be 0 to 3, and rank below 2"):
        state_bytes(plan_flat([4], 2), stage, ADAM, rank=rank)
    with pytest.raises(ValueError, match="expected a unit and a prefetch of 0 or more"):
        gathered_elements(plan_flat([4], 2), [], 1)
