"""ch12.block_bytes: one micro-batch without anything, then each of the three ways to run a block, and their mixtures.

`tests/course` holds the counts against those of `dtlearn.tensor_parallel`, whose own tests hold them against records.
"""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.runtime.record.record import Record

from ..sent import no_stores
from . import MAY_HELP

WAYS = ("sequence_parallel", "gather_again", "recompute")
# Per case: `ways`, what is on; `t`, `m`, ranks and micro-batches; `left`, tokens that no rank has a share in.
CASES: dict[str, dict[str, Any]] = {
    "one micro-batch": {"m": 1},
    "several micro-batches": {"says": "each micro-batch has passes of its own, and each pass sends"},
    "recompute": {"says": "the forward pass that runs again is one as the first, with a key of its own", "ways": "r"},
    "sequence_parallel": {
        "says": "an all-gather and a reduce-scatter are one all-reduce in two calls; at the end come the gradients",
        "ways": "s",
    },
    "sequence_parallel with gather_again": {
        "says": "in backward, for each micro-batch, the tokens are gathered once more in each half",
        "ways": "sg",
    },
    "all three": {"says": "the three do not change one another", "ways": "sgr"},
    "a single rank": {"says": "a single rank sends and calls nothing", "t": 1, "ways": "sgr"},
    "tokens that the ranks do not divide, without sequence_parallel": {"says": "the tokens stay whole", "left": 1},
    "tokens that the ranks do not divide": {
        "says": "expected a ValueError that names both numbers",
        "ways": "s",
        "left": 1,
    },
}
ONCE, PART, FORWARD = "once = b * s * h * itemsize", " * (t - 1) // t", "forward = 2 * 2 * once"
GRADIENTS, IF_TOKENS = "gradients = 2 * 6 * h * itemsize", " if sequence_parallel else 0"
EACH, PASSES = "calls_of_a_half = 2 if sequence_parallel else 1", "passes = 3 if recompute else 2"
CALLS, AT_END = "calls = 2 * m * (passes * calls_of_a_half + gather_again)", " + sequence_parallel\n"
AGAIN, BACKWARD, TWICE = '"recomputed": forward * recompute', '"backward": forward', "2 * once * gather_again"
BYTES_AGAIN, CALLS_AGAIN = f"{BACKWARD} + {TWICE}", "calls_of_a_half + gather_again"


def parts(text: str) -> dict[str, str]:
    """An edit with another part of a tensor that a rank sends: `text` in place of * (t - 1) // t."""
    return {f"{ONCE}{PART}": ONCE + text, f"{GRADIENTS}{PART}": GRADIENTS + text}


def at_the_end(times: str) -> dict[str, str]:
    """An edit with another number of parts in the all-reduce at the end."""
    return {GRADIENTS: f"gradients = {times} * h * itemsize"}


