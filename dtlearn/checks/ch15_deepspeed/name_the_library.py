"""ch15.name_the_library: recorded steps of real runs, from the plain to those that look like another library.

`recorded_steps.json` is written by `tests/course/record_ch15_steps.py`, where DeepSpeed is installed; the name of a
step is that of the library that ran. What is sent of parameters and gradients is made larger by a factor of the seed,
as in a wider model, and the ranks get other numbers: no size and no group is that of the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.runtime.record.record import Record

from ..sent import no_stores
from . import MAY_HELP

STEPS: dict[str, Any] = json.loads(Path(__file__).with_name("recorded_steps.json").read_text("utf-8"))["steps"]
# Per case: `steps`, the titles of its records.
CASES: dict[str, dict[str, Any]] = {
    "all-reduce, or gather and scatter": {"steps": ["DDP", "FSDP2"]},
    "activations": {
        "says": "an all-reduce in the forward pass is of activations: no gradient is there yet",
        "steps": ["tensor parallel", "tensor parallel, accumulating"],
    },
    "messages": {"says": "messages between two ranks are a pipeline's", "steps": ["pipeline"]},
    "no gather in backward": {
        "says": "parameters that are still there in backward are not gathered again: FSDP2 without resharding",
        "steps": ["FSDP2 without resharding"],
    },
    "norms beside": {
        "says": "a small all-reduce after the passes is of norms, and names nothing",
        "steps": ["FSDP2 with clipping, accumulating", "FSDP2 without resharding, clipping"],
    },
    "two formats": {
        "says": "what is gathered in bfloat16 and scattered in float32 fits in elements, not in bytes",
        "steps": ["FSDP2 in bf16"],
    },
    "several buckets and micro-batches": {
        "says": "gradients may be reduced in several buckets, and once for several micro-batches",
        "steps": ["DDP in small buckets, accumulating"],
    },
    "after the backward pass": {
        "says": "DDP reduces gradients while backward runs, and DeepSpeed when it has ended",
        "steps": ["ZeRO 0"],
    },
    "gradients reduced, parameters gathered": {
        "says": "an all-reduce of gradients and a gather after it: the ranks stepped their parts, which is ZeRO 1 or 2",
        "steps": ["ZeRO 1", "ZeRO 2 in bf16"],
    },
    "by reduce": {
        "says": "each rank's part of the gradients may be reduced to it: this is ZeRO 1 or 2 as well",
        "steps": ["ZeRO 2 by reduce"],
    },
    "several micro-batches": {
        "says": "stage 2 reduces the gradients of every micro-batch, stage 1 once a step",
        "steps": ["ZeRO 1, accumulating", "ZeRO 2, accumulating"],
    },
    "several micro-batches, by reduce": {
        "says": "count the elements that are reduced, not the calls: a reduce is of one rank's part",
        "steps": ["ZeRO 1 by reduce, accumulating", "ZeRO 2 by reduce, accumulating"],
    },
    "small parameters": {
        "says": "ZeRO 3 keeps small parameters whole, and gathers them after the step: none is gathered in a pass here",
        "steps": ["ZeRO 3"],
    },
    "layer by layer": {
        "says": "FSDP2 scatters the units that it gathered, ZeRO 3 gradients in a bucket of many layers",
        "steps": ["ZeRO 3 layer by layer", "ZeRO 3, accumulating"],
    },
    "small buckets": {
        "says": "gradients may be reduced in several buckets in ZeRO, too, and in bfloat16: count elements",
        "steps": ["ZeRO 1 in small buckets, accumulating", "ZeRO 2 in small buckets, accumulating"],
    },
    "scatters in backward": {
        "says": "a bucket of ZeRO 3 may be scattered in backward, before all is: it is no unit that was gathered",
        "steps": ["ZeRO 3 in small buckets"],
    },
    "two groups": {
        "says": "each group has a name of its own: look at the calls of one group at a time",
        "steps": ["tensor parallel and FSDP2", "tensor parallel and DDP", "tensor parallel and FSDP2, clipping"],
    },
}
NUMBERS, PIPELINE = "if elements(call) > 1:", 'return "pipeline"'
UNITS, AFTER = "units = {elements(call) * size for call in gathers}", '"" in {call["phase"] for call in gathers} or'
FITS = "not {elements(call) for call in scatters} <= units"
AGAIN, ONE = 'any(call["phase"] == "backward" for call in gathers)', "if micro_batches == 1:"
COUNT, REDUCTIONS = "sum(map(elements, reductions)) < 1.5 * num_params", 'if call["op"] in ("all_reduce", "reduce")]'
FORWARD, BACKWARD = 'if "forward" in phases:', 'return "DDP" if "backward" in phases else "ZeRO 0"'
SCATTERS, GATHERS = "        if scatters:\n", "        if gathers:\n"
GROUP = 'by_group.setdefault(call["group"], [])'
ELEMENTS = 'call["nbytes"] // ITEMSIZE[call["dtype"]]'
EDITS = (
    Edit("every all-reduce is taken for one of DDP's gradients",
         {SCATTERS: '        if reductions:\n            return "DDP"\n        if scatters:\n'}),
    Edit("every gather is taken for one of FSDP2's",
         {SCATTERS: '        if gathers:\n            return "FSDP2"\n        if scatters:\n'}),
    Edit("an all-reduce in forward is taken for one of gradients: there are none yet", {FORWARD: "if False:"}),
    Edit("tensor parallelism is looked for in backward: DDP all-reduces there as well",
         {FORWARD: 'if "backward" in phases:'}),
    Edit("messages are left out", {PIPELINE: 'return "ZeRO 0"'}),
    Edit("only the gathers of the forward pass are looked at: FSDP2 gathers again in backward when it has resharded",
         {AGAIN: 'any(call["phase"] == "forward" for call in gathers)'}),
    Edit("a small all-reduce after the passes is taken for ZeRO's: norms come with any library",
         {SCATTERS: '        if scatters and "" in phases:\n            return "ZeRO 3"\n        if scatters:\n'}),
    Edit("bytes are compared in the place of elements: bfloat16 has 2 bytes, float32 has 4",
         {ELEMENTS: 'call["nbytes"] // 4'}),
    Edit("one all-reduce of all gradients is expected: buckets divide them",
         {BACKWARD: 'return "DDP" if elements(reductions[0]) == num_params and "backward" in phases else "ZeRO 0"'}),
    Edit("an all-reduce after the passes is taken for DDP's: DDP starts it in backward, from its hooks",
         {BACKWARD: 'return "DDP"'}),
    Edit("the gather after the step is overlooked", {GATHERS: "        if gathers and False:\n"}),
    Edit("reduces are left out, and stage 1 and 2 cannot be told by them",
         {REDUCTIONS: 'if call["op"] == "all_reduce"]'}),
    Edit("gradients that are reduced to their owners are taken for those of ZeRO 3: parameters are gathered once here",
         {SCATTERS: '        if any(call["op"] == "reduce" for call in own):\n            return "ZeRO 3"\n'
                    "        if scatters:\n"}),
    Edit("stage 1 and stage 2 are not told apart by several micro-batches", {ONE: "if True:"}),
    Edit("stages 1 and 2 are the wrong way round: stage 2 keeps no whole gradient, and so reduces more often",
         {COUNT: "sum(map(elements, reductions)) > 1.5 * num_params"}),
    Edit("calls are counted, not elements: two reduces of a half are one gradient", {COUNT: "len(reductions) < 2"}),
    Edit("gathers outside the passes are not looked at: they are ZeRO 3's, of small parameters",
         {AFTER: "", UNITS: 'units = {elements(call) * size for call in gathers if call["phase"]} or {*map(elements, '
                            "scatters)}"}),
    Edit("all gathers and scatters in the passes are taken for FSDP2's: do they fit each other?",
         {f" {FITS}": " False"}),
    Edit("calls are counted against the group's size: a bucket is a call, in DeepSpeed as in DDP",
         {COUNT: "len(reductions) <= size"}),
    Edit("only a scatter of all parameters is taken for ZeRO 3's: a bucket holds as much as there is room for",
         {FITS: "num_params in map(elements, scatters)"}),
    Edit("only one name is given: look at the calls of each group for themselves",
         {GROUP: 'by_group.setdefault(calls[0]["group"], [])'}),
    Edit("the size of the group is taken to be 2: its ranks stand in its name",
         {'name(own, group.count(",") + 1)': "name(own, 2)"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g = case.generator()
    times, shift = (int(torch.randint(low, 9, (), generator=g)) for low in (2, 0))
    jobs = [as_of_another_model(STEPS[title], times, shift) for title in case.params["steps"]]
    return [{**jobs[0], "others": jobs[1:]}] * case.world_size


def as_of_another_model(record: dict[str, Any], times: int, shift: int) -> dict[str, Any]:
    """A record's step where every parameter has so many times the elements, and the first rank another number."""

    def sent(call: dict[str, Any]) -> dict[str, Any]:
        beside = call["op"] == "all_reduce" and not call["phase"] and call["nbytes"] <= 32  # norms and flags
        ranks = [str(int(rank) + shift) for rank in call["group"].split(",")]
        return {**call, "nbytes": call["nbytes"] * (1 if beside else times), "group": ",".join(ranks)}

    calls = [sent(call) for call in record["calls"]]
    return {"calls": calls, "num_params": record["numel"] * times, "micro_batches": record["micro_batches"]}


def on_rank(answer: Any, others: Any, **job: Any) -> Any:
    return [answer(**each) for each in (job, *others)]


def expected(case: Case, given: Given) -> list[list[dict[str, str]]]:
    """The names of what ran."""
    made, jobs = [], [given[0], *given[0]["others"]]
    for title, job in zip(case.params["steps"], jobs, strict=True):
        # Tensor-parallel ranks are neighbours, such as 0,1, and those of the other group are not.
        groups = sorted({call["group"] for call in job["calls"]}, key=lambda group: [*map(int, group.split(","))])
        made.append(dict(zip(groups, STEPS[title]["name"].split(" and "), strict=True)))
    return [made] * case.world_size


def why(case: Case, given: Given, record: Record) -> str:
    return f"{MAY_HELP}{case.says or 'a phase may be an empty text'}"


EXAMPLE = {"calls": STEPS["ZeRO 1"]["calls"], "num_params": STEPS["ZeRO 1"]["numel"], "micro_batches": 1}
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{**EXAMPLE, "others": []}],
    why=why,
    rules=[rules.most_messages("0")],
    reads=[no_stores],
)
