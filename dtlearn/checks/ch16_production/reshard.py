"""ch16.reshard: blocks of a tensor that is known; the reads are played on them, and make the wanted block or not."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP

# Per case: `cuts`, in each dim the edges of the saved blocks; `start` and `shape` of the wanted one; `copies`, how
# many files have each block; `without`, blocks that are missing; `empty`, blocks without elements that stand first.
CASES: dict[str, dict[str, Any]] = {
    "a block as it was saved": {"cuts": [[0, 4, 8]], "start": [0], "shape": [4]},
    "the second of two blocks": {
        "says": "slices count from the beginning of their own block: of the file's, and of the wanted one",
        **{"cuts": [[0, 4, 8]], "start": [4], "shape": [4]},
    },
    "a part of one block": {
        "says": "if the wanted block lies inside a saved one, a part of the file is read",
        **{"cuts": [[0, 6, 12]], "start": [8], "shape": [3]},
    },
    "parts of several blocks": {
        "says": "a wanted block that reaches over several saved ones is put together from all of them",
        **{"cuts": [[0, 3, 4, 9]], "start": [2], "shape": [5]},
    },
    "rows that become columns": {
        "says": "with several dims, what two blocks have in common is found in each dim by itself",
        **{"cuts": [[0, 2, 4], [0, 6]], "start": [0, 3], "shape": [4, 3]},
    },
    "a grid": {
        "says": "two blocks have elements in common only if they overlap in every dim",
        **{"cuts": [[0, 2, 5], [0, 3, 6]], "start": [3, 0], "shape": [2, 5]},
    },
    "a corner of a grid": {
        "says": "a block may lie apart from the wanted one in two dims: two negative lengths have a positive product",
        **{"cuts": [[0, 2, 5, 7], [0, 3, 6]], "start": [3, 4], "shape": [3, 2]},
    },
    "four dims": {
        "says": "a tensor has any number of dims, not two at most",
        **{"cuts": [[0, 2, 4], [0, 3], [0, 2, 6], [0, 1, 3]], "start": [1, 1, 3, 1], "shape": [2, 2, 2, 2]},
    },
    "a tensor without dims": {
        "says": "a tensor without dims has one element, and both of its tuples are ()",
        **{"cuts": [], "start": [], "shape": []},
    },
    "copies of a block": {
        "says": "two files may have the same block: one of them is read",
        **{"cuts": [[0, 3, 6], [0, 2, 4]], "start": [1, 0], "shape": [4, 3], "copies": 2},
    },
    "blocks without elements": {
        "says": "a block without elements has nothing in common with any other, also if it begins inside of it, and no "
        "other is its copy: a copy has the same start and the same shape",
        **{"cuts": [[0, 4, 8]], "start": [2], "shape": [4], "empty": [2, 4]},
    },
    "nothing is wanted": {
        "says": "a block without elements needs no read, and lacks none",
        **{"cuts": [[0, 4, 8]], "start": [5], "shape": [0]},
    },
    "a hole": {
        "says": "expected a ValueError that has the number of wanted elements and of those that were found",
        **{"cuts": [[0, 2, 4, 7], [0, 3]], "start": [1, 0], "shape": [6, 3], "without": [1]},
    },
    "a hole beside copies": {
        "says": "copies count once: what is there twice does not fill a hole elsewhere",
        **{"cuts": [[0, 3, 6]], "start": [0], "shape": [6], "copies": 2, "without": [1]},
    },
}
SOURCE = "tuple(slice(a - f, b - f) for a, b, f in zip(low, high, first, strict=True))"
TARGET = "tuple(slice(a - s, b - s) for a, b, s in zip(low, high, start, strict=True))"
LOW, HIGH = "max(a, b) for a, b in zip(first, start, strict=True)", "min(a + n, b + m)"
ANY, SEEN = "any(a >= b for a, b in zip(low, high, strict=True))", "(first, lengths) in seen"
COUNT, CUT = "math.prod(b - a for a, b in zip(low, high, strict=True))", "        low = ["
FOUND = "if found != math.prod(shape):"
LESS = "if found < math.prod(shape):"
EDITS = (
    Edit("the source counts from the beginning of the whole tensor: subtract where the file's block begins",
         {SOURCE: "tuple(slice(a, b) for a, b in zip(low, high))"}),
    Edit("the target counts from the beginning of the whole tensor: subtract where the wanted block begins",
         {TARGET: "tuple(slice(a, b) for a, b in zip(low, high))"}),
    Edit("the file is read from its beginning: subtract where the file's block begins from where the common part does",
         {SOURCE: "tuple(slice(0, b - a) for a, b in zip(low, high))"}),
    Edit("whole files are read: of each only what both blocks have", {SOURCE: "tuple(slice(0, n) for n in lengths)"}),
    Edit("every part is put at the beginning of the wanted block",
         {TARGET: "tuple(slice(0, b - a) for a, b in zip(low, high))"}),
    Edit("a common part begins where the file's block does: it begins at the later of the two starts",
         {LOW: "a for a, b in zip(first, start)"}),
    Edit("a common part ends where the file's block does: it ends at the earlier of the two ends",
         {HIGH: "a + n"}),
    Edit("a block ends at its shape: it ends at start + shape", {HIGH: "min(n, m)"}),
    Edit("blocks that overlap in one dim are taken to have elements in common: they have to overlap in every dim",
         {ANY: "all(a >= b for a, b in zip(low, high)) and bool(low)", COUNT: COUNT.replace("b - a", "max(b - a, 0)")}),
    Edit("the product of the lengths is compared with 0: two negative lengths have a positive one",
         {ANY: COUNT + " <= 0"}),
    Edit("two dims are compared: a tensor has any number",
         {ANY: "any(a >= b for a, b in [*zip(low, high)][:2])", COUNT: COUNT.replace("b - a", "max(b - a, 0)")}),
    Edit("a tensor without dims is left out: it has one element, the product of no lengths",
         {ANY: f"not low or {ANY}"}),
    Edit("every copy of a block is read: one is enough", {SEEN: "False", FOUND: LESS}),
    Edit("a block with the shape of another one is taken for its copy: a copy begins at the same element, too",
         {SEEN: "lengths in [n for _, n in seen]"}),
    Edit("a read of no elements is in the list: two blocks that only touch have nothing in common",
         {ANY: "any(a > b for a, b in zip(low, high))"}),
    Edit("a block is taken for the copy of one without elements, which begins where it does: a copy has the same shape",
         {SEEN: "first in [f for f, _ in seen]",
          CUT: f"        seen |= {{(first, lengths)}} if 0 in lengths else set()\n{CUT}"}),
    Edit("a hole is not noticed: what was found has to be as much as is wanted", {FOUND: "if False:"}),
    Edit("a block without elements is refused: nothing of it is missing", {FOUND: f"{FOUND[:-1]} or not reads:"}),
    Edit("the message of the ValueError has to have both numbers",
         {'f"{math.prod(shape)} elements are wanted, and {found} of them are in the files"': '"a hole"'}),
    Edit("copies count twice: what is there twice fills a hole elsewhere",
         {f"found += {COUNT}": f"found += {COUNT} * [(f, n) for _, f, n in saved].count((first, lengths))",
          FOUND: LESS}),
)  # fmt: skip


def blocks_of(case: Case) -> list[tuple[list[int], list[int]]]:
    """Start and shape of each saved block, one for each copy; copies lie far from each other."""
    p = case.params
    stretches = [[(low, high - low) for low, high in itertools.pairwise(edges)] for edges in p["cuts"]]
    grid: list[tuple[list[int], list[int]]] = [
        ([low for low, _ in block], [n for _, n in block]) for block in itertools.product(*stretches)
    ]
    there = [block for number, block in enumerate(grid) if number not in p.get("without", [])]
    copies: int = p.get("copies", 1)
    return [([at], [0]) for at in p.get("empty", [])] + there * copies


def inputs(case: Case) -> Given:
    g, p = case.generator(), case.params
    whole = torch.randn([edges[-1] for edges in p["cuts"]], generator=g)
    saved, blocks = [], {}
    for number, (start, shape) in enumerate(blocks_of(case)):
        saved.append([f"rank{number}", start, shape])
        blocks[f"rank{number}"] = part_of(whole, start, shape)
    wanted = {"start": p["start"], "shape": p["shape"]}
    return [{"saved": saved, **wanted, "blocks": blocks, "whole": whole, "refused": refused_numbers(case)}] * (
        case.world_size
    )


def part_of(whole: torch.Tensor, start: list[int], shape: list[int]) -> torch.Tensor:
    return whole[tuple(slice(low, low + n) for low, n in zip(start, shape, strict=True))].clone()


def refused_numbers(case: Case) -> list[int]:
    """How many elements are wanted and how many of them are saved somewhere, in a case with a hole; otherwise []."""
    p = case.params
    if "without" not in p:
        return []
    there = torch.zeros([edges[-1] for edges in p["cuts"]])
    for start, shape in blocks_of(case):
        there[tuple(slice(low, low + n) for low, n in zip(start, shape, strict=True))] = 1
    return [math.prod(p["shape"]), int(part_of(there, p["start"], p["shape"]).sum())]


def on_rank(answer: Any, saved: Any, start: Any, shape: Any, blocks: Any, whole: Any, refused: Any) -> Any:
    import math
    import re

    from dtlearn.grading.on_rank.tools import refusal_naming

    given = [(file, tuple(first), tuple(lengths)) for file, first, lengths in saved], tuple(start), tuple(shape)
    if refused:
        return refusal_naming(refused, answer, *given)
    try:
        reads = answer(*given)
    except ValueError as error:
        numbers = re.findall(r"\d+", str(error))
        if str(math.prod(shape)) not in numbers:  # it does not speak of the wanted elements: some other fault
            raise
        said = f"a ValueError that names {' and '.join(numbers)}, though nothing is missing"
        return {"reads": said, "wanted": torch.full(tuple(shape), torch.nan)}
    if not isinstance(reads, list | tuple):
        return reads
    wanted, times, said = torch.full(tuple(shape), torch.nan), torch.zeros(tuple(shape)), ""
    for file, source, target in reads:
        part, place = blocks[file][source], wanted[target]
        if part.shape != place.shape:
            said = said or f"{file} is read with shape {tuple(part.shape)}, into a place with {tuple(place.shape)}"
            continue
        said = said or ("" if part.numel() else f"of {file} no element is read")
        wanted[target] = part
        times[target] += 1
    for index in map(tuple, (times != 1).nonzero().tolist()):
        said = said or f"element {index} of the wanted block is read {int(times[index])} times"
    return {"reads": said or "each wanted element once", "wanted": wanted}


def expected(case: Case, given: Given) -> list[Any]:
    """The wanted block of the whole tensor, which was never cut."""
    own = given[0]
    if own["refused"]:
        return [f"a ValueError that names {' and '.join(map(str, own['refused']))}"] * case.world_size
    wanted = part_of(own["whole"], own["start"], own["shape"])
    return [{"reads": "each wanted element once", "wanted": wanted}] * case.world_size


def why(case: Case, given: Given, record: Record) -> str:
    own, told = given[0], "each dim has a start and a length, and the number of dims is not always 2"
    shown = f"it was called with start = {tuple(own['start'])} and shape = {tuple(own['shape'])}"
    return f"{MAY_HELP}{case.says or told}; {shown}"


FOUR = torch.arange(16.0).view(4, 4)
EXAMPLE: dict[str, Any] = {
    "saved": [["rank0", [0, 0], [2, 4]], ["rank1", [2, 0], [2, 4]]],
    **{"start": [1, 2], "shape": [3, 2], "blocks": {"rank0": FOUR[:2], "rank1": FOUR[2:]}, "whole": FOUR},
    "refused": [],
}

CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[EXAMPLE],
    why=why,
    rules=[rules.most_messages("0")],
)
