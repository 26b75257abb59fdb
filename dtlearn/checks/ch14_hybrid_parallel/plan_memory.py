"""ch14.plan_memory: one rank, then each axis, recomputation, and the stages of ZeRO."""

from __future__ import annotations

import math
from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Finding, Given, rules
from dtlearn.runtime.record.record import Record

from ..sent import no_stores
from . import MAY_HELP

TOGETHER = "the parts of the formula hold together, with tp, pp, dp and sequence_parallel"
_ALL = {"tp": 2, "pp": 4, "dp": 7, "sequence_parallel": True, "uneven": True}
# Per case: what differs from one rank that has one micro-batch, `m` of them in a step, and holds everything.
CASES: dict[str, dict[str, Any]] = {
    "one rank": {},
    "several micro-batches": {
        "says": "without a pipeline, a micro-batch's activations are gone before the next one begins",
        "m": 3,
    },
    "stages": {"says": "a stage has its part of the blocks, and as many micro-batches in flight as there are stages; "
               "the final norm is on the last one", "pp": 4, "m": 8},
    "fewer micro-batches than stages": {"says": "no more micro-batches are in flight than there are", "pp": 4, "m": 3},
    "larger micro-batches, and replicas": {
        "says": "the micro-batches of a pipeline are batch / (dp x microbatch), and nothing else changes",
        "pp": 16, "m": 4, "microbatch": 2, "dp": 3,
    },
    "tensor parallelism": {
        "says": "tp divides matrices, their own biases and what is inside of attention and the feed-forward network; "
        "what is around them stays whole",
        "tp": 2,
    },
    "sequence_parallel": {"says": "with sequence_parallel, tp also divides what is around; parameters stay as they are",
                          "tp": 4, "sequence_parallel": True},
    "selective": {"says": "the scores are not held, but are there for one block at a time",
                  "tp": 2, "recompute": "selective"},
    "selective, in a pipeline": {"says": "one block of one micro-batch at a time is computed again",
                                 "pp": 2, "m": 4, "recompute": "selective"},
    "full": {"says": "2 s b h are held of each block, and the rest is there for one block at a time",
             "pp": 2, "m": 4, "tp": 2, "blocks": 30, "recompute": "full"},
    "full, with sequence_parallel": {"says": "a block's input is around: sequence_parallel divides it",
                                     "tp": 2, "recompute": "full", "sequence_parallel": True},
    "zero 1": {"says": "ZeRO 1 divides the optimizer's numbers over dp", "dp": 2, "zero": 1},
    "zero 1, uneven": {"says": "shares are rounded up to a whole number of numbers, then counted in bytes",
                       "dp": 7, "zero": 1, "uneven": True},
    "zero 2": {"says": "ZeRO 2 divides gradients and the optimizer's numbers", "dp": 2, "zero": 2},
    "zero 3": {"says": "ZeRO 3 divides parameters, gradients and the optimizer's numbers", "dp": 2, "zero": 3},
    "all of it, with full": {"says": f"{TOGETHER}: full recomputation, few micro-batches of three, ZeRO 1",
                             **_ALL, "m": 3, "microbatch": 3, "zero": 1, "recompute": "full"},
    "all of it, with selective": {"says": f"{TOGETHER}: selective recomputation, micro-batches of two, ZeRO 2",
                                  **_ALL, "m": 8, "microbatch": 2, "zero": 2, "recompute": "selective"},
    "all of it, with zero 3": {"says": f"{TOGETHER}: all is held, in a pipeline, and ZeRO 3 divides over dp",
                               **_ALL, "m": 5, "microbatch": 2, "zero": 3},
}  # fmt: skip
BLOCK, EMBEDDING = "(12 * hidden**2 + 7 * hidden) // tp + 6 * hidden", " + vocabulary * hidden // tp"
FINAL, SHARE = " + (2 * hidden if pp == 1 else 0)", "share = -(-numbers // dp)"
HELD, FLIGHT, TWICE = "in_flight * blocks * held + whole - held", "min(pp, batch // (dp * microbatch))", "2 * sbh"
SCORES, WHOLE = "5 * heads * length**2 * microbatch // tp", "24 * sbh // tp + scores + 10 * sbh // around"
AROUND = "around = tp if sequence_parallel else 1"
WEIGHTS, GRADIENTS, ADAM = (
    f"{size} * (share if zero >= {stage} else numbers)" for size, stage in ((2, 3), (4, 2), (12, 1))
)
EDITS = (
    Edit("gradients are counted with 2 bytes: they are in fp32", {GRADIENTS: f"2{GRADIENTS[1:]}"}),
    Edit("the optimizer's fp32 weights are missing: 4 bytes beside those of the two moments",
         {ADAM: f"8{ADAM[2:]}"}),
    Edit("the token embedding is missing", {EMBEDDING: ""}),
    Edit("the final norm is missing: with one stage the first is the last one", {FINAL: ""}),
    Edit("the final norm is counted in every pipeline's first stage", {FINAL: " + 2 * hidden"}),
    Edit("the head is counted beside the embedding: they are one tensor",
         {EMBEDDING: f"{EMBEDDING} * (2 if pp == 1 else 1)"}),
    Edit("norms and biases are missing", {BLOCK: "12 * hidden**2 // tp"}),
    Edit("all micro-batches are in flight: that is GPipe, and with 1F1B no more than there are stages",
         {FLIGHT: FLIGHT[8:-1]}),
    Edit("one micro-batch is in flight: with stages there are several", {FLIGHT: "1"}),
    Edit("as many micro-batches as stages are in flight, even where there are fewer", {FLIGHT: "pp"}),
    Edit("the micro-batches of all replicas are in flight on one: batch is divided by dp, too",
         {FLIGHT: "min(pp, batch // microbatch)"}),
    Edit("sequences are taken for micro-batches: batch is divided by microbatch, too",
         {FLIGHT: "min(pp, batch // dp)"}),
    Edit("the activations are divided by dp: each replica has micro-batches of its own",
         {HELD: f"({HELD}) // dp"}),
    Edit("the stage holds activations of all blocks of the model", {HELD: HELD.replace("blocks", "layers")}),
    Edit("tp divides norms and all biases: 6 h are whole on each rank",
         {BLOCK: "(12 * hidden**2 + 13 * hidden) // tp"}),
    Edit("the biases that belong to divided columns are whole: tp divides 7 h",
         {BLOCK: "12 * hidden**2 // tp + 13 * hidden"}),
    Edit("the token embedding is whole: tp divides it", {EMBEDDING: EMBEDDING[:-6]}),
    Edit("attention scores are whole: tp divides the heads", {SCORES: SCORES[:-6]}),
    Edit("what is around attention and the feed-forward network is divided without sequence_parallel",
         {AROUND: "around = tp"}),
    Edit("with sequence_parallel, tp also divides what is around: it is whole here", {AROUND: "around = 1"}),
    Edit("with sequence_parallel the norms' parameters are divided: only their activations are",
         {BLOCK: f"{BLOCK} // (tp if sequence_parallel else 1)"}),
    Edit("what is computed again is missing: for one block it is there", {HELD: HELD[:-15]}),
    Edit("what is computed again is there for all blocks of the stage: it is one block at a time",
         {HELD: f"{HELD[:-12]}blocks * (whole - held)"}),
    Edit("what is computed again is there for every micro-batch in flight: it is one at a time",
         {HELD: f"{HELD[:-12]}in_flight * (whole - held)"}),
    Edit("a whole block is counted beside what is held, and so a part of it twice",
         {HELD: f"{HELD[:-12]}(whole if held < whole else 0)"}),
    Edit("with full recomputation nothing is held: a block's input is, to begin again with", {TWICE: "0"}),
    Edit("a block's input has 2 bytes for each of its numbers: one is counted", {TWICE: "sbh"}),
    Edit("a block's input is whole with full recomputation: sequence_parallel divides it",
         {f"{TWICE} // around": TWICE}),
    Edit("a share is rounded down, and a number is lost", {SHARE: "share = numbers // dp"}),
    Edit("a share is rounded up to whole bytes: round up the numbers",
         {ADAM: "-(-12 * numbers // (dp if zero else 1))"}),
    Edit("ZeRO divides over all ranks: each tp and pp rank has other parameters, and dp shares them",
         {SHARE: "share = -(-numbers // (dp * tp * pp))"}),
    Edit("ZeRO 1 divides parameters and leaves the optimizer's numbers: the other way round",
         {WEIGHTS: WEIGHTS.replace(">= 3", ">= 1"), ADAM: ADAM.replace(">= 1", ">= 3")}),
    Edit("ZeRO 2 divides gradients only: stage 1 comes with it", {ADAM: ADAM.replace(">= 1", "in (1, 3)")}),
    Edit("ZeRO 3 divides parameters only: stages 1 and 2 come with it",
         {ADAM: ADAM.replace(">= 1", "in (1, 2)"), GRADIENTS: GRADIENTS.replace(">=", "==")}),
    Edit("ZeRO 2 leaves gradients whole", {GRADIENTS: GRADIENTS.replace(">= 2", ">= 3")}),
    Edit("ZeRO 3 leaves parameters whole", {WEIGHTS: "2 * numbers"}),
    Edit("a share of the gradients is rounded down, and a number is lost",
         {GRADIENTS: GRADIENTS.replace("share", "numbers // dp")}),
    Edit("a share of the parameters is rounded down, and a number is lost",
         {WEIGHTS: WEIGHTS.replace("share", "numbers // dp")}),
    Edit("with full recomputation a block's input is counted for one sequence: a micro-batch has several",
         {TWICE: "2 * length * hidden"}),
)  # fmt: skip
ONE = {"tp": 1, "pp": 1, "dp": 1, "microbatch": 1, "zero": 0, "recompute": "none", "sequence_parallel": False}


