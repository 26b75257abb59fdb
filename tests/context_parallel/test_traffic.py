"""Bytes sent and kept, by formula, beside recorded runs of one layer on 1, 2 and 4 ranks."""

from collections import Counter

import pytest
import torch
import torch.distributed as dist

from dtlearn.context_parallel import (
    AttentionSizes,
    attention_traffic,
    context_parallel_attention,
    kept_bytes,
    sent_bytes,
)
from dtlearn.runtime.run import run_ranks
from tests.data_parallel.runs import message_of

B, T, D = 2, 16, 8
METHODS = ("ring", "all-gather", "ulysses")
HEADS = ((8, 8), (8, 2))
DTYPES = (torch.float32, torch.bfloat16)
OPS = {
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_to_all_single": "all_to_all",
}
CASES = [(method, heads, dtype) for method in METHODS for heads in HEADS for dtype in DTYPES]
LAYOUTS = ("zigzag", "contiguous")


def sizes(heads, dtype):
    return AttentionSizes(B, T, *heads, D, dtype.itemsize)


def kept_while(attend):
    """The output of `attend`, and the bytes of all storages that autograd keeps for it."""
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = attend()
    return out, sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def one_layer(case, layout):
    method, heads, dtype = case
    shapes = [(B, h, T // dist.get_world_size(), D) for h in (heads[0], heads[1], heads[1])]
    inputs = [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]
    out, kept = kept_while(lambda: context_parallel_attention(*inputs, method=method, layout=layout))
    dist.barrier()  # where the forward pass ends in the record
    out.sum().backward()
    dist.barrier()
    return kept


def all_layers():
    return {(number, layout): one_layer(case, layout) for number, case in enumerate(CASES) for layout in LAYOUTS}


def passes(record, rank):
    """What a rank sent in each pass, forward and backward in turns: {(op, bytes): times}."""
    found = [Counter()]
    for event in record.select(rank=rank):
        if event.op == "barrier":
            found.append(Counter())
        elif not event.receives:
            found[-1][OPS.get(event.op, event.op), event.nbytes] += 1
    return found[:-1]


@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_the_formulas_are_what_a_run_sends_and_keeps(num_ranks):
    run = run_ranks(all_layers, num_ranks, device="cpu", record=True)
    for rank in range(num_ranks):
        found = iter(passes(run.record, rank))
        for number, (method, heads, dtype) in enumerate(CASES):
            own = sizes(heads, dtype)
            for layout in LAYOUTS:
                for phase in ("forward", "backward"):
                    expected = Counter()
                    for call in attention_traffic(own, num_ranks, method):
                        expected[call.op, call.nbytes] += call.times * (call.phase == phase)
                    assert next(found) == +expected, (method, heads, dtype, layout, phase)
                kept = kept_bytes(own, num_ranks, method, layout)
                assert run[rank][number, layout] == kept, (method, heads, dtype, layout)
        assert next(found, None) is None


def test_what_is_sent_as_ranks_are_added():
    """With more ranks Ulysses sends less; ring and all-gather hardly change. With few kv heads a ring sends less."""
    same, grouped = (AttentionSizes(1, 8192, 32, kv_heads, 128, 2) for kv_heads in (32, 4))
    forward = {
        (cp, method): sent_bytes([c for c in attention_traffic(same, cp, method) if c.phase == "forward"], cp)
        for cp in (2, 8)
        for method in METHODS
    }
    unit = 8192 * 32 * 128 * 2  # bytes of one whole tensor
    assert forward[2, "ring"] == forward[2, "all-gather"] == unit
    assert forward[8, "ring"] == forward[8, "all-gather"] == 2 * unit * 7 / 8
    assert forward[2, "ulysses"] == 4 * unit / 4 and forward[8, "ulysses"] == 4 * unit * 7 / 64
    # Grouped-query attention with 8 query heads for each key-value head: a ring of 2 sends less than Ulysses.
    ring, ulysses = (sent_bytes(attention_traffic(grouped, 2, method), 2) for method in ("ring", "ulysses"))
    assert ring < ulysses
    in_fp32 = attention_traffic(same._replace(itemsize=4), 2, "ring")
    assert sent_bytes(in_fp32[1:], 2) == 3 * sent_bytes(in_fp32[:1], 2)  # (2 cp - 1) / (cp - 1)
    (hop, _, home) = attention_traffic(same, 4, "ring")
    assert (hop.times, home.times) == (3, 4) and home.nbytes == 2 * hop.nbytes  # bf16, and sums in fp32


def test_what_is_kept_falls_with_the_ranks_but_for_all_gather():
    own = AttentionSizes(1, 8192, 32, 32, 128, 2)
    assert kept_bytes(own, 8, "ring") == kept_bytes(own, 1, "ring") / 8
    assert kept_bytes(own, 8, "ulysses", "contiguous") == kept_bytes(own, 1, "ring") / 8
    assert kept_bytes(own, 8, "all-gather") > 4 * kept_bytes(own, 8, "ring")


def test_what_does_not_fit_is_refused():
    own = AttentionSizes(1, 6, 2, 2, 4)
    assert "6 tokens of a sequence cannot be divided among 4 ranks" in message_of(
        lambda: attention_traffic(own, 4, "ring")
    )
    assert "got 'striped'" in message_of(lambda: attention_traffic(own, 2, "striped"))
    assert "got 'striped'" in message_of(lambda: kept_bytes(own, 2, "striped"))
