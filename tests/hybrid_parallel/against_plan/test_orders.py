"""Bytes that leave a node, in one order and in another: recorded equals planned, and by hand."""

import pytest

from dtlearn.hybrid_parallel import MeshLayout, bytes_between_nodes
from dtlearn.hybrid_parallel.against_plan import (
    DP_INNER,
    TP_INNER,
    SmallRun,
    measure_orders,
    orders_table,
    planned_rank,
)
from dtlearn.models import GPTConfig
from dtlearn.runtime.link.link import Link

TINY = GPTConfig(vocab_size=16, context_length=8, num_layers=4, num_heads=4, hidden_size=16, tie_embeddings=True)
LINK = Link(1e-5, 1e6, inside=Link(1e-6, 1e8), ranks_per_node=4)


@pytest.mark.slow
def test_eight_ranks_on_two_nodes():
    run = SmallRun(TINY, MeshLayout(tp=4, dp=2))
    inner, outer = found = measure_orders(run, [TP_INNER, DP_INNER], LINK, rounds=1)
    for order in found:
        assert order.recorded == pytest.approx(order.planned)
        # All ranks are alike here, so `rank_order`'s arithmetic says it too.
        assert order.recorded == pytest.approx(bytes_between_nodes(order.layout, planned_rank(run, 0).sent, 4))
        assert len(order.seconds) == 1 and order.seconds[0] > 0
    assert inner.recorded["tp"] == 0 < inner.recorded["dp"]
    assert outer.recorded["dp"] == 0 < outer.recorded["tp"]
    lines = orders_table(found).splitlines()
    assert lines[1].startswith("tp dp ") and lines[1].endswith("1.0x") and lines[2].startswith("dp tp ")


def test_three_axes_and_a_tied_embedding():
    run = SmallRun(TINY, MeshLayout(tp=2, pp=2, dp=2), zero=1, num_microbatches=2)
    orders = [TP_INNER, ("tp", "cp", "ep", "dp", "pp")]
    inner, other = measure_orders(run, orders, LINK, rounds=1)
    assert inner.recorded == pytest.approx(inner.planned) and other.recorded == pytest.approx(other.planned)
    assert inner.recorded["pp"] == inner.recorded["tp"] == 0 < inner.recorded["dp"]
    assert other.recorded["dp"] == other.recorded["tp"] == 0 < other.recorded["pp"]


def test_one_level_is_refused():
    with pytest.raises(ValueError, match="all orders cost the same"):
        measure_orders(SmallRun(TINY, MeshLayout(tp=2)), [TP_INNER], Link())
