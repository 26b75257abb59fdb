"""A layer's time over t: by hand, and off the cliff."""

import pytest

from dtlearn.collectives.topology import DGX_H100, flat, nodes
from dtlearn.tensor_parallel.arithmetic.cliff import all_reduce_seconds, block_flops, layer_times
from dtlearn.tensor_parallel.arithmetic.sizes import BlockSizes

GPT_3 = BlockSizes(batch=1, length=2048, hidden=12288, heads=96)
FLOPS = 500e12
FAST, SLOW = (3e-6, 450e9), (8e-6, 50e9)
ONE_CARD = nodes(8, FAST, SLOW, cards=1)


def test_operations_are_two_for_each_weight_and_token_and_those_of_the_scores():
    weights, b, s, h = 12 * 12288**2, 1, 2048, 12288
    forward = 2 * weights * b * s + 2 * 2 * b * s * s * h  # scores, and their product with the value
    assert block_flops(GPT_3) == 3 * forward


def test_on_one_link_by_hand():
    (one, four) = layer_times(GPT_3, [1, 4], flat(1e-5, 1e11), flops=FLOPS, element_bytes=4)
    n = 4 * GPT_3.bsh
    assert one == (1, block_flops(GPT_3) / FLOPS, 0.0, "", 1.0)
    assert four.computation == pytest.approx(one.seconds / 4)
    assert four.communication == pytest.approx(4 * (6 * 1e-5 + 6 / 4 * n / 1e11))
    assert four.efficiency == pytest.approx(one.seconds / four.seconds / 4)
    assert four.algorithm == "ring"


def test_inside_a_node_faster_and_beyond_it_slower():
    times = layer_times(GPT_3, [1, 2, 4, 8, 16, 32], ONE_CARD, flops=FLOPS)
    seconds = {time.num_ranks: time.seconds for time in times}
    assert seconds[1] > seconds[2] > seconds[4] > seconds[8] < seconds[16] < seconds[32]
    communication = {time.num_ranks: time.communication for time in times}
    assert communication[8] < 1.3 * communication[4]  # hardly grows with t
    assert communication[16] > 5 * communication[8]  # one card for 8 ranks
    assert {time.num_ranks: time.algorithm for time in times}[16] == "hierarchical"


def test_a_card_for_each_rank_moves_the_cliff():
    """16 ranks are then faster than 8, but not by much: a third of what they could do is lost."""
    times = {time.num_ranks: time for time in layer_times(GPT_3, [8, 16], DGX_H100, flops=FLOPS)}
    assert times[16].seconds < times[8].seconds
    assert times[8].efficiency > 0.8 and times[16].efficiency < 2 / 3


def test_of_algorithms_the_faster_one():
    one_ring, algorithm = all_reduce_seconds(12, 1e8, ONE_CARD)  # 12 ranks do not fill two nodes
    assert algorithm == "ring"
    two_levels, algorithm = all_reduce_seconds(16, 1e8, nodes(8, FAST, SLOW, cards=8))
    assert algorithm == "hierarchical" and two_levels < one_ring / 2
    assert all_reduce_seconds(1, 1e8, ONE_CARD) == (0.0, "")


def test_ranks_that_do_not_divide_the_heads():
    with pytest.raises(ValueError, match="96 heads cannot be divided among 5 ranks"):
        layer_times(GPT_3, [5], ONE_CARD, flops=FLOPS)
