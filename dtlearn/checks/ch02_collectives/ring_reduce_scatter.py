"""ch02.ring_reduce_scatter: parts of equal and of different sizes; rank r gets the sum of part r."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Given, Mistake, Stress

from ..own_work import not_new
from ..rounds import beside_the_ring, in_a_ring
from ._messages import POINT_TO_POINT, chunk_budget, no_narrower, total, travel

# Shape of part c: that at c % 4.
_SHAPES: dict[str, list[list[int]]] = {
    "equal parts": [[3], [3], [3], [3]],
    "parts of different shapes, one empty": [[2, 2], [5], [0], [1]],
    "long parts": [[300_000], [300_001], [300_000], [300_000]],
}


def inputs(case: Case) -> Given:
    g, n = case.generator(), case.world_size
    shapes = [case.params["shapes"][c % 4] for c in range(n)]
    dtype = torch.float64 if case.name == "equal parts" else torch.float32
    return [
        {"parts": [(100 * torch.rand(s, generator=g) + 100 * rank + 10 * c).to(dtype) for c, s in enumerate(shapes)]}
        for rank in range(n)
    ]


def on_rank(answer: Any, parts: list[torch.Tensor]) -> Any:
    own = answer(parts)
    return "a part itself" if any(own is part for part in parts) else own


def expected(case: Case, given: Given) -> list[torch.Tensor]:
    return [_sum(given, part) for part in range(case.world_size)]


def _sum(given: Given, part: int, without: int | None = None) -> torch.Tensor:
    return total([i["parts"][part] for rank, i in enumerate(given) if rank != without])


def mistakes(case: Case, given: Given) -> list[Mistake]:
    n = case.world_size
    if n == 1:
        return [not_new("part", n)]
    ranks, right = range(n), expected(case, given)
    own = [given[r]["parts"][r] for r in ranks]
    glued = Mistake(
        "DTL-VALUE-BORDERS",
        f"the parts were put together and cut into {n} equal chunks; the parts need not be equal: cut at their borders "
        "(split([part.numel() for part in parts])), and give the sum the shape of its part",
        torch.cat([part.view(-1) for part in right]).tensor_split(n),
    )
    missing = "one step too few"
    found = [
        glued,
        *(
            Mistake(
                "DTL-VALUE-PERMUTED",
                f"rank 0 has the sum of part {shift}, which belongs on rank {shift}, and so on: a part that begins on "
                f"rank c + 1 ends on rank c, so rank 0 has to send part {n - 1} first; here it began with part "
                f"{shift - 1}, or kept another part than the last",
                [right[(r + shift) % n] for r in ranks],
            )
            for shift in range(1, n)
        ),
    ]
    found += [
        Mistake(
            "DTL-VALUE-NO-SUM",
            "rank 0 returns rank 1's part 0, and so on: the parts travelled all the way, and no rank added its own "
            "summand to what came by",
            [given[(r + 1) % n]["parts"][r] for r in ranks],
        ),
        Mistake("DTL-VALUE-OWN-PART", "every rank returned its own part: no summand of another rank is in it", own),
        Mistake(
            "DTL-VALUE-MISSING",
            f"{missing}: rank 0 has part 1, on its way to rank 1, whose summand is missing",
            [_sum(given, (r + 1) % n, without=(r + 1) % n) for r in ranks],
        ),
    ]
    if all(p.shape == given[0]["parts"][0].shape for p in given[0]["parts"]):
        begun = [given[(r + 1) % n]["parts"] for r in ranks]
        summed = "what arrived was added to what was just sent; add parts[...] to what arrived: "
        found.append(
            Mistake(
                "DTL-VALUE-WRONG-PART",
                f"{summed if n == 2 else ''}every rank added the part that it had just sent on (rank 0: part {n - 1}), "
                f"not the same part as the partial sum that came (rank 0: part {(n - 2) % n})",
                [begun[r][r] + _sum(given, (r + 1) % n, without=(r + 1) % n) for r in ranks],
            )
        )
    for away in range(1, n):
        text = f"a summand is missing: that of rank {away} on rank 0, of rank {(1 + away) % n} on rank 1, ..."
        values = [_sum(given, r, without=(r + away) % n) for r in ranks]
        found.append(Mistake("DTL-VALUE-MISSING", text, values))
    whole = [i["parts"] for i in given]
    for steps, text in ((n - 2, missing), (n, "one step too many: a summand counts twice")):
        for first in (0, -1):
            held = travel(whole, ranks, steps, first, adds=True)
            for shift in (0, 1, -1):
                values = [held[r][(r + shift) % n] for r in ranks]
                code = "DTL-VALUE-MISSING" if steps < n else "DTL-VALUE-TWICE"
                found.append(Mistake(code, text, values))
    return found


def _largest(case: Case, given: Given) -> int:
    """Bytes of the largest part."""
    return max(int(p.numel() * p.element_size()) for p in given[0]["parts"])


def _all(case: Case, given: Given) -> int:
    return sum(int(p.numel() * p.element_size()) for p in given[0]["parts"])


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases={name: {"shapes": shapes} for name, shapes in _SHAPES.items()},
    mistakes=mistakes,
    rules=[
        POINT_TO_POINT,
        chunk_budget(lambda case, given: (case.world_size - 1) * _largest(case, given), whole=_all),
        in_a_ring(),
        no_narrower(lambda given: given[0]["parts"][0].dtype),
    ],
    payload=lambda case, given: case.world_size * _largest(case, given),
    why=beside_the_ring,
    stress=Stress(poison=True),
)
