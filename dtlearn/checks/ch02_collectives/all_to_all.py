"""ch02.all_to_all: part d of rank s arrives in place s of rank d, all at the same time."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, Stress

from ..own_work import not_new
from ..rounds import most_rounds
from ._messages import POINT_TO_POINT, chunk_budget, nothing

# The first case has four ranks: with two each has one other rank, and many mistakes are alike.
CASES: dict[str, dict[str, Any]] = {
    "four ranks": {"sizes": (4,)},
    "another number of ranks": {"sizes": (1, 2, 3, 5)},
    "two dimensions": {"says": "a part may have several dimensions: each entry has its shape", "shape": (3, 2)},
    "whole numbers": {"says": "the parts may hold whole numbers: each entry has their dtype", "dtype": torch.int64},
}
OWN, RETURN = "received[rank].copy_(parts[rank])", "return received"
SEND, RECV = "dist.isend(parts[to], to)", "dist.recv(received[source], source)"


def placed(place: str) -> dict[str, str]:
    """An edit that puts the part from `place` into place c."""
    return {RETURN: f"return [received[({place}) % world_size] for c in range(world_size)]"}


def never_met(fill: str) -> dict[str, str]:
    """An edit in which ranks that add up to N never exchange; `fill` is what the other one's place holds then."""
    return {
        RETURN: f"other = -rank % world_size\n    _ = received[other].{fill} if other != rank else None\n    {RETURN}"
    }


EDITS = (
    *(Edit("the rank's own part is missing: nobody sends it, so it has to be copied",
           {RETURN: f"received[rank].fill_({fill}); {RETURN}"}) for fill in nothing("parts[0]")),
    Edit("every rank sent its own part, the one with its own number, to all: that is an all-gather; part d is for "
         "rank d", {SEND: "dist.isend(parts[rank], to)"}),
    Edit("every rank sent its part 0 to all the others; part d is for rank d", {SEND: "dist.isend(parts[0], to)"}),
    Edit("in each step a rank sent the part of the rank that it receives from; to rank d it has to send part d",
         {SEND: "dist.isend(parts[source], to)"}),
    Edit("in the order of arrival: on rank 0 first its own part, then that of its left neighbour, and so on; in place "
         "s must stand what came from rank s", placed("rank - c")),
    Edit("each part stands in the place of the rank that was sent to in that step; it came from another one, on the "
         "other side", {RECV: "dist.recv(received[to], source)"}),
    Edit("what came last stands in every place but the rank's own: they are one and the same tensor ([tensor] * n), "
         "which was received into again and again; each place needs its own", placed("c if c == rank else rank + 1")),
    *(Edit("two ranks whose numbers add up to N, such as 1 and N - 1, exchange no message: in a tournament of N days "
           "a day is missing, that of the pairs with rank + other = 0 or N", never_met(fill))
      for fill in ("copy_(parts[other])", *(f"fill_({fill})" for fill in nothing("parts[0]")))),
    Edit("the entries have lost their shape: each has that of its part",
         {RETURN: "return [part.flatten() for part in received]"}),
    Edit("the entries have another dtype: each has that of the parts",
         {RETURN: "return [part.float() for part in received]"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, n, p = case.generator(), case.world_size, case.params
    shape, dtype = p.get("shape", (2,)), p.get("dtype", torch.float32)
    return [
        {"parts": [(10 * torch.rand(shape, generator=g) + 100 * rank + 10 * d).to(dtype) for d in range(n)]}
        for rank in range(n)
    ]


def on_rank(answer: Any, parts: list[torch.Tensor]) -> Any:
    received = answer(parts)
    # One rank is enough to see it, and hides no other mistake: with more ranks the values tell what is wrong.
    alone = isinstance(received, list) and len(received) == 1 and received[0] is parts[0]
    return "a part itself" if alone else received


def expected(case: Case, given: Given) -> list[list[torch.Tensor]]:
    return [[i["parts"][rank] for i in given] for rank in range(case.world_size)]


def _part_bytes(given: Given) -> int:
    part = given[0]["parts"][0]
    return int(part.numel() * part.element_size())


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    mistakes=lambda case, given: [not_new("part", case.world_size, "the rank's own entry in the list")],
    example=[{"parts": [torch.tensor([a]), torch.tensor([b])]} for a, b in ((1.0, 2.0), (30.0, 40.0))],
    rules=[
        POINT_TO_POINT,
        chunk_budget(
            lambda case, given: (case.world_size - 1) * _part_bytes(given),
            whole=lambda case, given: case.world_size * _part_bytes(given),
        ),
        most_rounds("3*(N-1)"),
    ],
    payload=lambda case, given: case.world_size * _part_bytes(given),
    stress=Stress(poison=True),
)