EDITS = (
    Edit("an all-reduce is counted as one pass: it is a reduce-scatter and an all-gather, 2 (t - 1)/t",
         {FORWARD: "forward = 2 * (2 if sequence_parallel else 1) * once"}),
    Edit("sequence parallelism is taken to send half: an all-gather and a reduce-scatter are one all-reduce",
         {FORWARD: "forward = 2 * (1 if sequence_parallel else 2) * once"}),
    Edit("half of what f and g send is counted: both halves of the block have them, and an all-reduce is two passes",
         {FORWARD: "forward = 2 * once"}),
    Edit("one half of the block is counted: attention and feed-forward have f and g each",
         {FORWARD: "forward = 2 * once", TWICE: "once * gather_again", "calls = 2 * m": "calls = m"}),
    Edit("the backward pass is left out, and its calls: there f sends",
         {BYTES_AGAIN: '"backward": 0', PASSES: "passes = 2 if recompute else 1"}),
    Edit("the bytes of the backward pass are left out: there f sends", {BYTES_AGAIN: '"backward": 0'}),
    Edit("the forward pass that runs again is counted in the backward pass too: it has a key of its own",
         {BACKWARD: f"{BACKWARD} * (1 + recompute)"}),
    Edit("the backward pass is counted twice: it computes twice as much, and sends as much",
         {BACKWARD: f"{BACKWARD} * 2"}),
    Edit("whole tensors are counted: a rank sends (t - 1)/t of one in each pass of the ring", parts(" * (t > 1)")),
    Edit("a rank's t-th part is counted as sent once: it goes to t - 1 ranks", parts(" * (t > 1) // t")),
    Edit("t - 1 whole tensors are counted, as all t ranks send them together: one rank sends (t - 1)/t of one in each "
         "pass of the ring", parts(" * (t - 1)")),
    Edit("weights are counted, h^2: tensor parallelism sends activations", {ONCE: "once = h * h * itemsize"}),
    Edit("the feed-forward's hidden features are counted: they stay divided; what is sent has h",
         {FORWARD: "forward = 10 * once"}),
    Edit("this is a number of elements, not of bytes",
         {ONCE: "once = b * s * h", GRADIENTS: "gradients = 2 * 6 * h"}),
    Edit("this is a number of bits, not of bytes",
         {ONCE: f"{ONCE} * 8", GRADIENTS: f"{GRADIENTS} * 8"}),
    Edit("the micro-batches are left out", {f"{ONCE}{PART} * m": f"{ONCE}{PART}", "calls = 2 * m": "calls = 2"}),
    Edit("the calls are those of one micro-batch", {"calls = 2 * m": "calls = 2"}),
    Edit("the bytes are those of one micro-batch", {f"{ONCE}{PART} * m": f"{ONCE}{PART}"}),
    Edit("the forward pass that runs again sends too, as much as the first one, and makes as many calls",
         {AGAIN: '"recomputed": 0', PASSES: "passes = 2"}),
    Edit("the forward pass that runs again sends too, as much as the first one", {AGAIN: '"recomputed": 0'}),
    Edit("a forward pass is counted as run again where recompute is off",
         {AGAIN: '"recomputed": forward', PASSES: "passes = 3"}),
    Edit("the forward pass that runs again is counted for one half", {AGAIN: f"{AGAIN} // 2"}),
    Edit("the last g is left out of the forward pass that runs again: here the pass runs again as a whole",
         {AGAIN: f"{AGAIN} * (3 if sequence_parallel else 2) // 4", AT_END: " + sequence_parallel - m * recompute\n"}),
    Edit("a quarter of the forward pass that runs again is left out: it runs again as a whole, the last g included",
         {AGAIN: f"{AGAIN} * 3 // 4", AT_END: " + sequence_parallel - m * recompute\n"}),
    Edit("an all-gather and a reduce-scatter are counted as two all-reduces: they are one",
         {FORWARD: "forward = 2 * (4 if sequence_parallel else 2) * once"}),
    Edit("a rank's own tokens are counted as the whole tensor: that is what an all-gather makes of all parts",
         {ONCE: "once = b * (s // t if sequence_parallel else s) * h * itemsize"}),
    Edit("an all-gather and a reduce-scatter are counted as one call: they are two", {EACH: "calls_of_a_half = 1"}),
    Edit("partial gradients of norms and biases are left out, and their call", {**at_the_end("0"), AT_END: "\n"}),
    Edit("partial gradients of norms and biases are left out", at_the_end("0")),
    Edit("the call for the partial gradients is left out: one all-reduce at the end of a step", {AT_END: "\n"}),
    Edit("half of the gradients' bytes are counted: the block has two norms and two biases, not one of each, and an "
         "all-reduce sends 2 (t - 1)/t of a tensor, not (t - 1)/t", at_the_end("6")),
    Edit("two of six gradients of the block are left out: both norms have a weight and a bias, and both row-parallel "
         "layers a bias", at_the_end("2 * 4")),
    Edit("only the weights of the norms are counted: their biases, and those of the row-parallel layers, have partial "
         "gradients too", at_the_end("2 * 2")),
    Edit("all biases of the block are counted: those of column-parallel layers are divided, and their gradients whole",
         at_the_end("2 * 13")),
    Edit("the parts of the column-parallel layers' biases are counted: their gradients are no partial ones, as they "
         "meet all tokens", {GRADIENTS: "gradients = 2 * (6 + 7 / t) * h * itemsize"}),
    Edit("gradients are added up once a step, not for each micro-batch",
         {GRADIENTS: f"{GRADIENTS} * m", AT_END: " + m * sequence_parallel\n"}),
    Edit("the gradients' bytes are counted for each micro-batch: they are added up once a step",
         {GRADIENTS: f"{GRADIENTS} * m"}),
    Edit("without sequence parallelism every rank has the whole gradients of norms and biases: nothing is sent",
         {IF_TOKENS: "", AT_END: " + 1\n"}),
    Edit("one call is counted for each parameter: one all-reduce adds up all of them",
         {AT_END: " + 6 * sequence_parallel\n"}),
    Edit("tokens are gathered again in one half only: both do",
         {TWICE: "once * gather_again", CALLS: "calls = 2 * m * passes * calls_of_a_half + m * gather_again"}),
    Edit("tokens are gathered again for one micro-batch only: each does so in its backward pass",
         {TWICE: f"{TWICE} // m", CALLS: "calls = 2 * m * passes * calls_of_a_half + 2 * gather_again"}),
    Edit("with recompute tokens are not gathered again: gather_again does that in backward in any case",
         {TWICE: f"{TWICE} * (not recompute)", CALLS_AGAIN: f"{CALLS_AGAIN} * (not recompute)"}),
    Edit("with recompute the bytes of tokens that are gathered again are left out: gather_again does that in backward "
         "in any case", {TWICE: f"{TWICE} * (not recompute)"}),
    Edit("gather_again is left out: each half gathers once more in backward",
         {BYTES_AGAIN: BACKWARD, CALLS_AGAIN: "calls_of_a_half"}),
    Edit("gather_again is counted as an all-reduce: it is an all-gather", {TWICE: f"2 * {TWICE}"}),
    Edit("tokens are gathered again in forward too: only backward does that",
         {FORWARD: "forward = 2 * (2 + gather_again) * once", BYTES_AGAIN: BACKWARD,
          f"passes * {CALLS_AGAIN}": f"passes * ({CALLS_AGAIN})"}),
    Edit("a single rank has nobody to call", {"calls if t > 1 else 0": "calls"}),
    Edit("tokens that the ranks do not divide: expected a ValueError, but nothing was raised",
         {"if sequence_parallel and s % t:": "if False:"}),
    Edit("the message of the ValueError has to name both numbers, the tokens and the ranks",
         {'f"{t} ranks do not divide {s} tokens"': '"the ranks do not divide the tokens"'}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, p = case.generator(), case.params
    t, ways = p.get("t", 4), p.get("ways", "")
    b, tokens, features = (2 * int(torch.randint(1, 4, (), generator=g)) + 1 for _ in range(3))
    job = {"b": b, "s": t * tokens + p.get("left", 0), "h": 4 * t * features, "t": t, "itemsize": 2, "m": p.get("m", 3)}
    return [{**job, **{name: name[0] in ways for name in WAYS}}] * case.world_size


def on_rank(answer: Any, **job: Any) -> Any:
    from dtlearn.grading.on_rank.tools import refusal_naming

    if job["sequence_parallel"] and job["s"] % job["t"]:
        return {"tokens that the ranks do not divide": refusal_naming([job["s"], job["t"]], answer, **job)}
    return answer(**job)


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """All collectives of a step, one after the other."""
    return [counts(**job) for job in given]


def counts(
    *,
    b: int,
    s: int,
    h: int,
    t: int,
    itemsize: int,
    m: int,
    sequence_parallel: bool,
    gather_again: bool,
    recompute: bool,
) -> dict[str, Any]:
    if sequence_parallel and s % t:
        return {"tokens that the ranks do not divide": f"a ValueError that names {s} and {t}"}
    half = ["all-gather", "reduce-scatter"] if sequence_parallel else ["all-reduce"]
    step = [("forward", op, b * s * h) for op in half * 2 * m]
    step += [("recomputed", op, b * s * h) for op in half * 2 * m * recompute]
    step += [("backward", op, b * s * h) for op in [*half, *["all-gather"] * gather_again] * 2 * m]
    step += [("gradients", "all-reduce", (2 + 2 + 1 + 1) * h)] * sequence_parallel
    made = dict.fromkeys(("forward", "recomputed", "backward", "gradients"), 0)
    for key, op, elements in step:
        made[key] += (2 if op == "all-reduce" else 1) * elements * itemsize * (t - 1) // t
    return {**made, "calls": len(step) if t > 1 else 0}


def why(case: Case, given: Given, record: Record) -> str:
    return f"{MAY_HELP}without sequence parallelism the tokens need not divide; a single rank is fine, too"


EXAMPLE = {"b": 1, "s": 2, "h": 4, "t": 2, "itemsize": 2, "m": 1, **dict.fromkeys(WAYS, False)}
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[EXAMPLE],
    why=why,
    rules=[rules.most_messages("0")],
    reads=[no_stores],
    rtol=0,
    atol=1e-3,
)
