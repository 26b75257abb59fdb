"""What a block sends in a step, right and in ways that people count it wrong: for `block_bytes`."""

from __future__ import annotations

from typing import Any

from ...ch08_memory._counts import Counts

KEYS = ("forward", "recomputed", "backward", "gradients", "calls")
FLAGS = ("sequence_parallel", "gather_again", "recompute")
Job = dict[str, Any]
_T = "DTL-VALUE-TRAFFIC"
SAYS = {
    "one half": (
        "DTL-VALUE-ONE-HALF",
        "one half of the block is counted: attention and feed-forward have f and g each",
    ),
    "half of f and g": (
        "DTL-VALUE-ONE-HALF",
        "half of what f and g send is counted: both halves of the block have them, and an all-reduce is two passes",
    ),
    "no backward": ("DTL-VALUE-BACKWARD-FREE", "the backward pass is left out: there f sends"),
    "twice backward": (_T, "the backward pass is counted twice: it computes twice as much, and sends as much"),
    "one way": (_T, "an all-reduce is counted as one pass: it is a reduce-scatter and an all-gather, 2 (t - 1)/t"),
    "whole": (_T, "whole tensors are counted: a rank sends (t - 1)/t of one in each pass of the ring"),
    "by rank": (_T, "a rank's t-th part is counted as sent once: it goes to t - 1 ranks"),
    "times ranks": (_T, "t - 1 whole tensors are counted: a rank sends (t - 1)/t of one in each pass of the ring"),
    "all ranks": (_T, "the bytes of all t ranks are added up: asked are those of one"),
    "half with tokens": (
        "DTL-VALUE-TOKENS-HALF",
        "sequence parallelism is taken to send half: an all-gather and a reduce-scatter are one all-reduce",
    ),
    "twice with tokens": (
        "DTL-VALUE-TOKENS-TWICE",
        "an all-gather and a reduce-scatter are counted as two all-reduces: they are one",
    ),
    "parts of tokens": (
        "DTL-VALUE-TOKENS-PART",
        "a rank's own tokens are counted as the whole tensor: that is what an all-gather makes of all parts",
    ),
    "calls with tokens": (
        "DTL-VALUE-CALLS",
        "an all-gather and a reduce-scatter are counted as one call: they are two",
    ),
    "one gather again": ("DTL-VALUE-GATHER-AGAIN", "tokens are gathered again in one half only: both do"),
    "gather again once": (
        "DTL-VALUE-MICROBATCHES",
        "tokens are gathered again for one micro-batch only: each does so in its backward pass",
    ),
    "no gather again": ("DTL-VALUE-GATHER-AGAIN", "gather_again is left out: each half gathers once more in backward"),
    "reduced again": ("DTL-VALUE-GATHER-AGAIN", "gather_again is counted as an all-reduce: it is an all-gather"),
    "gather each pass": ("DTL-VALUE-GATHER-AGAIN", "tokens are gathered again in forward too: only backward does that"),
    "not recomputed": ("DTL-VALUE-RECOMPUTED", "the forward pass that runs again sends too, as much as the first one"),
    "always recomputed": ("DTL-VALUE-RECOMPUTED", "a forward pass is counted as run again where recompute is off"),
    "recomputed half": ("DTL-VALUE-RECOMPUTED", "the forward pass that runs again is counted for one half"),
    "stops early": (
        "DTL-VALUE-RECOMPUTED",
        "the last g is left out of the forward pass that runs again: here the pass runs again as a whole",
    ),
    "stops at three quarters": (
        "DTL-VALUE-RECOMPUTED",
        "a quarter of the forward pass that runs again is left out: it runs again as a whole, the last g included",
    ),
    "recomputed in backward": (
        "DTL-VALUE-TWICE",
        "the forward pass that runs again is counted in the backward pass too: it has a key of its own",
    ),
    "gather again or recompute": (
        "DTL-VALUE-GATHER-AGAIN",
        "with recompute tokens are not gathered again: gather_again does that in backward in any case",
    ),
    "one micro-batch": ("DTL-VALUE-MICROBATCHES", "the micro-batches are left out"),
    "gradients each": ("DTL-VALUE-GRADIENTS-EACH", "gradients are added up once a step, not for each micro-batch"),
    "gradients always": (
        "DTL-VALUE-GRADIENTS-ALWAYS",
        "without sequence parallelism every rank has the whole gradients of norms and biases: nothing is sent",
    ),
    "no biases": ("DTL-VALUE-PARTIAL-BIASES", "the biases of the row-parallel layers are left out"),
    "no norm biases": ("DTL-VALUE-PARTIAL-BIASES", "the biases of the norms are left out"),
    "weights only": ("DTL-VALUE-PARTIAL-BIASES", "only the weights of the norms are counted"),
    "one norm": ("DTL-VALUE-ONE-HALF", "one norm and one bias are counted: the block has two of each"),
    "no gradients": ("DTL-VALUE-PARAMETERS-FREE", "partial gradients of norms and biases are left out"),
    "gradients one way": (_T, "the gradients' all-reduce is counted as one pass: 2 (t - 1)/t of their bytes are sent"),
    "call each": ("DTL-VALUE-CALLS", "one call is counted for each parameter: one all-reduce adds up all of them"),
    "calls alone": ("DTL-VALUE-CALLS", "a single rank has nobody to call"),
    "calls once": ("DTL-VALUE-CALLS", "the calls are those of one micro-batch"),
    "weights sent": ("DTL-VALUE-WEIGHTS-SENT", "weights are counted, h^2: tensor parallelism sends activations"),
    "wide": ("DTL-VALUE-WIDE", "the feed-forward's hidden features are counted: they stay divided; what is sent has h"),
    "elements": ("DTL-VALUE-ELEMENTS", "this is a number of elements, not of bytes"),
    "bits": ("DTL-VALUE-ELEMENTS", "this is a number of bits, not of bytes"),
}


