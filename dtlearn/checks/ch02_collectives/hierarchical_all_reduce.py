"""ch02.hierarchical_all_reduce: nodes of several sizes, one node, nodes of one rank; bytes between nodes count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, Stress
from dtlearn.runtime.record.record import Record

from ._between_nodes import across_too_early, most_bytes_between
from ._messages import NOT_IN_PLACE, POINT_TO_POINT, padded_bytes, total

# `nodes`: by world size, the ranks of a node. The first case has rings of three and of two: many mistakes are alike
# where all rings have two ranks.
CASES: dict[str, dict[str, Any]] = {
    "two nodes of three ranks": {"nodes": {6: 3}, "shape": (4, 3)},
    "three nodes of two ranks": {
        "says": "there may be more nodes than ranks in a node: x is cut into a chunk for each rank of a node, and a "
        "chunk into a piece for each node",
        "nodes": {6: 2},
    },
    "one node": {
        "says": "there may be one node: nothing crosses, and the sum over the node is the sum over all",
        "nodes": {1: 1, 2: 2, 4: 4},
    },
    "nodes of one rank": {
        "says": "a node may have one rank: all that is added up crosses the nodes",
        "nodes": {2: 1, 4: 1},
    },
    "a number of elements that nothing divides": {
        "says": "x has any number of elements: tensor_split(n) gives n chunks that cover it",
        "nodes": {4: 2, 6: 2},
        "shape": (7,),
    },
}
for case in CASES.values():
    case["sizes"] = tuple(case["nodes"])
CHUNKS, PIECES = "chunks = x.view(-1).tensor_split(len(node))", "pieces = chunks[place].tensor_split("
# The four steps: the reduce-scatter inside the node, that across the nodes, the all-gather there, and inside.
RS, RS_ACROSS = "around(chunks, node, -1, add=True)", "around(pieces, same_place, -1, add=True)"
AG_ACROSS, AG = "around(pieces, same_place, 0, add=False)", "around(chunks, node, 0, add=False)"
COMPLETE = (
    "what the reduce-scatter inside its node completes on a rank is chunk place, or chunk place + 1 if chunk place was "
    "sent first, where place is its number in the node"
)
BEGINS = "the all-gather {} begins with another {} than the reduce-scatter there completed on the rank"
TAIL = "the last elements of x are not the sum: {0} chunks of numel // {0} elements do not cover it"


def steps(*done: str) -> dict[str, str]:
    """An edit that puts these steps in place of the four."""
    return {"\n    ".join((RS, RS_ACROSS, AG_ACROSS, AG)): "\n    ".join(done)}


def edits(turn: Mapping[str, str]) -> tuple[Edit, ...]:
    """The mistakes whose values tell which chunk is complete on a rank after the first step."""
    return (
        Edit("only one chunk is the sum over all on each rank: the all-gather inside the node is missing",
             {AG: "pass", **turn}),
        Edit("only one piece of each chunk is the sum over all: the all-gather across the nodes is missing",
             {AG_ACROSS: "pass", **turn}),
        Edit("the reduce-scatter across the nodes is missing: its all-gather handed around pieces of the nodes' own "
             "sums", {RS_ACROSS: "pass", **turn}),
        Edit(f"across the nodes every rank takes chunk 0; {COMPLETE}",
             {PIECES: PIECES.replace("place", "-1" if turn else "0"), **turn}),
        Edit(BEGINS.format("inside the node", "chunk"), {AG: AG.replace("0", "1"), **turn}),
        Edit(BEGINS.format("inside the node", "chunk"), {AG: AG.replace("0", "-1"), **turn}),
    )  # fmt: skip


EDITS = (
    Edit("nothing is added up where all ranks are in one node: their sum is expected there, too",
         {CHUNKS: f"if len(node) == world_size:\n        return\n    {CHUNKS}"}),
    Edit("nothing is added up where each node has one rank: all that is added up crosses the nodes there",
         {CHUNKS: f"if len(node) == 1:\n        return\n    {CHUNKS}"}),
    Edit(NOT_IN_PLACE, {CHUNKS: CHUNKS.replace("x", "x.clone()")}),
    Edit("every rank has the sum over its own node only: nothing went to the other nodes, or what did was another "
         f"chunk than the complete one, and was overwritten; {COMPLETE}", steps(RS, AG)),
    Edit("every rank has the sum over the ranks of its own place in each node only: nothing was added inside a node",
         {PIECES: "pieces = x.view(-1).tensor_split(", **steps(RS_ACROSS, AG_ACROSS)}),
    Edit("only the first rank of each node has the sum over all; the others have their node's: tell them",
         {PIECES: "pieces = x.view(-1).tensor_split(",
          **steps(RS, AG, f"if place == 0:\n        {RS_ACROSS}\n        {AG_ACROSS}")}),
    *edits({}),
    *edits({CHUNKS: f"{CHUNKS}; chunks = chunks[1:] + chunks[:1]"}),
    Edit("the last two steps are in the wrong order: the all-gather inside the node handed chunks around before the "
         "all-gather across the nodes had completed them", steps(RS, RS_ACROSS, AG, AG_ACROSS)),
    Edit("the first step, the reduce-scatter inside the node, is missing: each chunk has the summands of one rank per "
         "node only", steps(RS_ACROSS, AG_ACROSS, AG)),
    Edit("the steps across the nodes came before the reduce-scatter inside the node: it has to be the first, so that "
         "what crosses is the node's sum", steps(RS_ACROSS, AG_ACROSS, RS, AG)),
    Edit("only the first elements of each chunk are right: the chunk itself was handed over as if its elements were "
         "the pieces; cut it with tensor_split", {f"{PIECES}len(same_place))": "pieces = chunks[place].split(1)"}),
    *(Edit(BEGINS.format("across the nodes", "piece"), {AG_ACROSS: AG_ACROSS.replace("0", first)})
      for first in ("1", "-1")),
    Edit("across the nodes the pieces are counted from the global rank; in a ring of some ranks count from the rank's "
         "index among them (ranks.index(rank))",
         {"size, here = len(ranks), ranks.index(rank)": "size, own = len(ranks), ranks.index(rank)\n        "
          "here = rank if len({chunk.numel() for chunk in chunks}) == 1 else own",
          "ranks[(here + 1) % size]": "ranks[(own + 1) % size]",
          "ranks[(here - 1) % size]": "ranks[(own - 1) % size]"}),
    Edit(TAIL.format("L"), {CHUNKS: CHUNKS.replace(".t", "[: x.numel() // len(node) * len(node)].t")}),
    Edit(TAIL.format("N"), {CHUNKS: CHUNKS.replace(".t", "[: x.numel() // world_size * world_size].t")}),
    Edit("the last elements of a chunk are not the sum: M pieces of numel // M elements do not cover it",
         {PIECES: "m = len(same_place); pieces = chunks[place][: chunks[place].numel() // m * m].tensor_split("}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, shape = case.generator(), case.params.get("shape", (12,))
    return [
        {"x": 100 * torch.rand(shape, generator=g) + rank, "ranks_per_node": _node_size(case)}
        for rank in range(case.world_size)
    ]


def on_rank(answer: Any, x: torch.Tensor, ranks_per_node: int) -> Any:
    answer(x, ranks_per_node)
    return x


def expected(case: Case, given: Given) -> list[torch.Tensor]:
    return [total([i["x"] for i in given])] * case.world_size


def _node_size(case: Case) -> int:
    return int(case.params["nodes"][case.world_size])


def payload(case: Case, given: Given) -> int:
    return padded_bytes(given[0]["x"], case.world_size)


def _between(case: Case, given: Given) -> float:
    num_nodes = case.world_size // _node_size(case)
    return 2 * (num_nodes - 1) / num_nodes * payload(case, given)


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that failed: a message that crosses nodes too early, or else the sizes of the pieces."""
    size, num_nodes = _node_size(case), case.world_size // _node_size(case)
    few = f" ({size}; if x is cut into {num_nodes}, the number of nodes, an index is out of range)"
    few = few if num_nodes < size and not any(e.sends for e in record) else ""
    pieces = f"{_sizes(case)}; x has a chunk for each rank of a node{few}, and a chunk has a piece for each node"
    return across_too_early(case.world_size, size, record) or pieces


def _sizes(case: Case) -> str:
    size, num_nodes = _node_size(case), case.world_size // _node_size(case)
    ranks, nodes = f"{size} rank{'s' * (size > 1)}", f"{num_nodes} node{'s' * (num_nodes > 1)}"
    return f"here {nodes} of {ranks}"


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"x": torch.tensor([1.0, 2.0]) * 10**rank, "ranks_per_node": 2} for rank in range(4)],
    factors=lambda case: {_node_size(case): "the number of ranks in a node"},
    rules=[POINT_TO_POINT, most_bytes_between(_node_size, _between)],
    payload=payload,
    may_change_inputs=True,
    why=why,
    stress=Stress(poison=True),
)
