"""Bytes of the two axes of chapter 13 that a rank sends for one block and one micro-batch, forward and backward.

    cp    ring: 2 b T/cp C/tp elements over cp-1 hops forward, and 3 times that with their gradients on 2 ranks
    ep    4 all-to-alls of k n C (ep-1)/ep elements, if the n tokens of a rank choose experts evenly

How much an all-to-all of rows sends is what the router chose: exact only with the loads of a run.
"""

from __future__ import annotations

from dtlearn.context_parallel import AttentionSizes, ContextMethod, attention_traffic, sent_bytes
from dtlearn.expert_parallel import ExpertGPTConfig, dispatch_calls, even_elements
from dtlearn.expert_parallel.traffic import COUNT_BYTES, Loads
from dtlearn.models import GPTConfig


def context_bytes(
    config: GPTConfig, rows: int, length: int, *, tp: int, cp: int, method: ContextMethod, element_bytes: int
) -> int:
    """What attention sends along cp.

    **Communication** and **Memory**: none.

    Args:
        config: of the whole model.
        rows, length: of the micro-batch on this rank, and tokens of a whole sequence.
        tp, cp: ranks; tp divides the heads.
        method: of context parallelism.
        element_bytes: of activations.
    """
    heads, head_size = config.num_heads // tp, config.hidden_size // config.num_heads
    sizes = AttentionSizes(rows, length, heads, heads, head_size, element_bytes)
    return sent_bytes(attention_traffic(sizes, cp, method), cp)


def expert_bytes(config: ExpertGPTConfig, num_tokens: int, ep: int, *, element_bytes: int) -> float:
    """What a mixture sends along ep, if choices are even.

    **Communication** and **Memory**: none.

    Args:
        config: of the whole model.
        num_tokens: n, that this rank routes.
        ep: ranks.
        element_bytes: of activations.
    """
    rows = 4 * even_elements(num_tokens, config.top_k, config.hidden_size, ep) * element_bytes
    return rows + COUNT_BYTES * config.num_experts * (ep - 1) / ep


def routed_bytes(loads: Loads, place: int, hidden_size: int, *, element_bytes: int) -> int:
    """What a mixture sends along ep, by the choices that were made.

    **Communication** and **Memory**: none.

    Args:
        loads: of each rank of the ep group, its rows for each expert.
        place: of this rank along ep.
        hidden_size: C.
        element_bytes: of activations.
    """
    return sum(call.sent for call in dispatch_calls(loads, place, hidden_size, element_bytes))
