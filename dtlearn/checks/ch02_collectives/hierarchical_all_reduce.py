"""ch02.hierarchical_all_reduce: nodes of several sizes, one node, nodes of one rank; bytes between nodes count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, Mistake, Stress, compare
from dtlearn.runtime.record.record import Record

from ._between_nodes import across_too_early, most_bytes_between
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
    for step, what, where in (("ag", "chunk", "inside the node"), ("AG", "piece", "across the nodes")):
        text = f"the all-gather {where} begins with another {what} than the reduce-scatter there completed on the rank"
        for first, shift in ((-1, 1), (-1, -1), (0, 1), (0, -1)):
            played = _played(xs, size, "rs, RS, AG, ag", first=first, shifted=step, shift=shift)
            found.append(Mistake("DTL-VALUE-WRONG-CHUNK", text, played))
    if xs[0].numel() % n == 0:  # pieces of one size go into each other's places
        text = "across the nodes the pieces are counted from the global rank; in a ring of some ranks count from the "
        text += "rank's index among them (ranks.index(rank))"
        played = _played(xs, size, "rs, RS, AG, ag", global_ranks=True)
        found.append(Mistake("DTL-VALUE-WRONG-CHUNK", text, played))
    for parts in {size, n}:
        end = xs[0].numel() // parts * parts
        text = f"the last {xs[0].numel() - end} of {xs[0].numel()} elements are not the sum: {parts} chunks of "
        text += f"{end // parts} do not cover the tensor"
        found += [
            Mistake("DTL-VALUE-TAIL", text, [torch.cat([everything[:end], rest[r][end:]]) for r in ranks])
            for rest in (xs, [inside[r // size] for r in ranks])
            if end < xs[0].numel()
        ]
    shape = given[0]["x"].shape
    if size == 1:
        text = f"{found[0].text}. With one rank in a node, what crosses the nodes is everything: is that left out?"
        found[0] = replace(found[0], text=text)
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
    shifted: str = "",
    shift: int = 0,
    global_ranks: bool = False,
) -> list[torch.Tensor]:
    """What the ranks hold after these steps.

    Args:
        xs, size: what they had, and the ranks of a node.
        steps: see `_OTHER_STEPS`.
        single: a piece is one element, and the rest of a chunk is left.
        first: the reduce-scatter inside a node begins with chunk place + first; it completes the one after.
        chunk_of: of a place, the chunk that its ranks take across the nodes; None: the complete one.
        shifted, shift: the step that begins so many chunks or pieces further.
        global_ranks: across the nodes pieces are counted from the global rank, not from its index in the ring.
    """
    ranks, held = range(len(xs)), [list(x.tensor_split(size)) for x in xs]
    num_nodes = len(xs) // size
    chunk_of = chunk_of or (lambda place: (place + first + 1) % size)
    for step in steps.split(", "):
        adds, inside, further = step.lower() == "rs", step.islower(), shift if step == shifted else 0
        for group in range(num_nodes if inside else size):
            if inside:
                begin = (first if adds else first + 1) + further
                held = travel(held, range(group * size, (group + 1) * size), size - 1, begin, adds)
                continue
            chunk = chunk_of(group)
            whole = [held[r][chunk] for r in ranks]
            cut = [list(w[:num_nodes].split(1) if single else w.tensor_split(num_nodes)) for w in whole]
            if len({len(pieces) for pieces in cut} | {num_nodes}) > 1:
                break  # a chunk of fewer elements: such an answer raises
            place = range(group, len(xs), size)
            begin = (-1 if adds else 0) + further
            moved = travel(cut, place, num_nodes - 1, begin, adds, place if global_ranks else None)
            for r in place:
                held[r][chunk] = torch.cat([*moved[r], whole[r][num_nodes:]] if single else moved[r])
    return [torch.cat(chunks) for chunks in held]


def payload(case: Case, given: Given) -> int:
    return padded_bytes(given[0]["x"], case.world_size)


def _between(case: Case, given: Given) -> float:
    num_nodes = case.world_size // _node_size(case)
    return 2 * (num_nodes - 1) / num_nodes * payload(case, given)


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Compares. How large the nodes are belongs to what is wrong."""
    found = compare(_VALUES, case, given, expected(case, given), got)
    return found and replace(found, text=f"{found.text} ({_sizes(case)})")


def why(case: Case, given: Given, record: Record) -> str:
    """Of a run that did not end well: a message that crosses too early, or else what the cuts have to be."""
    size, num_nodes = _node_size(case), case.world_size // _node_size(case)
    few = f" ({size}; if x is cut into {num_nodes}, the number of nodes, an index is out of range)"
    few = few if num_nodes < size and not any(e.sends for e in record) else ""
    pieces = f"{_sizes(case)}; x has a chunk for each rank of a node{few}, and a chunk has a piece for each node"
    return across_too_early(case.world_size, size, record) or pieces


def _sizes(case: Case) -> str:
    size, num_nodes = _node_size(case), case.world_size // _node_size(case)
    ranks, nodes = f"{size} rank{'s' * (size > 1)}", f"{num_nodes} node{'s' * (num_nodes > 1)}"
    return f"here {nodes} of {ranks}"


_VALUES = Check(
    on_rank,
    inputs,
    expected,
    cases=_CASES,
    mistakes=mistakes,
    factors=lambda case: {_node_size(case): "the number of ranks in a node"},
    rules=[POINT_TO_POINT, most_bytes_between(_node_size, _between)],
    payload=payload,
    may_change_inputs=True,
    why=why,
    stress=Stress(poison=True),
)
CHECK = replace(_VALUES, expected=None, verify=verify)
