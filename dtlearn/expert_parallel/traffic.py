"""What a rank sends for a mixture, from the routing that happened; and what it holds.

An all-to-all of rows has no fixed size: it is what the router chose. So the formulas take the loads of the ep ranks,
`loads[i][e]`: rows that rank i has for expert e, and are exact. If all choices were even, a rank would send in each
all-to-all of rows

    k n C (ep-1)/ep     elements: dispatch and combine forward, and both again backward

because of a token's k rows, (ep-1)/ep are for other ranks. The naive way sends (ep-1) n C elements each way, ep/k times
as many. Sources: those of `parallel_mixture`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .mixture import ExpertGPTConfig

COUNT_BYTES = 8  # int64

Loads = Sequence[Sequence[int]]  # rows of each ep rank for each expert


class MixtureCall(NamedTuple):
    """One collective of a mixture on a rank.

    Attributes:
        phase: "forward" or "backward".
        what: "counts", "dispatch" or "combine"; "tokens", "weights", "choices" or "outputs" in the naive way; in
            backward the one whose gradient travels.
        op: its name in a record.
        nbytes: what the rank hands in.
        sent: bytes of it that leave the rank, in a ring.
    """

    phase: str
    what: str
    op: str
    nbytes: int
    sent: int


def dispatch_calls(loads: Loads, rank: int, hidden_size: int, element_bytes: int) -> list[MixtureCall]:
    """The all-to-alls of `ExpertParallelMixture` over its group, without global counts, forward and backward.

    Args:
        loads: of all ranks of the group.
        rank: in the group.
        hidden_size: C.
        element_bytes: of an element of the tokens.
    """
    ep, E = len(loads), len(loads[0])
    local, row = E // ep, hidden_size * element_bytes
    to_rank = [[sum(load[r * local : (r + 1) * local]) for r in range(ep)] for load in loads]  # rows from i to r
    own = to_rank[rank][rank]
    tokens_side = sum(to_rank[rank]) * row  # rows of this rank's tokens
    experts_side = sum(sent[rank] for sent in to_rank) * row  # rows at its experts
    counts = COUNT_BYTES * E
    going = tokens_side, tokens_side - own * row
    coming = experts_side, experts_side - own * row
    return [
        MixtureCall("forward", "counts", "all_to_all_single", counts, counts - COUNT_BYTES * local),
        MixtureCall("forward", "dispatch", "all_to_all_single", *going),
        MixtureCall("forward", "combine", "all_to_all_single", *coming),
        MixtureCall("backward", "combine", "all_to_all_single", *going),
        MixtureCall("backward", "dispatch", "all_to_all_single", *coming),
    ]


def gathered_calls(
    num_tokens: int, config: ExpertGPTConfig, num_ranks: int, element_bytes: int, weight_bytes: int
) -> list[MixtureCall]:
    """The calls of `GatheredMixture`, whatever experts were chosen.

    Args:
        num_tokens: n, of each rank.
        config: of the model.
        num_ranks: ep.
        element_bytes, weight_bytes: of an element of the tokens, and of a weight of the router.
    """
    ep = num_ranks
    tokens, weights = (num_tokens * size for size in (config.hidden_size * element_bytes, config.top_k * weight_bytes))
    choices = num_tokens * config.top_k * COUNT_BYTES

    def gather(phase: str, what: str, nbytes: int) -> MixtureCall:  # a part is handed in
        return MixtureCall(phase, what, "all_gather", nbytes, (ep - 1) * nbytes)

    def scatter(phase: str, what: str, nbytes: int) -> MixtureCall:  # all parts are
        return MixtureCall(phase, what, "reduce_scatter", ep * nbytes, (ep - 1) * nbytes)

    return [
        gather("forward", "tokens", tokens),
        gather("forward", "weights", weights),
        gather("forward", "choices", choices),
        scatter("forward", "outputs", tokens),
        gather("backward", "outputs", tokens),
        scatter("backward", "weights", weights),
        scatter("backward", "tokens", tokens),
    ]


def even_elements(num_tokens: int, top_k: int, hidden_size: int, num_ranks: int) -> float:
    """Elements that a rank sends in one all-to-all of rows, if its choices are even: k n C (ep-1)/ep.

    Args:
        num_tokens, top_k, hidden_size, num_ranks: n of the rank, k, C, ep.
    """
    return top_k * num_tokens * hidden_size * (num_ranks - 1) / num_ranks


def mixture_elements(config: ExpertGPTConfig, num_ranks: int = 1) -> int:
    """Parameters of a mixture on each of ep ranks: E/ep (8 C^2 + 5 C) + E C."""
    C = config.hidden_size
    return config.num_experts // num_ranks * (8 * C**2 + 5 * C) + config.num_experts * C


def kept_elements(num_rows: int, hidden_size: int) -> int:
    """Elements that experts keep for backward, of m rows: m (C + 2 F) = 9 m C. They have to fit on the busiest rank."""
    return num_rows * 9 * hidden_size
