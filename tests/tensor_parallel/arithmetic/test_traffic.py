"""The formula by hand; on real ranks it is held against the record in `test_sequence_parallel`."""

import pytest

from dtlearn.tensor_parallel.arithmetic.sizes import BlockSizes
from dtlearn.tensor_parallel.arithmetic.traffic import (
    block_traffic,
    norm_traffic,
    sent_elements,
)

SIZES = BlockSizes(batch=2, length=12, hidden=24, heads=12)
b, s, h = 2, 12, 24


@pytest.mark.parametrize("t", [1, 2, 3, 4])
def test_eight_twelve_eight_ten(t):
    unit = b * s * h * (t - 1) / t

    def sent(**options):
        return sent_elements(block_traffic(SIZES, t, **options))

    assert sent() == pytest.approx(8 * unit)
    assert sent(recompute="full") == pytest.approx(12 * unit)
    assert sent(recompute="up to the last need") == pytest.approx(10 * unit)
    assert sent(sequence_parallel=True) == pytest.approx(8 * unit)
    assert sent(sequence_parallel=True, recompute="full") == pytest.approx(12 * unit)
    assert sent(sequence_parallel=True, gather_again=True) == pytest.approx(10 * unit)


def calls(collectives):
    return [(c.where, c.phase, c.op) for c in collectives]


def test_one_all_reduce_forward_and_one_backward_for_each_half():
    assert calls(block_traffic(SIZES, 2)) == [
        ("attention", "forward", "all_reduce"),
        ("feed_forward", "forward", "all_reduce"),
        ("feed_forward", "backward", "all_reduce"),
        ("attention", "backward", "all_reduce"),
    ]
    assert calls(block_traffic(SIZES, 2, sequence_parallel=True))[:2] == [
        ("attention", "forward", "all_gather"),
        ("attention", "forward", "reduce_scatter"),
    ]
    again = block_traffic(SIZES, 2, sequence_parallel=True, gather_again=True)
    assert [c.op for c in again if c.phase == "backward" and c.where == "attention"] == [
        "all_gather",
        "all_gather",
        "reduce_scatter",
    ]


def test_norm_gradients_are_little():
    call = norm_traffic(h, 4, 3)
    assert call.elements == 3 * (2 * 2 * h + 2 * h) + 2 * h
    assert call.op == "all_reduce"


def test_what_cannot_be():
    with pytest.raises(ValueError, match="12 heads cannot be divided among 5 ranks"):
        block_traffic(SIZES, 5)
    with pytest.raises(ValueError, match="gather_again=True needs sequence_parallel=True"):
        block_traffic(SIZES, 2, gather_again=True)
