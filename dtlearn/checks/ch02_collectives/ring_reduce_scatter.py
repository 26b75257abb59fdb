"""ch02.ring_reduce_scatter: parts of equal and of different sizes; rank r gets the sum of part r."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, Stress

from ..own_work import not_new
from ..rounds import beside_the_ring, in_a_ring
from ._messages import POINT_TO_POINT, chunk_budget, no_narrower, total

# The first case has four ranks: with two both neighbours are one rank, and many mistakes are alike.
# `shapes`: of the parts.
CASES: dict[str, dict[str, Any]] = {
    "four ranks": {"sizes": (4,)},
    "fewer ranks": {"sizes": (1, 2, 3)},
    "parts of different sizes": {
        "says": "the parts may have different sizes: a message has the size of the part that it is about",
        "shapes": [[3], [1], [2], [2]],
    },
    "parts of different shapes, one empty": {
        "says": "a part may have several dimensions, or no element: the sum has the shape of its part",
        "shapes": [[2, 2], [0], [0], [3]],
        "sizes": (2, 3, 4),
    },
    "numbers of 64 bits": {"says": "the sum has the dtype of the parts", "dtype": torch.float64},
}
BEGIN, MINE, RETURN = "parts[(rank - 1) % world_size].clone()", "parts[(rank - 2 - step)", "return partial"
LOOP, ADD = "range(world_size - 1)", "partial = arriving + mine"
RANKS = "rank, world_size = dist.get_rank(), dist.get_world_size()"
EDITS = (
    Edit("rank 0 has the sum of part 1, which belongs on rank 1, and so on: a part that begins on rank c + 1 ends on "
         "rank c, so rank 0 has to send the last part first; here it began with part 0, or kept another part than the "
         "last", {BEGIN: "parts[rank].clone()", MINE: "parts[(rank - 1 - step)"}),
    Edit("rank 1 has the sum of part 0, which belongs on rank 0, and so on: a part that begins on rank c + 1 ends on "
         "rank c, so rank 1 has to send part 0 first; here it began with the last part, or kept another part than the "
         "last", {BEGIN: "parts[(rank - 2) % world_size].clone()", MINE: "parts[(rank - 3 - step)"}),
    Edit("rank 0 returns rank 1's part 0, and so on: the parts travelled all the way, and no rank added its own "
         "summand to what came by", {ADD: "partial = arriving"}),
    Edit("what rank r returned is its own part r, with no summand of another rank: the sum of part r ends on another "
         "rank, or in another tensor (if rank 0 sends part 0 first, it ends with the sum of part 1)",
         {RETURN: "return parts[rank].clone()"}),
    Edit("one step too few: rank 0 has part 1, on its way to rank 1, whose summand is missing",
         {LOOP: "range(world_size - 2)"}),
    Edit("one step too many: a summand counts twice", {LOOP: "range(world_size if world_size > 1 else 0)"}),
    Edit("the summand of the right neighbour is missing, the one that its part begins with",
         {BEGIN: "torch.zeros_like(parts[(rank - 1) % world_size])"}),
    Edit("the rank's own summand is missing, the one that is added last",
         {ADD: f"{ADD} if step < world_size - 2 else arriving"}),
    Edit("every rank added the part that it had just sent on (rank 0: the last one), and not the same part as the "
         "partial sum that came (rank 0: the last but one)",
         {ADD: "sent = parts[(rank - 1 - step) % world_size]\n        "
               "partial = arriving + (sent if sent.shape == mine.shape else mine)"}),
    Edit("the parts were put together and cut into N equal chunks; the parts need not be equal: cut at their borders "
         "(split([part.numel() for part in parts])), and give the sum the shape of its part",
         {RANKS: f"{RANKS}\n    parts = torch.cat([part.reshape(-1) for part in parts]).tensor_split(world_size)"}),
    Edit("the sum has lost its shape: it has that of its part", {RETURN: "return partial.flatten()"}),
    Edit("the sum has another dtype: it has that of the parts", {RETURN: "return partial.float()"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, n, dtype = case.generator(), case.world_size, case.params.get("dtype", torch.float32)
    shapes = case.params.get("shapes", [[2]] * 4)[:n]
    return [
        {"parts": [(100 * torch.rand(s, generator=g) + 100 * rank + 10 * c).to(dtype) for c, s in enumerate(shapes)]}
        for rank in range(n)
    ]


def on_rank(answer: Any, parts: list[torch.Tensor]) -> Any:
    own = answer(parts)
    # One rank is enough to see it, and hides no other mistake: with more ranks the values tell what is wrong.
    return "a part itself" if len(parts) == 1 and own is parts[0] else own


def expected(case: Case, given: Given) -> list[torch.Tensor]:
    return [total([i["parts"][part] for i in given]) for part in range(case.world_size)]


def _bytes(given: Given) -> list[int]:
    """The size of each part in bytes."""
    return [int(p.numel() * p.element_size()) for p in given[0]["parts"]]


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    mistakes=lambda case, given: [not_new("part", case.world_size)],
    example=[{"parts": [torch.tensor([1.0, 2.0]) * k, torch.tensor([3.0]) * k]} for k in (1, 10)],
    rules=[
        POINT_TO_POINT,
        chunk_budget(
            lambda case, given: (case.world_size - 1) * max(_bytes(given)), whole=lambda case, given: sum(_bytes(given))
        ),
        in_a_ring(),
        no_narrower(lambda given: given[0]["parts"][0].dtype),
    ],
    payload=lambda case, given: case.world_size * max(_bytes(given)),
    why=beside_the_ring,
    stress=Stress(poison=True),
)
