"""ch15.stage_and_offload: memories that a choice fits into exactly, from the first to the last of the list.

The memories of a job are made from the bytes of the choice that it is about, so that this one fits and those before
it do not. Where the host has room for any choice, so may those after it.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Finding, Given, rules
from dtlearn.runtime.record.record import Record

from ..sent import no_stores
from . import MAY_HELP

# In the order of the task: stage, offload; bytes that a GPU keeps whole, and as its part; a rank's part on the host.
CHOICES = (
    (0, "none", 16, 0, 0), (1, "none", 4, 12, 0), (2, "none", 2, 14, 0), (2, "optimizer", 2, 0, 14),
    (3, "none", 0, 16, 0), (3, "optimizer", 0, 2, 14), (3, "parameters", 0, 0, 16),
)  # fmt: skip
# Per case: `choices`, a job each, that fit exactly; `nodes`, `gpus`, `uneven`: the ranks do not divide the
# parameters; `gpu`, `host`: bytes that are there beside, or "ample".
CASES: dict[str, dict[str, Any]] = {
    "all fits": {"choices": [0], "gpu": 9},
    "stage 1": {"says": "stage 1 divides the optimizer's 12 bytes, and nothing else", "choices": [1]},
    "stage 2": {"says": "stage 2 divides the gradients, too: 2 bytes are whole, and 14 divided", "choices": [2]},
    "stage 3": {
        "says": "stage 3 divides all 16 bytes, and holds the largest layer whole: 4 bytes for each of its parameters",
        "choices": [4],
    },
    "the optimizer on the host": {
        "says": "with the optimizer offloaded in stage 2 a GPU keeps 2 bytes, and the host holds 14 for each part",
        "choices": [3],
    },
    "offload before stage 3": {
        "says": "stage 2 with the optimizer offloaded stands before stage 3 in the list, where both fit",
        **{"choices": [3], "gpu": "ample"},
    },
    "stage 3 with the optimizer on the host": {
        "says": "in stage 3 with the optimizer offloaded a GPU keeps 2 bytes of its part, and the largest layer",
        "choices": [5],
    },
    "the parameters on the host": {
        "says": "with all offloaded a GPU holds the largest layer only, and the host 16 bytes for each part",
        "choices": [6],
    },
    "room on the host": {
        "says": "the first choice of the list that fits is taken, also where the host has room for a later one",
        **{"choices": [0, 1, 2, 4, 5], "gpus": 16, "host": "ample"},
    },
    "several nodes": {
        "says": "stages divide among the ranks of all nodes, and a node's memory holds the parts of its own ranks",
        **{"choices": [3, 1, 2, 4, 5, 6], "nodes": 3},
    },
    "parameters that the ranks do not divide": {
        "says": "a part is ceil(P / N) parameters: its padding takes memory, too",
        **{"choices": [3, 1, 2, 4, 5, 6], "uneven": True},
    },
    "activations": {
        "says": "activations stay on the GPU, whatever is divided or offloaded",
        **{"choices": [2, 0, 1, 3], "activations": 1000},
    },
    "activations in stage 3": {
        "says": "activations come beside the largest layer in stage 3",
        **{"choices": [6, 4, 5], "activations": 1000},
    },
    "a single GPU": {
        "says": "on a single GPU nothing is divided: only offload makes room there",
        **{"choices": [3], "gpus": 1},
    },
    "one byte of the GPU is missing": {"says": "nothing fits: expected a ValueError", "choices": [6], "gpu": -1},
    "one byte of the node is missing": {
        "says": "the host's memory is a limit as well: nothing fits, so expected a ValueError",
        **{"choices": [6], "host": -1},
    },
}
PART, LAYER = "part = -(-num_params // ranks)", "4 * largest_layer if stage == 3 else 0"
WEIGHTS, GRADIENTS = "2 * (part if stage >= 3 else num_params)", "2 * (part if stage >= 2 else num_params)"
OPTIMIZER, BEGIN = "12 * (part if stage >= 1 else num_params)", "on_gpu = activations +"
ON_GPU, MOVED = 'gradients + optimizer if offload == "none" else 0\n', '"none" else gradients + optimizer'
WEIGHTS_MOVED, STAY = 'moved += weights if offload == "parameters" else 0', '0 if offload == "parameters" else weights'
ON_NODE, FITS = "on_node = gpus_per_node * moved", "on_gpu <= gpu_bytes and on_node <= host_bytes"
LIST, RAISE = '(2, "none"), (2, "optimizer")]', "    raise ValueError("
EDITS = (
    Edit("the stages divide nothing: a rank has ceil(P / N) of what is divided", {PART: "part = num_params"}),
    Edit("the last choice is taken where several fit: the first of the list is the fastest",
         {"for stage, offload in choices:": "for stage, offload in reversed(choices):"}),
    Edit("stage 0 is left out of the list", {'[(0, "none"), (1,': '[(1,'}),
    Edit("the optimizer is counted with 8 bytes: its float32 copy of the parameters is the third of three",
         {OPTIMIZER: OPTIMIZER.replace("12", "8")}),
    Edit("stage 1 is passed over: it divides the optimizer, and stands before stage 2",
         {OPTIMIZER: OPTIMIZER.replace(">= 1", ">= 2")}),
    Edit("gradients are divided in stage 1 already: from stage 2 on", {GRADIENTS: GRADIENTS.replace(">= 2", ">= 1")}),
    Edit("gradients stay whole in stage 2: it divides them", {GRADIENTS: GRADIENTS.replace(">= 2", ">= 3")}),
    Edit("gradients are counted with 4 bytes: they have 16 bits here",
         {GRADIENTS: GRADIENTS.replace("2 * (", "4 * (")}),
    Edit("parameters stay whole in stage 3: it divides them", {WEIGHTS: WEIGHTS.replace(">= 3", ">= 4")}),
    Edit("parameters are divided in stage 2 already: from stage 3 on", {WEIGHTS: WEIGHTS.replace(">= 3", ">= 2")}),
    Edit("the largest layer is left out: stage 3 holds it whole while it computes", {LAYER: "0"}),
    Edit("of the largest layer only the values are counted: their gradients come, too",
         {LAYER: "2 * largest_layer if stage == 3 else 0"}),
    Edit("the largest layer is counted in all stages: without stage 3 it is there anyway",
         {LAYER: "4 * largest_layer"}),
    Edit("the gradients stay on the GPU when the optimizer is offloaded: they go with it",
         {ON_GPU: 'gradients + (optimizer if offload == "none" else 0)\n'}),
    Edit("gradients are not counted on the host: they go there with the optimizer", {MOVED: '"none" else optimizer'}),
    Edit("the host holds the whole optimizer, not the rank's part",
         {MOVED: '"none" else 14 * num_params',
          WEIGHTS_MOVED: WEIGHTS_MOVED.replace("weights if", "2 * num_params if")}),
    Edit("the offload of stage 2 is tried before stage 2 itself", {LIST: '(2, "optimizer"), (2, "none")]'}),
    Edit("stage 3 is tried before the offload of stage 2", {LIST: '(2, "none")]',
         '[(3, "none"), (3': '[(3, "none"), (2, "optimizer"), (3'}),
    Edit("stage 3 with the optimizer offloaded is passed over: it is the sixth choice, and divides the parameters",
         {WEIGHTS: '2 * (part if stage >= 3 and offload != "optimizer" else num_params)'}),
    Edit("the offloaded parameters stay on the GPU as well", {STAY: "weights"}),
    Edit("the offloaded parameters are not counted on the host", {WEIGHTS_MOVED: "moved += 0"}),
    Edit("a node is taken to hold the parts of all ranks", {ON_NODE: "on_node = ranks * moved"}),
    Edit("a node is taken to hold the part of one rank: all its ranks share its memory", {ON_NODE: "on_node = moved"}),
    Edit("a part is P // N parameters: it is ceil(P / N)", {PART: "part = num_params // ranks"}),
    Edit("activations are left out", {BEGIN: "on_gpu = 0 * activations +"}),
    Edit("activations are divided among the ranks: each has its own", {BEGIN: "on_gpu = activations // ranks +"}),
    Edit("in stage 3 the largest layer takes the place of the activations",
         {BEGIN: "on_gpu = (activations if stage < 3 else 0) +"}),
    Edit("with one GPU nothing is offloaded", {FITS: f'{FITS} and (ranks > 1 or offload == "none")',
         RAISE: '    if ranks == 1:\n        return {"stage": 0, "offload": "none", "gpu": 0, "host": 0}\n' + RAISE}),
    Edit("the last choice is returned even where it does not fit",
         {RAISE: '    return {"stage": stage, "offload": offload, "gpu": on_gpu, "host": on_node}\n' + RAISE}),
    Edit("the memory of the node is not looked at", {FITS: "on_gpu <= gpu_bytes"}),
    Edit("the last choice is taken without a look at the memory of the node",
         {FITS: 'on_gpu <= gpu_bytes and (offload == "parameters" or on_node <= host_bytes)'}),
    Edit("what takes exactly all of a memory is refused: it fits",
         {FITS: "on_gpu < gpu_bytes and on_node <= host_bytes"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, p = case.generator(), case.params
    nodes, gpus, jobs = p.get("nodes", 1), p.get("gpus", 4), list[dict[str, int]]()
    for choice in p["choices"]:
        params = nodes * gpus * (900 + int(torch.randint(99, (), generator=g))) + (1 if p.get("uneven") else 0)
        job = {"num_params": params, "largest_layer": 30 + int(torch.randint(9, (), generator=g))}
        job |= {"nodes": nodes, "gpus_per_node": gpus, "activations": p.get("activations", 0)}
        gpu, host = needs(job, choice)
        gpu = needs(job, 4)[0] if p.get("gpu") == "ample" else gpu + p.get("gpu", 0)
        host = needs(job, 6)[1] if p.get("host") == "ample" else host + p.get("host", 0)
        jobs.append({**job, "gpu_bytes": gpu, "host_bytes": host})
    return [{"jobs": jobs}] * case.world_size


def needs(job: dict[str, int], choice: int) -> tuple[int, int]:
    """Bytes of a choice, on a GPU and on a node."""
    stage, _, whole, divided, moved = CHOICES[choice]
    part = math.ceil(job["num_params"] / (job["nodes"] * job["gpus_per_node"]))
    gpu = whole * job["num_params"] + divided * part + job["activations"] + 4 * job["largest_layer"] * (stage == 3)
    return gpu, moved * part * job["gpus_per_node"]


def on_rank(answer: Any, jobs: Any) -> Any:
    made = []
    for job in jobs:
        try:
            made.append(answer(**job))
        except ValueError:
            made.append({"a ValueError": True})
    return made if len(made) > 1 else made[0]


def first_that_fits(job: dict[str, int]) -> Any:
    """The first choice of the table whose bytes fit."""
    for number, (stage, offload, *_) in enumerate(CHOICES):
        gpu, host = needs(job, number)
        if gpu <= job["gpu_bytes"] and host <= job["host_bytes"]:
            return {"stage": stage, "offload": offload, "gpu": gpu, "host": host}
    return {"a ValueError": True}


def expected(case: Case, given: Given) -> list[Any]:
    """The first choice that fits each job; not a list if there is only one job."""
    made = [first_that_fits(job) for job in given[0]["jobs"]]
    return [made if len(made) > 1 else made[0]] * case.world_size


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Stages and bytes must be whole numbers, though 2.0 compares as equal to 2."""
    for chosen in got[0] if isinstance(got[0], list) else got:
        for key, size in chosen.items() if isinstance(chosen, dict) else ():
            if key != "a ValueError" and isinstance(size, float | bool):
                return Finding("DTL-VALUE-TYPE", f"{key!r} is {size}: stages and bytes are whole numbers")
    return None


def why(case: Case, given: Given, record: Record) -> str:
    jobs = ["; ".join(f"{name} = {value}" for name, value in job.items()) for job in given[0]["jobs"]]
    return f"{MAY_HELP}it was called with {', then with '.join(jobs)}"


EXAMPLE = {"num_params": 1000, "largest_layer": 100, "nodes": 2, "gpus_per_node": 2, "activations": 0}
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"jobs": [{**EXAMPLE, "gpu_bytes": 2000, "host_bytes": 7000}]}],
    verify=verify,
    why=why,
    rules=[rules.most_messages("0")],
    reads=[no_stores],
)
