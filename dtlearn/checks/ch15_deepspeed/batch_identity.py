"""ch15.batch_identity: one size missing, then two; then replicas of several ranks, and what does not fit.

The identity is made here from its factors, so that the whole is known: nothing is divided. `tests/course` holds the
solution against DeepSpeed's own configuration, where it is installed.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Finding, Given, rules
from dtlearn.runtime.record.record import Record

from ..sent import no_stores
from . import MAY_HELP

TRAIN, MICRO = "train_batch_size", "train_micro_batch_size_per_gpu"
STEPS = "gradient_accumulation_steps"
# Per case: `has`, the keys that are there; `steps`, `tp`, `pp`; `plus`, samples too many; `times`, what the global
# batch is multiplied by; `also`, other keys; `sign`, of the sizes; `zero`, the size that is 0; `more_ranks`, left over;
# `refused`, what is wrong beside the identity. Where the identity is broken, dp is no other number of the case.
CASES: dict[str, dict[str, Any]] = {
    "the accumulation is missing": {"has": [TRAIN, MICRO]},
    "the global batch is missing": {
        "says": "the global batch is micro-batch times accumulation times replicas",
        "has": [MICRO, STEPS],
    },
    "the micro-batch is missing": {
        "says": "the micro-batch is the global batch, divided by the accumulation and by the replicas",
        "has": [TRAIN, STEPS],
    },
    "only the global batch is there": {
        "says": "where only the global batch is given, the accumulation is 1 and the micro-batch follows",
        **{"has": [TRAIN], "steps": 1},
    },
    "only the micro-batch is there": {
        "says": "where only the micro-batch is given, the accumulation is 1 and the global batch follows",
        **{"has": [MICRO], "steps": 1},
    },
    "replicas of several ranks": {
        "says": "dp is the ranks divided by tp and by pp: ranks that share a replica share its samples",
        **{"has": [MICRO, STEPS], "tp": 2, "pp": 3},
    },
    "their accumulation is missing": {
        "says": "the accumulation follows from dp as well, not from the number of ranks",
        **{"has": [TRAIN, MICRO], "tp": 2, "pp": 2},
    },
    "their micro-batch is missing": {
        "says": "the micro-batch follows from dp as well, not from the number of ranks",
        **{"has": [TRAIN, STEPS], "tp": 3},
    },
    "other keys": {
        "says": "all other keys of config stay in the result, and config itself is not changed",
        **{"has": [TRAIN, MICRO], "also": {"zero_optimization": {"stage": 2}, "gradient_clipping": 0.0}},
    },
    "all three are there": {"says": "sizes that are given and fit stay", "has": [TRAIN, MICRO, STEPS]},
    "all three are there and do not fit": {
        "says": "three sizes that break the identity need a ValueError that names the global batch and dp",
        **{"has": [TRAIN, MICRO, STEPS], "times": 2, "tp": 3},
    },
    "all three are there with a remainder": {
        "says": "three sizes break the identity, too, if they do so by a remainder: expected the same ValueError",
        **{"has": [TRAIN, MICRO, STEPS], "plus": 1},
    },
    "a remainder for the accumulation": {
        "says": "a global batch that micro-batch and replicas do not divide needs a ValueError that names it and dp",
        **{"has": [TRAIN, MICRO], "plus": 1, "tp": 3},
    },
    "a remainder for the micro-batch": {
        "says": "a global batch that accumulation and replicas do not divide needs a ValueError that names it and dp",
        **{"has": [TRAIN, STEPS], "plus": 1, "pp": 3},
    },
    "a global batch for too few replicas": {
        "says": "a global batch alone that the replicas do not divide needs a ValueError that names it and dp",
        **{"has": [TRAIN], "steps": 1, "plus": 1},
    },
    "only the accumulation is there": {
        "says": "without a global batch and a micro-batch nothing follows: expected a ValueError",
        **{"has": [STEPS], "refused": "neither batch"},
    },
    "none of the three is there": {
        "says": "without any of the three sizes nothing follows: expected a ValueError",
        **{"has": [], "refused": "no size"},
    },
    "ranks that tp and pp do not divide": {
        "says": "expected a ValueError where tp times pp does not divide the ranks",
        **{"has": [MICRO, STEPS], "tp": 2, "pp": 2, "more_ranks": 2, "refused": "ranks left over"},
    },
    "sizes below 0": {
        "says": "two negative sizes can fit the identity and are no sizes: expected a ValueError",
        **{"has": [TRAIN, MICRO], "sign": -1, "refused": "negative sizes"},
    },
    "a micro-batch of 0": {
        "says": "0 samples are no micro-batch: expected a ValueError before anything is divided by it",
        **{"has": [TRAIN, MICRO], "zero": MICRO, "refused": "an empty micro-batch"},
    },
    "an accumulation of 0": {
        "says": "a step of 0 micro-batches is none, though it fits the identity: expected a ValueError",
        **{"has": [MICRO, STEPS], "zero": STEPS, "refused": "no pass"},
    },
    "a global batch of 0": {
        "says": "a step of 0 samples is none, though it fits the identity: expected a ValueError",
        **{"has": [TRAIN], "zero": TRAIN, "refused": "an empty batch"},
    },
}  # fmt: skip
DP, FILL_STEPS = "dp = world_size // (tp * pp)", "train // (micro * dp)"
FILL_MICRO, FILL_TRAIN = "micro = train // (steps * dp)", "train = micro * steps * dp\n"
ALONE = "steps = 1 if train is None or micro is None else"
HOLDS, DIVIDES = "if train != micro * steps * dp:", "if world_size % (tp * pp):"
GIVEN = "train, micro, steps = (config.get(key) for key in (TRAIN, MICRO, STEPS))"
RESULT = "return {**config, TRAIN: train, MICRO: micro, STEPS: steps}"
NEITHER, POSITIVE = "if train is None and micro is None:", "if any(size is not None and size < 1 for"
ALL, FILL = "for size in (train, micro, steps)):", "    if steps is None:\n"
EDITS = (
    Edit("the replicas are left out of the identity: every replica takes its own micro-batches", {DP: "dp = 1"}),
    Edit("dp is the number of ranks: those that share a replica count once, divide by tp, pp", {DP: "dp = world_size"}),
    Edit("dp is divided by tp only: stages of a pipeline see the same samples", {DP: "dp = world_size // tp"}),
    Edit("dp is divided by pp only: tensor-parallel ranks see the same samples", {DP: "dp = world_size // pp"}),
    Edit("the accumulation is divided by all ranks, not by dp", {FILL_STEPS: "train // (micro * world_size)"}),
    Edit("the micro-batch is divided by all ranks, not by dp", {FILL_MICRO: "micro = train // (steps * world_size)"}),
    Edit("the accumulation is the global batch divided by the micro-batch, without the replicas",
         {FILL_STEPS: "train // micro", HOLDS: "if STEPS in config and train != micro * steps * dp:"}),
    Edit("the global batch that is filled in leaves out the accumulation", {FILL_TRAIN: "train = micro * dp\n",
         HOLDS: "if TRAIN in config and train != micro * steps * dp:"}),
    Edit("the global batch that is filled in leaves out the replicas", {FILL_TRAIN: "train = micro * steps\n",
         HOLDS: "if TRAIN in config and train != micro * steps * dp:"}),
    Edit("the micro-batch that is filled in leaves out the accumulation",
         {FILL_MICRO: "micro = train // dp", HOLDS: "if MICRO in config and train != micro * steps * dp:"}),
    Edit("the micro-batch that is filled in leaves out the replicas",
         {FILL_MICRO: "micro = train // steps", HOLDS: "if MICRO in config and train != micro * steps * dp:"}),
    Edit("a global batch alone is taken for one replica's: each of dp replicas has a part of it",
         {FILL_MICRO: "micro = train // (steps * dp) if STEPS in config else train",
          HOLDS: "if len({TRAIN, MICRO, STEPS} & set(config)) > 1 and train != micro * steps * dp:"}),
    Edit("a global batch alone is not enough here: the accumulation is 1, and the micro-batch follows",
         {NEITHER: "if [train, micro, steps].count(None) > 1 and micro is None:"}),
    Edit("a micro-batch alone is not enough here: the accumulation is 1, and the global batch follows",
         {NEITHER: "if [train, micro, steps].count(None) > 1 and train is None:"}),
    Edit("config itself is changed: fill the sizes into a new dict",
         {RESULT: "config.update({TRAIN: train, MICRO: micro, STEPS: steps})\n    return config"}),
    Edit("the other keys of config are lost: the result is a whole ds_config",
         {RESULT: "return {TRAIN: train, MICRO: micro, STEPS: steps}"}),
    Edit("the identity is not checked: a remainder is rounded away", {HOLDS: "if False:"}),
    Edit("three sizes that are given are not checked: they may break the identity",
         {HOLDS: "if None in map(config.get, (TRAIN, MICRO, STEPS)) and train != micro * steps * dp:"}),
    Edit("three sizes are refused only where a remainder is left: the product has to be the global batch itself",
         {FILL: "    if steps is None or None not in (train, micro):\n"}),
    Edit("the identity is checked by a division, and rounds", {HOLDS: "if train // (micro * dp) != steps:"}),
    Edit("three sizes are refused though they fit: nothing is missing, and nothing is wrong",
         {NEITHER: "if train is None and micro is None or None not in (train, micro, steps):"}),
    Edit("a remainder is rounded away where the accumulation is filled in",
         {HOLDS: "if STEPS not in config and MICRO in config:\n        pass\n    elif train != micro * steps * dp:"}),
    Edit("a remainder is rounded away where the micro-batch is filled in",
         {HOLDS: "if MICRO in config and train != micro * steps * dp:"}),
    Edit("a remainder is rounded away where the global batch is alone",
         {HOLDS: "if (MICRO in config or STEPS in config) and train != micro * steps * dp:"}),
    Edit("the message of the ValueError has to name the global batch and dp",
         {'f"{TRAIN} {train} is not {micro} * {steps} * {dp} replicas"': '"the batch sizes do not fit"'}),
    Edit("with the accumulation alone, a micro-batch of 1 is made up: expected a ValueError",
         {NEITHER: "if train is None and micro is None:\n        micro = 1\n    if False:"}),
    Edit("where none of the three is there, a micro-batch of 1 is made up: expected a ValueError",
         {NEITHER: "if train is None and micro is None and steps is None:\n        micro = 1\n"
          "    elif train is None and micro is None:"}),
    Edit("the accumulation is not looked at: below 1 it is none", {ALL: "for size in (train, micro)):"}),
    Edit("the global batch is not looked at: below 1 it is none", {ALL: "for size in (micro, steps)):"}),
    Edit("ranks that tp times pp leaves over are dropped: expected a ValueError",
         {DIVIDES: "if world_size % tp or world_size % pp:"}),
    Edit("the sign of the sizes is not looked at", {POSITIVE: "if any(size == 0 for"}),
    Edit("a micro-batch of 0 is taken for one that is missing: 0 is a number, None is none",
         {GIVEN: "train, micro, steps = (config.get(key) or None for key in (TRAIN, MICRO, STEPS))"}),
)  # fmt: skip


def any_of(g: torch.Generator, *choices: int) -> int:
    return choices[int(torch.randint(len(choices), (), generator=g))]


def inputs(case: Case) -> Given:
    g, p = case.generator(), case.params
    pick = partial(any_of, g)
    sizes = {MICRO: pick(3, 5, 7), STEPS: p.get("steps", pick(2, 4))}
    breaks = "plus" in p or "times" in p
    tp, pp, dp = p.get("tp", 1), p.get("pp", 1), pick(11, 13, 17) if breaks else pick(2, 4, 8)
    sizes[TRAIN] = sizes[MICRO] * sizes[STEPS] * dp
    result = {key: sizes[key] for key in (TRAIN, MICRO, STEPS)}
    if breaks:
        sizes[TRAIN] = sizes[TRAIN] * p.get("times", 1) + p.get("plus", 0)
        result = {"refused": [sizes[TRAIN], dp]}
    sizes = {key: 0 if p.get("zero") == key else p.get("sign", 1) * size for key, size in sizes.items()}
    result, also = {"refused": []} if "refused" in p else result, p.get("also", {})
    config = {**also, **{key: sizes[key] for key in p["has"]}}
    own = {"config": config, "world_size": dp * tp * pp + p.get("more_ranks", 0), "tp": tp, "pp": pp}
    return [{**own, "due": {**also, **result}, "looks_back": bool(also)}] * case.world_size


def on_rank(answer: Any, config: Any, world_size: int, tp: int, pp: int, due: Any, looks_back: bool) -> Any:
    import copy

    from dtlearn.grading.on_rank.tools import refusal, refusal_naming

    if due.get("refused"):
        return refusal_naming(due["refused"], answer, config, world_size, tp, pp)
    if "refused" in due:
        said = refusal(answer, config, world_size, tp, pp)
        return "a ValueError" if said.startswith("a ValueError") else said
    before = copy.deepcopy(config)
    try:
        result = answer(config, world_size, tp=tp, pp=pp)
    except ValueError as error:
        return f"a ValueError: {error}"
    return {"result": result, "config is unchanged": config == before} if looks_back else result


def expected(case: Case, given: Given) -> list[Any]:
    """The sizes from which the case was made."""
    due = given[0]["due"]
    if "refused" in due:
        named = " and ".join(map(str, due["refused"]))
        return [f"a ValueError that names {named}" if named else "a ValueError"] * case.world_size
    return [{"result": due, "config is unchanged": True} if given[0]["looks_back"] else due] * case.world_size


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """The sizes must be ints: 2.0 compares as equal to 2, but range() refuses it."""
    for key, size in (got[0].get("result", got[0]) if isinstance(got[0], dict) else {}).items():
        if key in (TRAIN, MICRO, STEPS) and type(size) is not int:
            return Finding("DTL-VALUE-TYPE", f"{key} is {size}: a size is a whole number, so divide with //")
    return None


def why(case: Case, given: Given, record: Record) -> str:
    return f"{MAY_HELP}{case.says or 'a key that is missing is not in config at all'}"


EXAMPLE = {"config": {TRAIN: 64, MICRO: 8}, "world_size": 8, "tp": 2, "pp": 1, "looks_back": False}
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{**EXAMPLE, "due": {TRAIN: 64, MICRO: 8, STEPS: 2}}],
    verify=verify,
    why=why,
    rules=[rules.most_messages("0")],
    reads=[no_stores],
)
