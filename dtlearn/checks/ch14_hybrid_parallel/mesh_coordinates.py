"""ch14.mesh_coordinates: a mesh with two axes; then three, another order, rings, axes of one rank."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Finding, Given, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP

# Per case: the sizes of the axes, the steps, and whether steps over the end of an axis are among them.
CASES: dict[str, dict[str, Any]] = {
    "two axes": {"mesh": {"tp": 2, "pp": 3}, "steps": [1], "ring": False},
    "three axes": {
        "says": "the stride of an axis is the product of the sizes of all axes further in",
        "mesh": {"tp": 2, "pp": 3, "dp": 4},
        "steps": [1],
        "ring": False,
    },
    "another order": {
        "says": "the first key of sizes is the innermost axis, whatever its name is",
        "mesh": {"dp": 2, "tp": 3},
        "steps": [1],
        "ring": False,
    },
    "axes with other names": {
        "says": "a mesh may have axes of any name, and any number of them",
        "mesh": {"tp": 2, "cp": 3, "ep": 2, "pp": 2},
        "steps": [1],
        "ring": False,
    },
    "a ring": {
        "says": "after the last place of an axis comes its first one, and the places on the other axes stay",
        "mesh": {"tp": 2, "pp": 3, "dp": 2},
        "steps": [1],
    },
    "backwards": {
        "says": "a step may be negative: before the first place of an axis comes its last one",
        "mesh": {"tp": 2, "pp": 3},
        "steps": [-1],
    },
    "more than once around": {
        "says": "a step may be 0, or longer than the axis: it goes around as often as needed, in both directions",
        "mesh": {"tp": 2, "pp": 3},
        "steps": [0, 7, -8],
    },
    "an axis of one rank": {
        "says": "an axis of one rank has the place 0 for all ranks, and each of them is its own neighbour",
        "mesh": {"tp": 2, "cp": 1, "pp": 3, "dp": 1},  # between longer ones, and outermost
        "steps": [1],
    },
}
PLACE, STRIDE, GROWS = "rank // stride % size", "strides[name] = stride\n", "stride *= size\n"
LOOP, NEXT = "for name, size in sizes.items():", "place = (coordinates[axis] + step) % sizes[axis]"
NEAR = "rank + (place - coordinates[axis]) * strides[axis]"
EDITS = (
    Edit("the last key of sizes is taken for the innermost axis: it is the first one",
         {LOOP: "for name, size in reversed(sizes.items()):"}),
    Edit("the axes are taken in the order tp, pp, dp: the order is that of the keys",
         {LOOP: 'for name, size in sorted(sizes.items(), key=lambda s: ("dp", "pp", "tp", s[0]).index(s[0]), '
                "reverse=True):"}),
    Edit("the stride of an axis is the size of the axis before it: multiply the sizes of all axes further in",
         {GROWS: "stride = size\n"}),
    Edit("the stride of an axis has its own size in it: multiply the sizes of the axes further in",
         {STRIDE: "strides[name] = stride * size\n", PLACE: "rank // (stride * size) % size"}),
    Edit("a place is the rank divided by the stride: also take it modulo the size of the axis",
         {PLACE: "rank // stride"}),
    Edit("a place is the rank modulo the size of the axis: first divide by the stride", {PLACE: "rank % size"}),
    Edit("places begin at 0, not at 1",
         {"return coordinates": "return {name: at + 1 for name, at in coordinates.items()}"}),
    Edit("the neighbour is the next number, which is right along the innermost axis only: a step is as long as the "
         "stride", {NEAR: "rank + place - coordinates[axis]"}),
    Edit("the neighbour is on another axis: the stride is that of the axis outside of this one",
         {NEAR: "rank + (place - coordinates[axis]) * strides[axis] * sizes[axis]"}),
    Edit("the coordinates that are returned are those of the neighbour: return those of rank itself",
         {"return coordinates": "return {**coordinates, axis: place}"}),
    Edit("the place of the neighbour is returned: return the number of that rank", {NEAR: "place"}),
    Edit("from the last place of an axis the step leads to another place on the axis outside: an axis is a ring",
         {NEAR: "(rank + step * strides[axis]) % stride"}),
    Edit("from the last place of an axis the step leads out of the axis: it is a ring, so take the place modulo its "
         "size", {NEXT: "place = coordinates[axis] + step"}),
    Edit("the last place of an axis is its own neighbour: an axis is a ring",
         {NEXT: "place = max(0, min(coordinates[axis] + step, sizes[axis] - 1))"}),
    Edit("a step backwards goes forwards", {NEXT: NEXT.replace("+ step", "+ abs(step)")}),
    Edit("a step backwards from the first place leads out of the axis: in C, and in math.fmod, -1 modulo 3 is -1, in "
         "Python it is 2", {NEXT: "place = (1 if coordinates[axis] + step > 0 else -1) * (abs(coordinates[axis] + step)"
                                  " % sizes[axis])"}),
    Edit("the ring is closed by adding, or subtracting, the size once: a long step goes around more than once",
         {NEXT: "place = coordinates[axis] + step\n    place -= sizes[axis] * ((place >= sizes[axis]) - (place < 0))"}),
    Edit("a step of 0 is taken for a step of 1", {NEXT: NEXT.replace("step", "(step or 1)")}),
    Edit("axes of one rank are missing in the coordinates: all ranks have the place 0 there",
         {"return coordinates": "return {name: at for name, at in coordinates.items() if sizes[name] > 1}"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    return [{"sizes": case.params["mesh"], "asks": asks(case)}] * case.world_size


def asks(case: Case) -> list[tuple[int, str, int]]:
    """The rank, axis and step of each call: all there are on the mesh."""
    sizes, ring = case.params["mesh"], case.params.get("ring", True)
    mesh = table(sizes)
    return [
        (rank, axis, step)
        for rank, axis, step in itertools.product(range(mesh.numel()), sizes, case.params["steps"])
        if ring or places(mesh, rank, sizes)[axis] + step < sizes[axis]
    ]


def on_rank(answer: Any, sizes: Any, asks: Any) -> Any:
    facts: Any = {"sizes stays as it is": True}
    for number, axis, step in asks:
        own = dict(sizes)
        result = answer(number, own, axis, step)
        facts[f"rank {number}, axis {axis}, step {step}"] = result
        if list(own.items()) != list(sizes.items()):
            facts["sizes stays as it is"] = False
    return facts


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """All ranks in a tensor with a dim for each axis, and rolled along one of them."""
    sizes = case.params["mesh"]
    mesh, facts = table(sizes), dict[str, Any]({"sizes stays as it is": True})
    for rank, axis, step in asks(case):
        dim = mesh.dim() - 1 - list(sizes).index(axis)
        neighbour = int(mesh.roll(-step, dim)[mesh == rank])
        facts[f"rank {rank}, axis {axis}, step {step}"] = (places(mesh, rank, sizes), neighbour)
    return [facts] * case.world_size


def table(sizes: dict[str, int]) -> torch.Tensor:
    """The ranks on the mesh; the last dim is the innermost axis."""
    outermost_first = list(sizes.values())[::-1]
    return torch.arange(torch.tensor(outermost_first).prod().item()).view(outermost_first)


def places(mesh: torch.Tensor, rank: int, sizes: dict[str, int]) -> dict[str, int]:
    """Where a rank stands in the table."""
    return dict(zip(sizes, (mesh == rank).nonzero()[0].flip(0).tolist(), strict=True))


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Places and ranks are used as indices, which 2.0 cannot be."""
    for key, result in got[0].items():
        if key.startswith("rank ") and any(isinstance(n, float) for n in (*result[0].values(), result[1])):
            text = f"{key}: the numbers are right, but floats. Places and ranks are whole numbers: divide with //"
            return Finding("DTL-VALUE-TYPE", text)
    return None


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised: the mesh of the calls."""
    return f"{MAY_HELP}it was called for the ranks of the mesh {given[0]['sizes']}"


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"sizes": {"tp": 2, "pp": 3}, "asks": [(5, "pp", 1)]}],
    verify=verify,
    why=why,
    rules=[rules.most_messages("0")],
)
