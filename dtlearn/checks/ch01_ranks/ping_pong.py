"""ch01.ping_pong: pairs of ranks swap messages; the last of an odd number has no partner."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Given, Stress, rules

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


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=_MESSAGES,
    rules=[rules.only("send", "recv", "isend", "irecv", why="Two ranks talk here; a collective is for all of them.")],
    stress=Stress(poison=True),
    reads=[no_objects],
)