def inputs(case: Case) -> Given:
    g, p = case.generator(), case.params
    layout = {name: p.get(name, value) for name, value in ONE.items()}
    some = [int(torch.randint(2, 6, (), generator=g)) for _ in range(5)]
    heads, size = 2 * layout["tp"] * some[0], 2 * some[2] + 2 * (some[2] > 3)  # 4, 6, 10 or 12 of a head
    job = {"layers": layout["pp"] * p.get("blocks", some[1]), "hidden": size * heads, "heads": heads}
    job |= {"vocabulary": layout["tp"] * (10 * some[4] + 7), "length": 8 * some[3]}
    job |= {"batch": layout["dp"] * layout["microbatch"] * p.get("m", 1), **layout}
    while "uneven" in p and numbers_of(job) % layout["dp"] == 0:
        job["vocabulary"] += layout["tp"]
    return [job] * case.world_size


def on_rank(answer: Any, **job: Any) -> Any:
    sizes = [job.pop(name) for name in ("layers", "hidden", "heads", "vocabulary", "length", "batch")]
    return answer(*sizes, **job)


def numbers_of(job: dict[str, Any]) -> int:
    """The number of parameters on a rank of the first stage, added up tensor by tensor."""
    h, tp = job["hidden"], job["tp"]
    attention = [(3 * h // tp, h), (3 * h // tp,), (h, h // tp), (h,)]
    feed_forward = [(4 * h // tp, h), (4 * h // tp,), (h, 4 * h // tp), (h,)]
    stage = [*attention, *feed_forward, (h,), (h,), (h,), (h,)] * (job["layers"] // job["pp"])
    stage += [(job["vocabulary"] // tp, h), *([(h,), (h,)] if job["pp"] == 1 else [])]
    return sum(map(math.prod, stage))


def most_at_once(job: dict[str, Any]) -> int:
    """Bytes of activations while a rank of the first stage plays its passes, block by block."""
    s, b, h, a, tp = (job[name] for name in ("length", "microbatch", "hidden", "heads", "tp"))
    around = tp if job["sequence_parallel"] else 1
    begin = 2 * s * b * h // around  # the input, which the first norm keeps
    others = [2, 2, 2, 1, 1]  # inputs of the second norm and of the two column-parallel layers, two masks
    scores = [2, 1, 2]  # softmax, a mask, its result
    inside = [2, 2, 2, 2, 8, 8]  # queries, keys, values, the output product's input; GELU's input and result
    split = sum(n * s * b * h // tp for n in inside) + sum(n * s * b * h // around for n in others)
    squares = sum(n * a * s * s * b // tp for n in scores)
    dropped = {"none": 0, "selective": squares, "full": split + squares}[job["recompute"]]
    blocks, m = job["layers"] // job["pp"], job["batch"] // job["dp"] // b
    now = most = 0
    done = [0, 0]  # micro-batches forward, and backward
    while done[1] < m:
        goes_forward = done[0] < m and done[0] - done[1] < job["pp"]
        if goes_forward:
            now += blocks * (begin + split + squares - dropped)
        most = max(most, now + (0 if goes_forward else dropped))
        now -= 0 if goes_forward else blocks * (begin + split + squares - dropped)
        done[not goes_forward] += 1
    return most


def expected(case: Case, given: Given) -> list[dict[str, int]]:
    """All tensors of a rank, each with its bytes, and the passes of a step played."""
    job = given[0]
    numbers, made = numbers_of(job), dict[str, int]()
    for name, size, stage in (("parameters", 2, 3), ("gradients", 4, 2), ("optimizer", 12, 1)):
        pieces = torch.arange(numbers).chunk(job["dp"]) if job["zero"] >= stage else [torch.arange(numbers)]
        made[name] = size * max(map(len, pieces))
    return [{**made, "activations": most_at_once(job)}] * case.world_size


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Bytes are counted in whole numbers: 1.5 is none."""
    if floats := [name for name, size in got[0].items() if isinstance(size, float)]:
        text = f"the sizes are right, but floats ({', '.join(floats)}): bytes are whole numbers, so divide with //"
        return Finding("DTL-VALUE-TYPE", text)
    return None


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised: the arguments of the call."""
    return f"{MAY_HELP}it was called with {', '.join(f'{name} = {value}' for name, value in given[0].items())}"


EXAMPLE = {"layers": 2, "hidden": 4, "heads": 2, "vocabulary": 8, "length": 4, "batch": 4}
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{**EXAMPLE, **ONE, "pp": 2, "dp": 2, "zero": 1}],
    verify=verify,
    why=why,
    rules=[rules.most_messages("0")],
    reads=[no_stores],
    rtol=0.0,  # a float that is close is no number of bytes
    atol=0.0,
)
