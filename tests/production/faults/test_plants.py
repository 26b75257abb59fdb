"""Faults as they are planted: when they strike, and what they do to numbers and to a process."""

import pytest
import torch

from dtlearn.production.faults.plants import Plant, fill_memory, flip_bit, limit_memory, spoil
from dtlearn.runtime.run import run_ranks


def test_a_fault_strikes_once_and_a_lasting_defect_from_then_on():
    once, lasting = Plant("kill", 1, 3), Plant("scale_gradient", 1, 3)
    assert [once.strikes(1, step, 0) for step in (2, 3, 4)] == [False, True, False]
    assert [lasting.strikes(1, step, 0) for step in (2, 3, 4)] == [False, True, True]
    assert not once.strikes(0, 3, 0) and not lasting.strikes(1, 4, 1)


@pytest.mark.parametrize(("kind", "rank", "step"), [("earthquake", 0, 0), ("kill", -1, 0), ("kill", 0, -1)])
def test_a_fault_that_nobody_knows_is_refused(kind, rank, step):
    with pytest.raises(ValueError, match="a fault is one of kill, hang"):
        Plant(kind, rank, step)


def test_a_flipped_bit_flips_back():
    values = torch.tensor([1.0, 3.0], dtype=torch.float64)
    flip_bit(values, 1, 51)
    assert values.tolist() == [1.0, 2.0]  # 3 = 1.1b * 2: without the first bit of the mantissa it is 2
    flip_bit(values, 1, 51)
    assert values.tolist() == [1.0, 3.0]


def test_a_defect_changes_a_copy():
    values = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    assert spoil("nan", values).isnan().tolist() == [True, False, False]
    assert torch.equal(spoil("scale_gradient", values), values * 1.01)
    assert (spoil("flip_gradient", values) != values).tolist() == [False, True, False]
    assert values.tolist() == [1.0, 2.0, 3.0]


def test_a_rank_that_has_no_more_memory_raises_and_is_not_killed():
    assert "memory" in run_ranks(out_of_memory, 1, device="cpu")[0]


def out_of_memory() -> str:
    limit_memory(48 << 20)
    try:
        fill_memory()
    except RuntimeError as error:
        return str(error).splitlines()[0]
