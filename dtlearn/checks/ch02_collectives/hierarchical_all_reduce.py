"""ch02.hierarchical_all_reduce: nodes of several sizes, one node, nodes of one rank; bytes between nodes count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dtlearn.grading import Case, Check, Given, Mistake, Stress

from ._between_nodes import most_bytes_between
from ._messages import POINT_TO_POINT, Held, not_in_place, padded_bytes, total, travel

# Ranks per node by world size, and elements; in so many rows.
_CASES: dict[str, dict[str, Any]] = {
    "nodes of two or three": {"ranks_per_node": {1: 1, 2: 2, 4: 2, 6: 3}, "numel": 24, "rows": 4},
    "an odd number of elements": {"ranks_per_node": {1: 1, 2: 1, 4: 4, 6: 2}, "numel": 7},
    "a long tensor": {"ranks_per_node": {1: 1, 2: 1, 4: 2, 6: 2}, "numel": 300_001},
}


def inputs(case: Case) -> Given:
    g, numel = case.generator(), case.params["numel"]
    shape = [case.params["rows"], -1] if "rows" in case.params else [-1]
    return [
        {"x": (100 * torch.rand(numel, generator=g) + rank).view(shape), "ranks_per_node": _node_size(case)}
        for rank in range(case.world_size)
    ]


def on_rank(answer: Any, x: torch.Tensor, ranks_per_node: int) -> Any:
    answer(x, ranks_per_node)
    return x


def expected(case: Case, given: Given) -> list[torch.Tensor]:
    return [total([i["x"] for i in given])] * case.world_size


def _node_size(case: Case) -> int:
    return int(case.params["ranks_per_node"][case.world_size])


def mistakes(case: Case, given: Given) -> list[Mistake]:
    n, size = case.world_size, _node_size(case)
    if n == 1:
        return []
    xs, ranks = [i["x"].view(-1) for i in given], range(n)
    nodes = [range(first, first + size) for first in range(0, n, size)]
    places = [range(place, n, size) for place in range(size)]
    inside = [total([xs[r] for r in node]) for node in nodes]
    across = [total([xs[r] for r in place]) for place in places]
    everything = total(xs)
    found = [
        not_in_place(xs),
        Mistake(
            "DTL-VALUE-NODE",
            "every rank has the sum over its own node only: nothing went to the other nodes",
            [inside[r // size] for r in ranks],
        ),
        Mistake(
            "DTL-VALUE-PLACE",
            "every rank has the sum over the ranks of its own place in each node only: nothing was added inside a node",
            [across[r % size] for r in ranks],
        ),
        Mistake(
            "DTL-VALUE-LEADERS",
            "only the first rank of each node has the sum over all; the others have their node's: tell them",
            [everything if r % size == 0 else inside[r // size] for r in ranks],
        ),
    ]
    for first in (-1, 0):
        held: Held = [list(x.tensor_split(size)) for x in xs]
        for node in nodes:
            held = travel(held, node, size - 1, first, adds=True)
        for rank in ranks:
            own = (rank % size + first + 1) % size
            held[rank][own] = everything.tensor_split(size)[own]
        found.append(
            Mistake(
                "DTL-VALUE-ONE-CHUNK",
                "only one chunk is the sum over all on each rank: the all-gather inside the node is missing",
                [torch.cat(chunks) for chunks in held],
            )
        )
    found += [Mistake(code, text, _played(xs, size, steps)) for code, text, steps in _OTHER_STEPS]
    for first, which in (
        (-1, "chunk 0"),
        (-1, "the next one"),
        (0, "chunk 0"),
        (0, "its own place's"),
    ):
        text = f"across the nodes every rank takes {which}; the reduce-scatter inside its node completed chunk "
        text += f"{'place' if first else 'place + 1'} on it, where place is its number in the node"
        chunk_of = (lambda place: 0) if which == "chunk 0" else (lambda place, first=first: (place - first) % size)
        found.append(
            Mistake("DTL-VALUE-WRONG-CHUNK", text, _played(xs, size, "rs, RS, AG, ag", False, first, chunk_of))
        )
    found.append(
        Mistake(
            "DTL-VALUE-PIECES",
            f"only the first {n // size} elements of each chunk are right: the chunk itself was handed over as if its "
            f"elements were the {n // size} pieces; cut it with tensor_split",
            _played(xs, size, "rs, RS, AG, ag", single=True),
        )
    )
    shape = given[0]["x"].shape
    return [Mistake(m.code, m.text, [value.view(shape) for value in m.values]) for m in found]


# Steps inside the node (small letters) and across nodes (capitals) of answers that leave one out or swap two.
_OTHER_STEPS = [
    (
        "DTL-VALUE-ONE-PIECE",
        "only one piece of each chunk is the sum over all: the all-gather across the nodes is missing",
        "rs, RS, ag",
    ),
    (
        "DTL-VALUE-ONE-PIECE",
        "the last two steps are in the wrong order: the all-gather inside the node handed chunks around before the "
        "all-gather across the nodes had completed them",
        "rs, RS, ag, AG",
    ),
    (
        "DTL-VALUE-STEP",
        "the first step, the reduce-scatter inside the node, is missing: each chunk has the summands of one rank per "
        "node only",
        "RS, AG, ag",
    ),
    (
        "DTL-VALUE-STEP",
        "the reduce-scatter across the nodes is missing: its all-gather handed around pieces of the nodes' own sums",
        "rs, AG, ag",
    ),
    (
        "DTL-VALUE-STEP",
        "the steps across the nodes came before the reduce-scatter inside the node: it has to be the first, so that "
        "what crosses is the node's sum",
        "RS, AG, rs, ag",
    ),
]


def _played(
    xs: list[torch.Tensor],
    size: int,
    steps: str,
    single: bool = False,
    first: int = -1,
    chunk_of: Callable[[int], int] | None = None,
) -> list[torch.Tensor]:
    """What the ranks hold after these steps.

    Args:
        xs, size: what they had, and the ranks of a node.
        steps: see `_OTHER_STEPS`.
        single: a piece is one element, and the rest of a chunk is left.
        first: the reduce-scatter inside a node begins with chunk place + first; it completes the one after.
        chunk_of: of a place, the chunk that its ranks take across the nodes; None: the complete one.
    """
    ranks, held = range(len(xs)), [list(x.tensor_split(size)) for x in xs]
    num_nodes = len(xs) // size
    chunk_of = chunk_of or (lambda place: (place + first + 1) % size)
    for step in steps.split(", "):
        adds, inside = step.lower() == "rs", step.islower()
        for group in range(num_nodes if inside else size):
            if inside:
                begin = first if adds else first + 1
                held = travel(held, range(group * size, (group + 1) * size), size - 1, begin, adds)
                continue
            chunk = chunk_of(group)
            whole = [held[r][chunk] for r in ranks]
            cut = [list(w[:num_nodes].split(1) if single else w.tensor_split(num_nodes)) for w in whole]
            if len({len(pieces) for pieces in cut} | {num_nodes}) > 1:
                break  # a chunk of fewer elements: such an answer raises
            place = range(group, len(xs), size)
            moved = travel(cut, place, num_nodes - 1, -1 if adds else 0, adds)
            for r in place:
                held[r][chunk] = torch.cat([*moved[r], whole[r][num_nodes:]] if single else moved[r])
    return [torch.cat(chunks) for chunks in held]


def payload(case: Case, given: Given) -> int:
    return padded_bytes(given[0]["x"], case.world_size)


def _between(case: Case, given: Given) -> float:
    num_nodes = case.world_size // _node_size(case)
    return 2 * (num_nodes - 1) / num_nodes * payload(case, given)


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=_CASES,
    mistakes=mistakes,
    factors=lambda case: {_node_size(case): "the number of ranks in a node"},
    rules=[POINT_TO_POINT, most_bytes_between(_node_size, _between)],
    payload=payload,
    may_change_inputs=True,
    stress=Stress(poison=True),
)
