"""ch09.reshard: numbers of ranks before and after, of which each adds one difficulty; then which elements are read."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, Stress, rules
from dtlearn.runtime.record.record import Record

from ..sent import no_stores
from . import MAY_HELP

KEYS = ("values", "exp_avg", "exp_avg_sq")
STEP = "the number of steps is that of the ranks that had elements: where a rank had padding only it is 0"
# Per case: `elements` of the units; `saved_by`, S; N; and the rank.
CASES: dict[str, dict[str, Any]] = {
    "from 4 ranks to 2": {},
    "two units": {"says": "each unit has its own number of elements, and of steps", "elements": [8, 12]},
    "padding in the files": {
        "says": "padding in the files holds any values: the new shards are cut from the elements without it",
        "elements": [10],
    },
    "padding in the new shard": {
        "says": "a new shard has the length of all others, with zeros for padding, whatever the files have there",
        "elements": [10],
        "num_ranks": 3,
        "rank": 2,
    },
    "a shard that is padding only": {
        "says": "a rank may have nothing but padding: zeros, and the steps that the others have",
        "elements": [3],
        "saved_by": 2,
        "num_ranks": 8,
        "rank": 5,
    },
    "a file that is padding only": {"says": STEP, "elements": [5], "num_ranks": 5, "rank": 3},
    "as many ranks as before": {
        "says": "with as many ranks as before the padding in the file holds any values, too: it becomes zeros",
        "elements": [7],
        "saved_by": 3,
        "num_ranks": 3,
        "rank": 2,
    },
    "nine files for one shard": {"says": "the elements of a shard may lie in any number of files", "elements": [18],
                                 "saved_by": 9, "num_ranks": 1, "rank": 0},
    "what is read": {
        "says": "each element of this rank is read once, with saved.read(), and no other, no padding either",
        "elements": [10, 7],
        "num_ranks": 3,
        "look": "reads",
    },
}  # fmt: skip
SIZES, RANGE = (
    "old, new = -(-size // saved.num_ranks), -(-size // num_ranks)",
    "first, end = min(rank * new, size), min((rank + 1) * new, size)",
)
SET, READ, SAVED = "made[unit][key] = shard", "part = saved.read(file, unit, key,", "saved.step(0, unit)"
FILES = (
    "for file in range(saved.num_ranks):\n                "
    "start, stop = max(first, file * old), min(end, (file + 1) * old)"
)
EDITS = (
    Edit("the padding of the files is taken over: it holds any values, and new padding is zeros",
         {RANGE: "first, end = rank * new, (rank + 1) * new"}),
    Edit("there is no padding: each shard of a unit has the same length on all ranks", {SET: f"{SET}[:place]"}),
    Edit("the new shards are cut from the length with the old padding: a shard holds size / N, rounded up",
         {SIZES: "old = -(-size // saved.num_ranks); new = -(-(old * saved.num_ranks) // num_ranks)"}),
    Edit("a rank takes the file of the same number: its elements lie in others, too",
         {FILES: "for file in [min(rank, saved.num_ranks - 1)]:\n                "
                 "start, stop = file * old, file * old + min(old, new)"}),
    Edit("the moments are zeros: they are saved, and cut like the values",
         {SET: 'made[unit][key] = shard if key == "values" else torch.zeros(new)'}),
    Edit("exp_avg and exp_avg_sq are in each other's place",
         {READ: 'part = saved.read(file, unit, {"exp_avg": "exp_avg_sq", "exp_avg_sq": "exp_avg"}.get(key, key),'}),
    Edit("the moments are the values: each key is read by its name", {READ: READ.replace("key", '"values"')}),
    Edit("the number of steps is 0: Adam then corrects its moments as if they were new", {SAVED: "0"}),
    Edit("the number of steps is that of one file, such as this rank's or the last: with padding only it is 0",
         {SAVED: "saved.step(saved.num_ranks - 1, unit)"}),
    Edit("the numbers of steps of all files are added up: each says it of the same steps",
         {SAVED: "sum(saved.step(r, unit) for r in range(saved.num_ranks))"}),
    Edit("a rank whose own shard is padding only has no number of steps: it is the same for every rank",
         {SAVED: f"{SAVED} * (first < end)"}),
    Edit("the number of steps of the first unit is taken for all", {SAVED: "saved.step(0, next(iter(saved.units)))"}),
    Edit("each element is read twice",
         {READ: f"saved.read(file, unit, key, start - file * old, stop - file * old); {READ}"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, p, units = case.generator(), case.params, dict[str, Any]()
    own = {name: p.get(name, default) for name, default in (("saved_by", 4), ("num_ranks", 2), ("rank", 1))}
    for name, size in zip(("norm", "block"), p.get("elements", [8]), strict=False):
        length = -(-size // own["saved_by"]) * own["saved_by"]
        saved = {key: torch.randn(length, generator=g) for key in KEYS}
        units[name] = {"size": size, "saved": saved, "steps": int(torch.randint(3, 90, (), generator=g))}
    return [{**own, "units": units, "look": p.get("look", "")}] * case.world_size


def on_rank(answer: Any, units: Any, saved_by: Any, num_ranks: Any, rank: Any, look: Any) -> Any:
    reads: Any = {name: {key: [] for key in unit["saved"]} for name, unit in units.items()}

    class Saved:
        """The files of all ranks, which note what is read of them."""

        def __init__(self) -> None:
            self.num_ranks = saved_by
            self.units = {name: unit["size"] for name, unit in units.items()}

        def read(self, r: int, unit: str, key: str, start: int, stop: int) -> Any:
            whole = units[unit]["saved"][key]
            k = len(whole) // saved_by
            if not 0 <= r < saved_by:
                raise ValueError(f"there is no file of rank {r}: {saved_by} ranks saved")
            if not 0 <= start <= stop <= k:
                raise ValueError(f"elements {start} to {stop} of {unit!r}: a shard of this file has {k}")
            reads[unit][key] += range(r * k + start, r * k + stop)
            return whole[r * k + start : r * k + stop].clone()

        def step(self, r: int, unit: str) -> int:
            if not 0 <= r < saved_by:
                raise ValueError(f"there is no file of rank {r}: {saved_by} ranks saved")
            own = units[unit]
            return int(own["steps"]) if r * (len(own["saved"]["values"]) // saved_by) < own["size"] else 0

    made = answer(Saved(), num_ranks, rank)
    elements = {name: {key: sorted(one) for key, one in keys.items()} for name, keys in reads.items()}
    return {"elements that are read": elements} if look == "reads" else made


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    own, made, reads = given[0], dict[str, Any](), dict[str, Any]()
    for name, unit in own["units"].items():
        k, size = -(-unit["size"] // own["num_ranks"]), unit["size"]
        whole = {
            key: torch.cat([v[:size], torch.zeros(own["num_ranks"] * k - size)]) for key, v in unit["saved"].items()
        }
        made[name] = {"step": unit["steps"], **{key: v[own["rank"] * k :][:k] for key, v in whole.items()}}
        reads[name] = dict.fromkeys(KEYS, list(range(size))[own["rank"] * k :][:k])
    return [{"elements that are read": reads} if own["look"] == "reads" else made] * case.world_size


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised: the sizes, and what is special about its case."""
    own, special = given[0], f"; {case.says}" if case.says else ""
    sizes = " and ".join(str(unit["size"]) for unit in own["units"].values())
    text = f"S = {own['saved_by']}, N = {own['num_ranks']}, rank {own['rank']}, units of {sizes} elements"
    return f"{MAY_HELP}{text}{special}"


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    why=why,
    rules=[rules.most_messages("0")],
    reads=[no_stores],
    stress=Stress(poison=True),  # padding of torch.empty
    rtol=0.0,
    atol=0.0,
)
