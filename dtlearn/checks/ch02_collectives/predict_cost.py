"""ch02.predict_cost: seconds on a ring and on a tree, and where they are equal. No ranks are needed."""

from __future__ import annotations

import math
from typing import Any

from dtlearn.grading import Case, Check, Edit, Given

TIMES, CROSSOVER = ["ring", "tree"], ["crossover"]
NODE = {"num_ranks": 8, "nbytes": 5e8, "alpha": 3e-6, "beta": 4.5e11}
# `look`: what of the answer is compared.
CASES: dict[str, dict[str, Any]] = {
    "seconds for 8 GPUs in a node": {"numbers": NODE, "look": TIMES},
    "the crossover of 8 GPUs in a node": {
        "says": "the times are right, but the crossover is not the size at which they are equal: set ring and tree "
        "equal, and solve for nbytes",
        "numbers": NODE,
        "look": CROSSOVER,
    },
    "6 machines": {
        "says": "N need not be a power of two: log2(N) is rounded up, and a chunk need not be a whole number of bytes",
        "numbers": {"num_ranks": 6, "nbytes": 4e3, "alpha": 20e-6, "beta": 1.25e9},
        "look": TIMES + CROSSOVER,
    },
    "2 ranks": {
        "says": "with 2 ranks the ring is never the slower one: the crossover is 0.0",
        "numbers": {"num_ranks": 2, "nbytes": 1e4, "alpha": 1e-5, "beta": 1e10},
        "look": TIMES + CROSSOVER,
    },
}
CROSS = "crossover = (ring_steps - tree_steps) * alpha * beta / (tree_steps - ring_share)"
DEFINED = f"{CROSS} if tree_steps != ring_share else 0.0"  # for 2 ranks, too
RING, TREE = "ring_steps * alpha + ring_share * nbytes / beta", "tree_steps * (alpha + nbytes / beta)"
LAST = '"crossover": crossover'


def steps(says: str, other: str) -> list[Edit]:
    """Edits with other steps, or another share: in all three numbers, in the times only, and in the crossover only."""
    names = "ring_steps, tree_steps, ring_share"
    return [
        Edit(says, {CROSS: f"{other}; {DEFINED}"}),
        Edit(says, {CROSS: f"{CROSS}; {other}"}),
        Edit(f"the times are right, but the crossover is that of other times: {says}",
             {CROSS: f"right = {names}; {other}; {DEFINED}; {names} = right"}),
    ]  # fmt: skip


def scaled(factor: str) -> dict[str, str]:
    return {RING: f"({RING}) * {factor}", TREE: f"{TREE} * {factor}"}


