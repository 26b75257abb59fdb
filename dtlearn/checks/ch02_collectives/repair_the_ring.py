"""ch02.repair_the_ring: tensors travel around a ring, and everybody adds them up."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from dtlearn.grading import Case, Check, Edit, Given, Stress

from ..own_work import not_new
from ._messages import POINT_TO_POINT, total

# The first case has four ranks: with two both neighbours are one rank, and many mistakes are alike.
CASES: dict[str, dict[str, Any]] = {
    "four ranks": {"sizes": (4,)},
    "fewer ranks": {"sizes": (1, 2, 3)},
}
LOOP = "total, token = x.clone(), x.clone()\n    for _ in range(world_size - 1):\n        arriving"
SEND, RECV = "sending = dist.isend(token, (rank + 1) % world_size)", "dist.recv(arriving, (rank - 1) % world_size)"
EXCHANGE = f"{SEND}\n        {RECV}\n        sending.wait()"
ADD = "token = arriving\n        total += token"


def overwriting(who: str) -> dict[str, str]:
    """An edit in which these ranks receive first, and send what came."""
    send = "dist.send({}, (rank + 1) % world_size)"
    first, second = f"{RECV}; {send.format('arriving')}", f"{send.format('token')}; {RECV}"
    return {EXCHANGE: f"if {who}:\n            {first}\n        else:\n            {second}"}


OVERWRITTEN = (
    "the {} ranks received into the tensor that they had yet to send, so what they sent on was what had just come, and "
    "their own x got lost: receive into another tensor"
)
EDITS = (
    Edit("the rank's own x is missing in its sum", {LOOP: LOOP.replace("x.clone()", "torch.zeros_like(x)", 1)}),
    Edit(OVERWRITTEN.format("odd"), overwriting("rank % 2")),
    Edit(OVERWRITTEN.format("even"), overwriting("rank % 2 == 0")),
    Edit("one step too few: the x of the right neighbour, which has the longest way, is missing",
         {LOOP: LOOP.replace("- 1", "- 2")}),
    Edit("one step too many: each rank's own x came round and counts twice",
         {LOOP: LOOP.replace("world_size - 1", "world_size if world_size > 1 else 0")}),
    Edit("the rank's own x counts twice, and that of its right neighbour, which comes last, is missing: what is added "
         "is the token that was sent, not the one that came", {ADD: "total += token\n        token = arriving"}),
    Edit("what is returned is the x of the right neighbour, the last token to come, and not the total",
         {f"{ADD}\n    return total": f"{ADD}\n    return token"}),
    Edit("the x of the rank opposite (on rank 0 of 4 that of rank 2) counts twice, as with tokens that go both ways "
         "and meet there", {ADD: f"{ADD} * (2 if 2 * (_ + 1) == world_size else 1)"}),
    Edit("x's count several times: the total so far was passed on; pass on what came last from the left",
         {SEND: SEND.replace("token", "total")}),
    Edit("the x of the left neighbour counts N - 1 times: all sent their own x in every step; pass on what came",
         {SEND: SEND.replace("token", "x")}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g = case.generator()
    return [{"x": 100 * torch.rand(2, 2, generator=g) + rank + 1} for rank in range(case.world_size)]


def on_rank(answer: Any, x: torch.Tensor) -> Any:
    total = answer(x)
    # One rank is enough to see it, and hides no other mistake: with more ranks the values tell what is wrong.
    return "x itself" if total is x and dist.get_world_size() == 1 else total


def expected(case: Case, given: Given) -> list[torch.Tensor]:
    return [total([i["x"] for i in given])] * case.world_size


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    mistakes=lambda case, given: [not_new("x", case.world_size)],
    example=[{"x": torch.tensor([float(rank + 1)])} for rank in range(3)],
    rules=[POINT_TO_POINT],
    stress=Stress(poison=True),
)
