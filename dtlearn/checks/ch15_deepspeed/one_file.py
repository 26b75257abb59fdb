"""ch15.one_file: shards of whole parameters that are known, cut by the rule of DeepSpeed's ZeRO 3.

The rule is that of `partition_parameters.py`: of each parameter every rank has ceil(numel / N) elements, and what the
last ones have too many is whatever was in memory. Here it is a number, NaN and 0 in turn. `tests/course` gives the
solution a checkpoint that DeepSpeed saved, where it is installed.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.runtime.record.record import Record

from ..sent import no_stores
from . import MAY_HELP

# Per case: `n`, the ranks; `trained`, by parameter group, the shapes by name; `frozen`, in the same way; `tied`;
# `buffers`; `cuts`, after how many parameters a flat vector ends; `order` of the files, and `prefix` of optim_states;
# `half`: frozen parameters in bf16; `missing`, a rank without optim_states; `of`, the ranks that they count.
BUFFER_DTYPES = {
    **{"mean": torch.bfloat16, "variance": torch.float16, "scale": torch.float64},
    **{"steps": torch.int64, "ids": torch.int32, "mask": torch.bool},
}
CASES: dict[str, dict[str, Any]] = {
    "a parameter that the ranks divide": {"trained": [{"layer.weight": [2, 3]}]},
    "two parameters": {
        "says": "a rank's vector holds its parts of all parameters, one after the other",
        "trained": [{"layer.weight": [2, 3], "layer.bias": [4]}],
    },
    "padding": {
        "says": "each parameter is padded by itself, to a multiple of the ranks: the next part begins after it",
        "trained": [{"layer.weight": [3, 3], "layer.bias": [3], "head.weight": [2, 2]}],
    },
    "a parameter with one element": {
        "says": "a parameter may have fewer elements than there are ranks: each rank has one, which may be padding",
        **{"trained": [{"temperature": [], "scale": [1], "layer.weight": [2, 2]}], "n": 4},
    },
    "several parameter groups": {
        "says": "param_shapes has a dict for each parameter group of the optimizer, and all of them count",
        "trained": [{"layer.weight": [2, 2]}, {"layer.bias": [3]}, {"scale": [2]}],
    },
    "several flat vectors": {
        "says": "fp32_flat_groups has a vector for each sub-group of parameters: they follow each other",
        **{"trained": [{"a": [3], "b": [2, 2], "c": [5], "d": [2]}], "cuts": [2, 3]},
    },
    "a frozen parameter": {
        "says": "frozen parameters are in no flat vector: their parts are in frozen_param_fragments of each rank",
        **{"trained": [{"layer.weight": [2, 3]}], "frozen": {"embedding.weight": [3, 4]}, "n": 3},
    },
    "padding of a frozen parameter": {
        "says": "the parts of a frozen parameter are padded, too, and it keeps its dtype",
        **{"trained": [{"layer.weight": [2, 2]}], "frozen": {"embedding.weight": [3, 3]}, "half": True},
    },
    "a tied parameter": {
        "says": "a shared parameter is the same tensor under both names, in the same memory",
        **{"trained": [{"embedding.weight": [2, 3]}], "tied": {"head.weight": "embedding.weight"}},
    },
    "a tied parameter that is frozen": {
        "says": "a shared parameter may be a frozen one",
        **{"trained": [{"b": [2]}], "frozen": {"embedding.weight": [3]}, "tied": {"head.weight": "embedding.weight"}},
    },
    "buffers": {
        "says": "buffers are whole: floating-point ones become float32, and others keep their dtype",
        **{"trained": [{"layer.weight": [2, 2]}], "buffers": BUFFER_DTYPES},
    },
    "eleven ranks": {
        "says": "the files belong in the order of the ranks' numbers: as texts, 10 comes before 2",
        **{"trained": [{"layer.weight": [4, 6]}], "n": 11},
    },
    "files in any order": {
        "says": "the files come in any order, with bf16_ before optim_states or without: their names have the rank",
        **{"trained": [{"layer.weight": [2, 3]}], "order": -1, "prefix": ""},
    },
    "a rank without optim_states": {
        "says": "expected a ValueError that names the optim_states files that are there, and partition_count",
        **{"trained": [{"layer.weight": [2, 5]}], "n": 5, "missing": 1},
    },
    "a file too many": {
        "says": "more optim_states files than partition_count are of two runs: expected a ValueError that names both",
        **{"trained": [{"layer.weight": [2, 3]}], "n": 3, "of": 2},
    },
}
SORT = 'sorted(files, key=lambda name: int(re.findall(r"pp_rank_(\\d+)", name)[0]))'
CUT, VIEW = "[: math.prod(shape)]", ".view(shape)\n"
STOP, START = "math.ceil(math.prod(shape) / len(flats))", "start = stop"
GROUPS, FLATS = 'for group in first["param_shapes"] for item', 'torch.cat(optim["fp32_flat_groups"])'
FROZEN = 'for name, shape in first["frozen_param_shapes"].items():'
PARTS = '[model["frozen_param_fragments"][name] for model in models]'
SHARED, BUFFERS = "state[name] = state[other]", 'for name in first["buffer_names"]:'
FLOAT, COUNT = (
    "buffer.float() if buffer.is_floating_point() else buffer",
    'if len(optims) != optims[0]["partition_count"]:',
)
EDITS = (
    Edit("only one rank's part is used: the parts of all ranks make a parameter",
         {"[flat[start:stop] for flat in flats], shape)": "[flats[0][start:stop]] * len(flats), shape)"}),
    Edit("the parts of the ranks alternate, element by element: they follow each other",
         {"torch.cat(parts)": "torch.stack(parts, 1).flatten()"}),
    Edit("the shape is left out: a parameter is a vector", {VIEW: "\n"}),
    Edit("the ranks are put together in the wrong direction", {SORT: f"{SORT}[::-1]"}),
    Edit("every parameter begins at the start of the flat vector", {START: "start = 0"}),
    Edit("the vectors of the ranks are joined whole, and then divided by the shapes, as in ZeRO 1 and 2",
         {"[flat[start:stop] for flat in flats], shape)": "[torch.cat(flats)[start:]], shape)",
          STOP: "math.prod(shape)"}),
    Edit("a part is numel // N elements: where that leaves a rest, each rank has one more",
         {STOP: "math.prod(shape) // len(flats)",
          "torch.cat(parts)[": "torch.cat([*parts, torch.zeros(len(parts))])["}),
    Edit("the padding is left in: cut each parameter to its own elements",
         {CUT: "", VIEW: ".view(shape if math.prod(shape) % len(parts) == 0 else -1)\n"}),
    Edit("the padding is taken from the front: it is at the end", {CUT: "[-math.prod(shape) :]"}),
    Edit("a parameter with fewer elements than ranks takes no room in the vectors: it has one of each rank's",
         {START: "start = stop if math.prod(shape) >= len(flats) else start"}),
    Edit("only the first parameter group is read", {GROUPS: 'for group in first["param_shapes"][:1] for item'}),
    Edit("each parameter group begins at the start of the flat vector",
         {"    for name, shape in (item": "    begins = [next(iter(g)) for g in first['param_shapes']]\n"
          "    for name, shape in (item",
          "        stop = start +": "        start = 0 if name in begins else start\n        stop = start +"}),
    Edit("only the first flat vector is read", {FLATS: f'{FLATS[10:-1]}[0].new_tensor([*optim["fp32_flat_groups"][0], '
         '*(0.0 for v in optim["fp32_flat_groups"][1:] for _ in v)])'}),
    Edit("frozen parameters are left out",
         {FROZEN: "for name, shape in ():", SHARED: "state[name] = state.get(other, torch.zeros(3))"}),
    Edit("of a frozen parameter only the first rank's part is used",
         {PARTS: '[first["frozen_param_fragments"][name]] * len(models)'}),
    Edit("the padding of frozen parameters is left in",
         {f"{PARTS}, shape)": f"{PARTS}, shape) if math.prod(shape) % len(models) == 0 else torch.cat({PARTS})"}),
    Edit("shared parameters are left out: their second name is missing", {SHARED: "pass"}),
    Edit("a shared parameter is a copy: one tensor has both names", {SHARED: "state[name] = state[other].clone()"}),
    Edit("shared parameters that are frozen are left out",
         {SHARED: 'state |= {name: state[other]} if other not in first["frozen_param_shapes"] else {}'}),
    Edit("buffers are left out", {BUFFERS: "for name in ():"}),
    Edit("buffers keep a 16-bit format: the file is one of float32", {FLOAT: "buffer"}),
    Edit("counters become floating-point numbers", {FLOAT: "buffer.float()"}),
    Edit("the files are sorted as texts: rank 10 comes before rank 2", {SORT: "sorted(files)"}),
    Edit("the files are taken in the order in which they come", {SORT: "list(files)"}),
    Edit("a rank's files are missing, and nobody notices", {COUNT: "if False:"}),
    Edit("more files than ranks are let through", {COUNT: COUNT.replace("!=", "<")}),
    Edit("the message of the ValueError has to name both numbers", {
        "f\"{len(optims)} files of {optims[0]['partition_count']} ranks: some are missing\"": '"files are missing"'}),
)  # fmt: skip


def shards(whole: torch.Tensor, n: int, first: int) -> list[torch.Tensor]:
    """The parts of the ranks, as DeepSpeed cuts them; in the padding a number, NaN and 0 in turn."""
    size = math.ceil(whole.numel() / n)
    padding = [(7.0, math.nan, 0.0)[(first + i) % 3] for i in range(n * size - whole.numel())]
    padded = torch.cat([whole.flatten(), torch.tensor(padding, dtype=whole.dtype)])
    return [part.clone() for part in padded.split(size)]


def inputs(case: Case) -> Given:
    g, p = case.generator(), case.params
    n, frozen, tied = p.get("n", 2), p.get("frozen", {}), p.get("tied", {})
    trained = {name: shape for group in p["trained"] for name, shape in group.items()}
    values = {name: torch.randn(shape, generator=g) for name, shape in {**trained, **frozen}.items()}
    values |= {name: values[name].bfloat16() for name in frozen if p.get("half")}
    buffers = {name: (9 * torch.randn(3, generator=g)).to(dtype) for name, dtype in p.get("buffers", {}).items()}
    placeholders, files = {name: torch.empty(0) for name in trained}, dict[str, Any]()
    parts = {name: shards(value, n, at) for at, (name, value) in enumerate(values.items())}
    cuts, prefix = [0, *p.get("cuts", []), len(trained)], p.get("prefix", "bf16_")
    for rank in range(n):
        own = [parts[name][rank] for name in trained]
        flats = [torch.cat(own[start:stop]) for start, stop in pairwise(cuts)]
        optim = {"zero_stage": 3, "partition_count": p.get("of", n), "fp32_flat_groups": flats}
        model = {
            **{"buffer_names": list(buffers), "module": {**placeholders, **buffers}, "param_shapes": p["trained"]},
            **{"frozen_param_shapes": frozen, "shared_params": tied},
            "frozen_param_fragments": {name: parts[name][rank] for name in frozen},
        }
        files[f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt"] = model
        if rank != p.get("missing"):
            files[f"{prefix}zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"] = {"optimizer_state_dict": optim}
    names = list(files)[:: p.get("order", 1)]
    whole = {**buffers, **values, **{name: values[other] for name, other in tied.items()}}
    # What the message names: the optim_states that are there, and those that should be.
    refused = [n - ("missing" in p), p.get("of", n)] if {"missing", "of"} & set(p) else []
    given = {"files": {name: files[name] for name in names}, "whole": whole, "tied": tied, "frozen": list(frozen)}
    return [given | {"refused": refused}] * case.world_size


def on_rank(answer: Any, files: Any, whole: Any, tied: Any, frozen: Any, refused: Any) -> Any:
    from dtlearn.grading.on_rank.tools import refusal_naming

    def sized(shapes: Any) -> Any:  # as in the file
        return {name: torch.Size(shape) for name, shape in shapes.items()}

    files = {name: dict(content) for name, content in files.items()}
    for model in (content for content in files.values() if "param_shapes" in content):
        model["param_shapes"] = [sized(group) for group in model["param_shapes"]]
        model["frozen_param_shapes"] = sized(model["frozen_param_shapes"])
    if refused:
        return refusal_naming(refused, answer, files)
    state = answer(files)
    if not tied or not isinstance(state, dict) or not {*tied, *tied.values()} <= {*state}:
        return state
    return {
        **state,
        "one tensor has both names": all(state[k].data_ptr() == state[v].data_ptr() for k, v in tied.items()),
    }


def expected(case: Case, given: Given) -> list[Any]:
    """The whole tensors, from before they were cut."""
    own = given[0]
    if own["refused"]:
        return [f"a ValueError that names {' and '.join(map(str, own['refused']))}"] * case.world_size
    state = {
        name: value.float() if value.is_floating_point() and name not in own["frozen"] else value
        for name, value in own["whole"].items()
    }
    return [{**state, "one tensor has both names": True} if own["tied"] else state] * case.world_size


def why(case: Case, given: Given, record: Record) -> str:
    return f"{MAY_HELP}{case.says or 'its name tells what a file is'}"


def example() -> dict[str, Any]:
    """The files of the task's Example."""
    model: dict[str, Any] = {
        "buffer_names": [],
        "module": {},
        "param_shapes": [{"w": [3], "b": [2]}],
        "frozen_param_shapes": {},
        "frozen_param_fragments": {},
    }
    files: dict[str, Any] = {}
    for rank, flat in enumerate(([1.0, 2.0, 7.0], [3.0, math.nan, 8.0])):
        files[f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt"] = {**model, "shared_params": {}}
        optim = {"zero_stage": 3, "partition_count": 2, "fp32_flat_groups": [torch.tensor(flat)]}
        files[f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"] = {"optimizer_state_dict": optim}
    return files


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"files": example(), "whole": {}, "tied": {}, "frozen": [], "refused": []}],
    why=why,
    rules=[rules.most_messages("0")],
    reads=[no_stores],
)