def count(job: Job, mistakes: frozenset[str] = frozenset()) -> Counts:
    """Bytes, and calls, with these mistakes of `SAYS`."""
    wrong = mistakes.__contains__
    b, s, h, t, m = (job[name] for name in ("b", "s", "h", "t", "m"))
    with_tokens, gather_again, recompute = (job[name] for name in FLAGS)
    itemsize = 1 if wrong("elements") else 8 * job["itemsize"] if wrong("bits") else job["itemsize"]
    part = (t - 1) / t  # of a tensor that is sent in one pass
    part = (1 if t > 1 else 0) if wrong("whole") else part
    part = (
        (1 / t if t > 1 else 0) if wrong("by rank") else t - 1 if wrong("times ranks") or wrong("all ranks") else part
    )
    halves = 1 if wrong("one half") else 2
    times = 1 if wrong("one micro-batch") else m
    whole = h * h if wrong("weights sent") else b * s * h
    whole = whole / t if with_tokens and wrong("parts of tokens") else whole
    once = whole * itemsize * part * times  # of one half, in one pass
    double = 1 if wrong("one way") and not with_tokens else 2
    if with_tokens:
        double = 1 if wrong("half with tokens") else 4 if wrong("twice with tokens") else 2
    forward = halves * double * once * (2.5 if wrong("wide") else 1)  # h in one half, 4 h in the other
    forward *= 0.5 if wrong("half of f and g") else 1
    again_in = (0 if wrong("no gather again") else 1 if wrong("one gather again") else halves) * gather_again
    again_in *= 2 if wrong("reduced again") else 1
    either = wrong("gather again or recompute") and recompute
    again_in *= not either
    again_in /= m if wrong("gather again once") else 1
    backward = (0 if wrong("no backward") else forward * (2 if wrong("twice backward") else 1)) + again_in * once
    runs_again = (recompute and not wrong("not recomputed")) or (wrong("always recomputed") and not recompute)
    recomputed = forward * runs_again * (0.5 if wrong("recomputed half") else 1)
    stops = runs_again and (wrong("stops early") or wrong("stops at three quarters"))
    recomputed *= 1 if not stops else 0.75 if with_tokens or wrong("stops at three quarters") else 0.5
    backward += recomputed * wrong("recomputed in backward")
    of_parameters = 4 if wrong("no biases") or wrong("no norm biases") else 2 if wrong("weights only") else 6
    of_parameters = 3 if wrong("one norm") else 0 if wrong("no gradients") else of_parameters
    partial = with_tokens or wrong("gradients always")
    gradients = of_parameters * h * itemsize * part * (1 if wrong("gradients one way") else 2) * partial
    gradients *= m if wrong("gradients each") else 1
    each = 2 if with_tokens and not wrong("calls with tokens") else 1
    passes = (0 if wrong("no backward") else 1) + 1 + int(runs_again)
    extra = (0 if wrong("no gather again") else 1 if wrong("one gather again") else halves) * gather_again
    extra /= m if wrong("gather again once") else 1
    calls = (1 if wrong("calls once") else times) * (halves * passes * each + extra * (not either))
    at_end = 0 if wrong("no gradients") else 6 if wrong("call each") else m if wrong("gradients each") else 1
    calls += at_end * partial - times * stops
    if wrong("gather each pass"):
        forward += halves * once * gather_again
        recomputed += halves * once * gather_again * runs_again
        calls += times * halves * gather_again * (1 + int(runs_again))
    calls = calls if t > 1 or wrong("calls alone") else 0
    values = (forward, recomputed, backward, gradients, calls)
    return {key: round(value) for key, value in zip(KEYS, values, strict=True)}