UNIT = "ring and tree are {}: the times are in seconds, and alpha is in seconds already"
BITS = "the bytes are multiplied by 8 as if beta were bits per second; it is bytes per second"
MULTIPLIED = "the bytes are multiplied by beta; it is bytes per second: divide"
BARE = "the times are right, but the crossover leaves out that the ring takes time for its bytes too: set the two equal"
EDITS = (
    *steps("the ring has N - 1 steps, those of the reduce-scatter; the all-gather takes N - 1 more",
           "ring_steps = num_ranks - 1; ring_share = ring_steps / num_ranks"),
    *steps("the tree has log2(N) steps, those of the broadcast; the reduction before it takes as many",
           "tree_steps = math.ceil(math.log2(num_ranks))"),
    Edit("ring and tree are half of the right ones: on the ring an all-reduce is two journeys of N - 1 steps, on the "
         "tree one up and one down", scaled("0.5")),
    *steps("log2(N) is not rounded up: there is no part of a step", "tree_steps = 2 * math.log2(num_ranks)"),
    *steps("log2(N) is rounded down: it has to be rounded up", "tree_steps = 2 * math.floor(math.log2(num_ranks))"),
    *steps("the tree of 8 ranks has 2 x 4 steps; log2(8) is 3, and bit_length() counts one more for a power of two",
           "tree_steps = 2 * num_ranks.bit_length()"),
    *steps("the ring has 2 N steps; each half has N - 1", "ring_steps = 2 * num_ranks; ring_share = 2.0"),
    *steps("the ring sends the tensor twice, 2 nbytes / beta; its 2 (N - 1) steps of 1/N are 2 (N - 1)/N of it",
           "ring_share = 2.0"),
    *steps("each step of the ring sends the whole tensor; a step sends one chunk, 1/N of it",
           "ring_share = float(ring_steps)"),
    Edit("the bytes of the tree count once; in each of its steps the whole tensor is sent",
         {TREE: "tree_steps * alpha + nbytes / beta"}),
    Edit("the chunk of the ring is rounded down to whole bytes (//?); divide with /",
         {RING: "ring_steps * (alpha + nbytes // num_ranks / beta)"}),
    *(Edit("alpha counts once; each step is a message of its own and takes it again",
           {RING: RING.replace("ring_steps", "1"), TREE: "alpha + tree_steps * nbytes / beta", **also})
      for also in ({}, {LAST: '"crossover": 0.0'})),
    *(Edit(UNIT.format(unit), {**scaled(factor), **also})
      for factor, unit in (("1e3", "in milliseconds"), ("1e6", "in microseconds"), ("1e9", "in nanoseconds"),
                           ("1e-6", "divided by a million"))
      for also in ({}, {LAST: f"{LAST} * {factor}"})),
    *(Edit(BITS, {RING: RING.replace("nbytes", "8 * nbytes"), TREE: TREE.replace("nbytes", "8 * nbytes"), **also})
      for also in ({}, {LAST: f"{LAST} / 8"})),
    *(Edit(MULTIPLIED, {RING: RING.replace("/ beta", "* beta"), TREE: TREE.replace("/ beta", "* beta"), **also})
      for also in ({}, {LAST: f"{LAST} / beta / beta"})),
    Edit("the times are right, but the crossover is 0, as if the ring were never the slower one: for few bytes its "
         "2 (N - 1) steps take longer than those of the tree", {LAST: '"crossover": 0.0'}),
    Edit("the times are right, but the crossover has the wrong sign", {LAST: '"crossover": -crossover'}),
    *(Edit(BARE, {LAST: f'"crossover": (ring_steps - tree_steps) * alpha * beta{by}'}) for by in ("", " / tree_steps")),
    Edit("the times are right, but the crossover is upside down: multiply alpha by beta to get bytes",
         {LAST: f"{LAST} / beta / beta"}),
    Edit("the crossover of 2 ranks is infinite, but there the ring is never the slower one: 0.0 is expected",
         {LAST: f"{LAST} or math.inf"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    return [{**case.params["numbers"], "look": case.params["look"]}] * case.world_size


def on_rank(answer: Any, num_ranks: int, nbytes: float, alpha: float, beta: float, look: Any) -> Any:
    costs = answer(num_ranks, nbytes, alpha, beta)
    left_out = {"ring", "tree", "crossover"} - {*look}
    return {k: v for k, v in costs.items() if k not in left_out} if isinstance(costs, dict) else costs


def expected(case: Case, given: Given) -> list[dict[str, float]]:
    n, nbytes, alpha, beta = case.params["numbers"].values()
    ring, tree = (2 * (n - 1), 1 / n), (2 * math.ceil(math.log2(n)), 1.0)  # steps, and what part of the tensor is sent
    both = zip(TIMES, (ring, tree), strict=True)
    costs = {name: count * (alpha + part * nbytes / beta) for name, (count, part) in both}
    costs["crossover"] = (ring[0] - tree[0]) * alpha * beta / (tree[0] - ring[0] / n)
    return [{name: costs[name] for name in case.params["look"]}] * case.world_size


# The crossover of a formula that is upside down is tiny, and not 0: so the absolute tolerance is tinier still.
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"num_ranks": 4, "nbytes": 1000.0, "alpha": 1e-6, "beta": 1e9, "look": TIMES + CROSSOVER}],
    rtol=1e-6,
    atol=1e-18,
)
