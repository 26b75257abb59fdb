"""ch09.plan: models, of which each adds one difficulty; then machines that have room for a stage and no byte more."""

from __future__ import annotations

from typing import Any

from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP

PADDED = "each unit's buffer is padded to a multiple of N, by itself and in every stage"
FITS = '"smallest" is the smallest stage whose first four entries and the activations fit in memory_gb * 10**9 bytes'
NONE = '"smallest" is None where no stage fits'
SEVERAL = [24, 4, 32, 4, 20, 24]
# Per case: the arguments; `stage`: the one that just fits, but for `spare` bytes.
CASES: dict[str, dict[str, Any]] = {
    "two equal units": {},
    "units of several sizes": {
        "says": "of the units that follow one another, the two that need most are gathered in stage 3",
        "units": SEVERAL,
    },
    "padding": {"says": PADDED, "units": [13, 10, 6, 5]},
    "padding that makes another pair the larger": {"says": PADDED, "units": [16, 16, 9, 17], "num_ranks": 8},
    "three micro-batches": {
        "says": "some passes are made for each micro-batch and some once a step, as the last table says",
        "accumulation": 3,
    },
    "one unit": {"says": "of a model of one unit, its weights only are gathered in stage 3", "units": [9]},
    "room for stage 0, and no more": {"says": f"{FITS}; exactly full fits", "units": SEVERAL, "stage": 0},
    "room for stage 1, and no more": {"says": FITS, "units": SEVERAL, "stage": 1},
    "room for stage 3, and no more": {"says": FITS, "units": SEVERAL, "stage": 3},
    "a model that is much too large": {
        "says": NONE,
        "units": [10**9, 10**9],
        "memory_gb": 20,
        "activation_bytes": 19 * 10**9,
    },
    "a byte too little for stage 3": {"says": NONE, "units": SEVERAL, "stage": 3, "spare": -1},
}
SHARD, WHOLE = "-(-unit // num_ranks)", "shard, whole = sum(shards), sum(shards) * num_ranks"
PASSES, SENT = "passes = [2, 2, accumulation + 1, 3 * accumulation]", "passes[stage] * 2 * shard * (num_ranks - 1)"
WEIGHTS, GRADIENTS = (
    '"weights": 2 * (shard if stage == 3 else whole)',
    '"gradients": 2 * (shard if stage >= 2 else whole)',
)
OPTIMIZER, MORE = '"optimizer": 12 * (shard if stage >= 1 else whole)', "+ neighbours * (stage == 3)"
GRADIENT, PAIRS = "largest * (stage >= 2)", "max([sum(pair) for pair in pairwise(shards)], default=shards[0])"
HELD, FITTING = "sum(held.values()) + activation_bytes", 'if fits and made["smallest"] is None:'
EDITS = (
    Edit("the padding is left out: each unit's buffer is a multiple of N", {SHARD: "unit / num_ranks"}),
    Edit("n // N drops what is left over: a shard holds n / N, rounded up", {SHARD: "unit // num_ranks"}),
    Edit("all units are padded as one buffer: each has a buffer of its own",
         {WHOLE: "shard = -(-sum(units) // num_ranks); whole = shard * num_ranks"}),
    Edit("the weights are divided in stages 1 and 2 already: only stage 3 does that",
         {WEIGHTS: WEIGHTS.replace("== 3", ">= 1")}),
    Edit("the weights are divided in stage 2 already: only stage 3 does that",
         {WEIGHTS: WEIGHTS.replace("== 3", ">= 2")}),
    Edit("the weights are whole in stage 3: it divides them", {WEIGHTS: '"weights": 2 * whole'}),
    Edit("the gradients are divided in stage 1 already: stage 2 does that",
         {GRADIENTS: GRADIENTS.replace("2 else", "1 else")}),
    Edit("the gradients are whole in stage 2: it divides them", {GRADIENTS: GRADIENTS.replace("2 else", "3 else")}),
    Edit("stage 0 divides the optimizer's state: it divides nothing", {OPTIMIZER: '"optimizer": 12 * shard'}),
    Edit("the optimizer has 16 bytes for each parameter: 12, beside 2 of weight and 2 of gradient",
         {OPTIMIZER: OPTIMIZER.replace("12", "16")}),
    Edit("the optimizer has 8 bytes for each parameter: 12 with the master", {OPTIMIZER: OPTIMIZER.replace("12", "8")}),
    Edit("weights and gradients have 4 bytes each: in mixed precision they have 2", {
        '"weights": 2': '"weights": 4', '"gradients": 2': '"gradients": 4', '"temporary": 2': '"temporary": 4',
        SENT: SENT.replace("2", "4")}),
    Edit("these are numbers of elements, not of bytes", {
        '"weights": 2': '"weights": 1', '"gradients": 2': '"gradients": 1', '"temporary": 2': '"temporary": 1',
        '"optimizer": 12': '"optimizer": 1', SENT: SENT.replace("2", "1")}),
    Edit("nothing temporary is counted, where whole units are needed", {f"({GRADIENT} {MORE})": "0"}),
    Edit("in stage 1 the gradients are whole: nothing is temporary beside them", {GRADIENT: "largest * (stage >= 1)"}),
    Edit("the largest unit's whole gradient is left out of what is temporary", {GRADIENT: "0"}),
    Edit("the gathered weights of stage 3 are left out of what is temporary", {MORE: ""}),
    Edit("one unit's whole weights are counted: two are gathered, as one is prefetched",
         {MORE: "+ largest * (stage == 3)"}),
    Edit("the largest unit's weights are counted twice: gathered are two units that follow one another",
         {MORE: "+ 2 * largest * (stage == 3)"}),
    Edit("the weights of all units are counted as gathered: two are, at a time", {MORE: "+ whole * (stage == 3)"}),
    Edit("the weights of the two largest units are counted: gathered are two that follow one another",
         {PAIRS: "sum(sorted(shards)[-2:])"}),
    Edit("the weights of the first two units are counted: another pair of neighbours needs more",
         {PAIRS: "sum(shards[:2])"}),
    Edit("the weights of the last unit and the first are counted: no unit follows the last",
         {PAIRS: "max([a + b for a, b in zip(shards, shards[1:] + shards[:1])] if shards[1:] else shards)"}),
    Edit("the largest unit's weights and its larger neighbour's are counted: another pair may need more together",
         {PAIRS: "max([sum(pair) for pair in pairwise(shards) if max(shards) in pair], default=shards[0])"}),
    Edit("the pair with most parameters is counted: with its padding another pair needs more",
         {PAIRS: "max(zip(map(sum, pairwise(units)), map(sum, pairwise(shards))), default=(0, shards[0]))[1]"}),
    Edit("of a model of one unit no weights are counted as gathered: it has a pair less, but that unit is gathered",
         {"default=shards[0]": "default=0"}),
    Edit("of a model of one unit its weights are counted twice as gathered: there is no second unit",
         {"default=shards[0]": "default=2 * shards[0]"}),
    Edit("the whole gradients of two units are counted: one is there at a time", {GRADIENT: f"2 * {GRADIENT}"}),
    Edit("all bytes of a buffer are sent: a rank sends (N - 1)/N of them", {SENT: "passes[stage] * 2 * whole"}),
    Edit("a rank's own part is sent once in a pass: it sends N - 1 parts", {SENT: "passes[stage] * 2 * shard"}),
    Edit("a pass is missing in each stage: an all-reduce is a reduce-scatter and an all-gather",
         {PASSES: "passes = [1, 1, accumulation, 3 * accumulation - 1]"}),
    Edit("a pass too many is counted in stages 0 to 2: gradients go once, weights once",
         {PASSES: "passes = [3, 3, 3, 3 * accumulation]"}),
    Edit("stage 3 gathers the weights again in backward: it makes 3 passes, not 2",
         {PASSES: PASSES.replace("3 *", "2 *")}),
    Edit("the micro-batches are left out", {PASSES: "passes = [2, 2, 2, 3]"}),
    Edit("every pass is counted for each micro-batch: where gradients are whole, they are added up first, and the "
         "weights of stages 1 and 2 are gathered once a step",
         {PASSES: "passes = [2 * accumulation] * 3 + [3 * accumulation]"}),
    Edit("stage 2 gathers the weights once a step, not for each micro-batch",
         {PASSES: PASSES.replace("accumulation + 1", "2 * accumulation")}),
    Edit("stage 2 reduces the gradients of each micro-batch, not once a step",
         {PASSES: PASSES.replace("accumulation + 1", "2")}),
    Edit("stage 3 gathers the weights for each micro-batch, not once a step",
         {PASSES: PASSES.replace("3 * accumulation", "2 + accumulation")}),
    Edit("stage 3 reduces the gradients of each micro-batch, not once a step",
         {PASSES: PASSES.replace("3 * accumulation", "2 * accumulation + 1")}),
    Edit("1 GB is taken for 2**30 bytes: it is 10**9", {"10**9": "2**30"}),
    Edit("the activations are left out of what has to fit", {HELD: "sum(held.values())"}),
    Edit("what is temporary is left out of what has to fit: it needs memory too",
         {HELD: f'{HELD} - held["temporary"]'}),
    Edit("what is sent is added to what has to fit: it takes no room of its own", {HELD: f"{HELD} + {SENT}"}),
    Edit("what needs exactly the memory is taken for too large: it fits",
         {"activation_bytes <=": "activation_bytes <"}),
    Edit("the largest stage that fits is returned: the smallest sends and waits least", {FITTING: "if fits:"}),
    Edit("the stage that needs least memory is returned: asked is the smallest number of those that fit",
         {"    return made\n":
          '    fitting = [(sum(made[k].values()) - made[k]["sent"], k) for k in range(4)]\n'
          '    fitting = [one for one in fitting if one[0] + activation_bytes <= memory_gb * 10**9]\n'
          '    made["smallest"] = min(fitting)[1] if fitting else None\n    return made\n'}),
    Edit("stage 3 is never returned: it is the smallest where no other fits",
         {"if fits and": "if fits and stage < 3 and"}),
    Edit("stage 3 is returned where no stage fits: then it is None", {"    return made\n":
         '    made["smallest"] = 3 if made["smallest"] is None else made["smallest"]\n    return made\n'}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    p = case.params
    own = {name: p.get(name, default) for name, default in (("units", [8, 8]), ("num_ranks", 4), ("accumulation", 1))}
    own |= {"memory_gb": p.get("memory_gb", 1), "activation_bytes": p.get("activation_bytes", 0)}
    if "stage" in p:
        own["activation_bytes"] = 10**9 - held(count(own)[p["stage"]]) - p.get("spare", 0)
    return [own] * case.world_size


def on_rank(answer: Any, units: Any, num_ranks: Any, accumulation: Any, memory_gb: Any, activation_bytes: Any) -> Any:
    made = answer(units, num_ranks, accumulation, memory_gb, activation_bytes)
    return {f"stage {key}" if isinstance(key, int) else key: value for key, value in made.items()}


def count(own: dict[str, Any]) -> list[dict[str, int]]:
    """The bytes of each stage: 16 for each parameter with padding, and which N-th of them is held."""
    n, a = own["num_ranks"], own["accumulation"]
    buffers = [unit + -unit % n for unit in own["units"]]
    whole, largest = sum(buffers), max(buffers)
    gathered = max([sum(buffers[k : k + 2]) for k in range(max(1, len(buffers) - 1))])
    once = 2 * whole * (n - 1) // n
    stages = []
    for stage, passes in enumerate([2, 2, a + 1, 3 * a]):
        parts = [n if stage >= divided_from else 1 for divided_from in (3, 2, 1)]
        made = {
            name: each * whole // part
            for name, each, part in zip(("weights", "gradients", "optimizer"), (2, 2, 12), parts, strict=True)
        }
        made["temporary"] = [0, 0, 2 * largest, 2 * (largest + gathered)][stage]
        stages.append({**made, "sent": passes * once})
    return stages


def held(stage: dict[str, int]) -> int:
    return sum(stage.values()) - stage["sent"]


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    own = given[0]
    stages = count(own)
    room = own["memory_gb"] * 10**9 - own["activation_bytes"]
    smallest = next((k for k, stage in enumerate(stages) if held(stage) <= room), None)
    return [{**{f"stage {k}": stage for k, stage in enumerate(stages)}, "smallest": smallest}] * case.world_size


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised: the arguments of the call."""
    return f"{MAY_HELP}it was called with {', '.join(f'{name} = {value}' for name, value in given[0].items())}"


EXAMPLE = {"units": [5, 7], "num_ranks": 4, "accumulation": 1, "memory_gb": 1, "activation_bytes": 0}
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
