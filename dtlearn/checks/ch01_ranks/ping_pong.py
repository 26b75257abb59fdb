"""ch01.ping_pong: pairs of ranks swap messages; the last of an odd number has no partner."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import torch

from dtlearn.grading import Case, Check, Given, Mistake, Stress, rules

from ..own_work import no_objects

_MESSAGES: dict[str, dict[str, Any]] = {
    "a short message": {"shape": [3], "dtype": torch.float32},
    "a long message": {"shape": [500, 400], "dtype": torch.float32},
    "whole numbers": {"shape": [2, 1, 3], "dtype": torch.int64},
}


def inputs(case: Case) -> Given:
    g = case.generator()
    shape, dtype = case.params["shape"], case.params["dtype"]
    return [{"message": (1000 * torch.randn(shape, generator=g)).to(dtype)} for _ in range(case.world_size)]


def on_rank(answer: Any, message: torch.Tensor) -> Any:
    return answer(message)


def expected(case: Case, given: Given) -> list[torch.Tensor | None]:
    partners = [rank ^ 1 for rank in range(case.world_size)]
    return [given[p]["message"] if p < case.world_size else None for p in partners]


def mistakes(case: Case, given: Given) -> list[Mistake]:
    ranks, right = range(case.world_size), expected(case, given)
    found = []
    if case.world_size % 2:
        alone = case.world_size - 1
        text = f"rank {alone} has no partner, and returns its own message: it is to return None"
        found.append(Mistake("DTL-VALUE-ALONE", text, [*right[:alone], given[alone]["message"]]))
    if case.world_size == 1:
        return found
    bounced = [given[r]["message"] if r % 2 == 0 and right[r] is not None else right[r] for r in ranks]
    for order in permutations(ranks) if case.world_size % 2 == 0 else ():
        if all(order[r] != r for r in ranks) and any(order[r] != r ^ 1 for r in ranks):
            who = ", ".join(f"rank {r} has the message of rank {order[r]}" for r in ranks)
            text = f"the pairs are others than 0 and 1, 2 and 3: {who}"
            found.append(Mistake("DTL-VALUE-PERMUTED", text, [given[sender]["message"] for sender in order]))
    senders = [None if right[r] is None else r ^ 1 for r in ranks]
    return [
        *found,
        Mistake(
            "DTL-VALUE-BOUNCED",
            "the odd rank of each pair is right, the even one has its own message: did the odd one send back what it "
            "had received, in place of its own message?",
            bounced,
        ),
        Mistake(
            "DTL-VALUE-SENDER",
            "each rank returns its partner's number, which is what recv returns: the message is in the tensor that "
            "recv was given",
            senders,
        ),
    ]


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=_MESSAGES,
    mistakes=mistakes,
    rules=[rules.only("send", "recv", "isend", "irecv", why="Two ranks talk here; a collective is for all of them.")],
    stress=Stress(poison=True),
    reads=[no_objects],
)
