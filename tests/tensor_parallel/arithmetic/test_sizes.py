"""Sizes, and ranks that do not divide them."""

import pytest

from dtlearn.tensor_parallel.arithmetic.sizes import BlockSizes


def test_elements_between_blocks():
    assert BlockSizes(batch=3, length=5, hidden=8, heads=2).bsh == 120


def test_bad_sizes():
    with pytest.raises(ValueError, match="length must be 1 or more, got 0"):
        BlockSizes(1, 0, 8, 2)
    with pytest.raises(ValueError, match=r"heads \(3\) must divide hidden \(8\)"):
        BlockSizes(1, 1, 8, 3)


def test_ranks_divide_heads_and_under_sequence_parallelism_tokens():
    sizes = BlockSizes(1, 7, 8, 4)
    sizes.check_ranks(2)
    with pytest.raises(ValueError, match="4 heads cannot be divided among 3 ranks"):
        sizes.check_ranks(3)
    with pytest.raises(ValueError, match="7 tokens of a sequence cannot be divided among 2 ranks"):
        sizes.check_ranks(2, sequence_parallel=True)
