"""Answers that work out the seed, and with it the inputs of all ranks, from what their own rank is told."""

import pytest

from .hand_in import submit
from .rows import LEVELS, tries

# A CRC is affine: that of one text with the seed's digits in it, and how many these are, give that of any other such
# text. So the generator of a case follows from a checksum of the seed.
FROM_A_CHECKSUM = """
import zlib

def moved(state, data):
    return zlib.crc32(data, state ^ 0xFFFFFFFF) ^ 0xFFFFFFFF

def mean(x):
    frame = sys._getframe()
    while type(frame.f_locals.get("task")).__name__ != "Task":
        frame = frame.f_back
    told = frame.f_locals["task"].seed ^ 0xFFFFFFFF
    for digits in range(1, 20):
        zeros = bytes(digits)
        bare = moved(moved(0xFFFFFFFF, b"stress "), zeros) ^ told
        state = moved(moved(0xFFFFFFFF, b"one case/2/"), zeros) ^ bare
        g = torch.Generator().manual_seed(moved(state, b"/0") ^ 0xFFFFFFFF)
        inputs = [torch.randn(3, generator=g) for _ in range(2)]
        if torch.equal(inputs[dist.get_rank()], x):
            return sum(inputs) / 2
    return x
"""


@tries("reads the check, the expected values or the seed in memory")
@tries("reads the inputs of other ranks in its own memory")
@pytest.mark.parametrize("level", LEVELS)
def test_the_seed_does_not_follow_from_what_a_rank_is_told(level):
    assert submit(FROM_A_CHECKSUM, level).score == 0
