"""ch02.ring_all_gather: the tensors of all ranks, in order, on every rank."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, Stress, payload_bytes

from ..own_work import not_new
from ..rounds import beside_the_ring, in_a_ring
from ._messages import POINT_TO_POINT, chunk_budget, nothing

# The first case has four ranks: with two both neighbours are one rank, and many mistakes are alike.
CASES: dict[str, dict[str, Any]] = {
    "four ranks": {"sizes": (4,)},
    "fewer ranks": {"sizes": (1, 2, 3)},
    "two dimensions": {"says": "x may have several dimensions: each entry has its shape", "shape": (2, 3)},
    "whole numbers": {"says": "x may hold whole numbers: each entry has its dtype", "dtype": torch.int64},
}
OWN, LOOP, RETURN = "gathered[rank].copy_(x)", "range(world_size - 1)", "return gathered"
SENT = "dist.isend(gathered[(rank - step) % world_size], right)"
NOTHING = nothing("x")


def placed(place: str, where: str = "") -> dict[str, str]:
    """An edit that puts the tensor from `place` into place c; only where `where` holds, if it is given."""
    place = f"({place}) % world_size if {where} else c" if where else f"({place}) % world_size"
    return {RETURN: f"return [gathered[{place}] for c in range(world_size)]"}


def short(before: str) -> dict[str, str]:
    """An edit without the last step; `before` is what was in the place that it fills."""
    return {OWN: f"gathered[(rank + 1) % world_size].{before}; {OWN}", LOOP: "range(world_size - 2)"}


ALIASED = "one and the same tensor, which was received into again and again; each place needs its own"
EDITS = (
    Edit("all entries are zeros: each rank has to put its own x into its place before it sends what is there",
         {OWN: "gathered[rank].fill_(0)"}),
    *(Edit("in the rank's own place its own x is missing: nobody sends it there, so it has to be copied",
           {RETURN: f"gathered[rank].fill_({fill}); {RETURN}"}) for fill in NOTHING),
    *(Edit("one step too few: the x of the right neighbour (place 1 on rank 0, place 0 on the last rank) never came",
           short(before)) for before in (*(f"fill_({fill})" for fill in NOTHING), "copy_(x)")),
    *(Edit("each rank lacks the x of the ranks behind it, and rank 0 has its own only: the last rank has to send too, "
           "to rank 0, or the messages go along a line and not around a ring",
           {RETURN: f"return [g if c <= rank else g.fill_({fill}) for c, g in enumerate(gathered)]"})
      for fill in NOTHING),
    Edit("in the order of arrival: rank 0 has its own x first, then that of its left neighbour, and so on; in place r "
         "must stand the x of rank r", placed("rank - c")),
    Edit("the places run the wrong way round: what comes in step k, from 0, is the x of rank - k - 1, and stands in "
         "place rank + k + 1", placed("2 * rank - c")),
    Edit("the x of the left neighbour stands in every place but the rank's own: all sent their own x in every step; "
         "after the first step pass on what came last", {SENT: "dist.isend(x, right)"}),
    Edit(f"what came last stands in every place but the rank's own: they are {ALIASED}",
         placed("rank + 1", "c != rank")),
    Edit("on rank 0 of 4 the places 1 and 3 hold one and the same tensor: what came first was overwritten by what came "
         "in the third step, into the same of two buffers; each place needs its own",
         placed("rank + 1", "world_size > 3 and c == (rank - 1) % world_size")),
    Edit("the entries have lost their shape: each has that of x", {RETURN: "return [g.flatten() for g in gathered]"}),
    Edit("the entries have another dtype: each has that of x", {RETURN: "return [g.float() for g in gathered]"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, shape = case.generator(), case.params.get("shape", (2,))
    dtype = case.params.get("dtype", torch.float32)
    return [{"x": (100 * torch.rand(shape, generator=g) + 100 * rank + 1).to(dtype)} for rank in range(case.world_size)]


def on_rank(answer: Any, x: torch.Tensor) -> Any:
    gathered = answer(x)
    # One rank is enough to see it, and hides no other mistake: with more ranks the values tell what is wrong.
    alone = isinstance(gathered, list) and len(gathered) == 1 and gathered[0] is x
    return "x itself" if alone else gathered


def expected(case: Case, given: Given) -> list[list[torch.Tensor]]:
    return [[i["x"] for i in given]] * case.world_size


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    mistakes=lambda case, given: [not_new("x", case.world_size, "the rank's own entry in the list")],
    example=[{"x": torch.tensor([10.0 * rank])} for rank in range(3)],
    rules=[
        POINT_TO_POINT,
        chunk_budget(
            lambda case, given: (case.world_size - 1) * payload_bytes(given, "x"),
            whole=lambda case, given: case.world_size * payload_bytes(given, "x"),
        ),
        in_a_ring(),
    ],
    payload=lambda case, given: case.world_size * payload_bytes(given, "x"),
    why=beside_the_ring,
    stress=Stress(poison=True),
)
