"""ch12.dropout_seeds: numbers drawn outside and inside of split regions, after an exception, and computed again.

What is drawn outside is known: it is torch's own after `manual_seed`. What is drawn inside is not: only what one region
of a second object draws, which has to be the same. So each number that is drawn is told by its place in one of the two
sequences: "outside 0", "inside 2"; or "none of both".
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.runtime.record.record import Record

from ..sent import no_stores
from . import MAY_HELP, SOME, groups_of

FORWARD = ["outside", "region"]
# Per case: what is done. "outside" and "region" draw; "error" and "interrupt" draw in a region and end it so.
CASES: dict[str, dict[str, Any]] = {
    "one region": {},
    "a second region": {
        "says": "a region goes on where the one before ended, whatever was drawn outside",
        "program": [*FORWARD, *FORWARD, *FORWARD],
    },
    "an exception that ends a region": {
        "says": "an exception ends a block as anything else does (try ... finally), and is not caught",
        "program": [*FORWARD, "error", *FORWARD],
    },
    "an interrupt that ends a region": {
        "says": "KeyboardInterrupt, which is no Exception, ends a block as anything else does (try ... finally)",
        "program": [*FORWARD, "interrupt", *FORWARD],
    },
    "a recomputation": {
        "says": "after restore() the numbers outside and inside are those that came after that call of states(); and "
        "states() changes nothing",
        "program": [*FORWARD, "states 0", *FORWARD, "states 1", "restore 0", *FORWARD, "restore 1", *FORWARD],
    },
    "states restored twice": {
        "says": "restore() may be called several times with the same states: a block or restore() changed them",
        "program": [*FORWARD, "states 0", *FORWARD, "restore 0", *FORWARD, "restore 0", *FORWARD],
    },
    "states from before the first region": {
        "says": "states() may be called before the first region: the numbers inside begin with the object",
        "program": ["states 0", *FORWARD, "restore 0", *FORWARD],
    },
    "the seed 0": {"says": "with the seed 0, too, each rank has numbers of its own", "seed": 0},
    "groups of fewer ranks": {
        "says": "the numbers inside follow from the seed and the place in the group alone, not from the rank in the "
        "world",
        "groups": SOME,
    },
}
SEED, COMMON, RANK = "seed + 2718 + dist.get_rank(group)", "        torch.manual_seed(seed)\n", "dist.get_rank(group)"
ENTER, KEEP, BACK = (
    "torch.set_rng_state(self._own)",
    "self._own = torch.get_rng_state()\n    ",
    "        torch.set_rng_state(outside)",
)
END, STATES = f"            {KEEP}{BACK}", "return torch.get_rng_state(), self._own"
TRY, RESTORE = f"        try:\n            yield\n        finally:\n{END}", "outside, self._own = states\n"
EDITS = (
    Edit("the first numbers outside are not those after torch.manual_seed(seed): seed the generator with seed itself "
         "on all ranks, after anything else that you do with it", {COMMON: ""}),
    Edit("rank 0 draws inside what is drawn outside too: its own seed is the common one, as seed + 0 is",
         {SEED: f"seed + {RANK}"}),
    Edit("the ranks draw the same numbers inside a split region: their heads get one mask", {SEED: "seed + 2718"}),
    Edit("what is drawn inside comes next outside: the generator's state is the same in the block", {ENTER: "pass"}),
    Edit("one sequence from two places on, on two ranks: a layer's dropout draws millions of numbers, and they meet. "
         "Seed them differently", {f"{SEED})": f"seed + 2718); torch.rand(1000 * {RANK})"}),
    Edit("a second dropout_seeds(seed) draws other numbers inside than the first one: they should follow from the seed "
         "and the place in the group alone, not from what was drawn before", {f"manual_seed({SEED})": "seed()"}),
    Edit("the numbers inside are the same with another seed: they should follow from the seed",
         {SEED: f"2718 + {RANK}"}),
    Edit("after a region the numbers outside go on with those of the region: set the generator's state back",
         {END: f"            {KEEP}".rstrip()}),
    Edit("after a region the numbers outside begin again from the seed: set the state back that was there before",
         {END: END.replace("set_rng_state(outside)", "manual_seed(self.seed)"),
          COMMON: f"{COMMON}        self.seed = seed\n"}),
    Edit("each region draws the numbers of the first one again, in each layer the same mask: keep the state with which "
         "a region ends", {END: f"    {BACK}"}),
    Edit("an exception in a region ends there: the caller has to see it",
         {"            yield\n": "            yield\n        except Exception:\n            pass\n"}),
    Edit("an exception in a region ends there, whatever it is: the caller has to see it",
         {"            yield\n": "            yield\n        except BaseException:\n            pass\n"}),
    Edit("after an interrupt has ended a region, the numbers outside go on with those of the region. try ... finally "
         "is for exceptions of every kind, KeyboardInterrupt too",
         {TRY: f"{TRY.replace('finally', 'except Exception')}\n            raise\n        else:\n{END}"}),
    Edit("after an exception has ended a region, the numbers outside go on with those of the region. try ... finally "
         "is for exceptions of every kind", {TRY: f"        yield\n{END}".replace("    " * 3, "    " * 2)}),
    Edit("the region after one that an exception ended draws the numbers of that one again: its state has to be kept "
         "then, too (try ... finally)",
         {TRY: f"        try:\n            yield\n            {KEEP.strip()}\n        finally:\n    {BACK}"}),
    Edit("states() from before the first region have no state for the regions, as their generator is seeded in the "
         "first one: make it in the beginning",
         {COMMON: f"{COMMON}        self.begun = False\n", ENTER: f"self.begun = True; {ENTER}",
          STATES: "return torch.get_rng_state(), self._own if self.begun else None",
          RESTORE: "outside, own = states; self._own = self._own if own is None else own\n"}),
    Edit("after restore() the numbers inside are others than in the forward pass: dropout has another mask, and the "
         "gradients belong to another function", {RESTORE: "outside, _ = states\n"}),
    Edit("after restore() the numbers outside are others than in the forward pass: dropout has another mask, and the "
         "gradients belong to another function", {f"{RESTORE}{BACK}": "_, self._own = states"}),
    Edit("after states() the numbers outside are not those that would have come next: it should leave everything as it "
         "is", {STATES: f"torch.rand(1)\n        {STATES}"}),
    Edit("restore() goes back to the last call of states(), whatever it is given: several may be kept, as of several "
         "micro-batches", {STATES: f"self.kept = {STATES.removeprefix('return ')}\n        return self.kept",
                           RESTORE: "outside, self._own = self.kept\n"}),
    Edit("with the seed 0 the ranks draw the same numbers inside: their own seed is a multiple of the common one, and "
         "a multiple of 0 is 0", {SEED: f"seed * ({RANK} + 2)"}),
    Edit("the rank in the world decides what is drawn inside: the place in the group counts",
         {RANK: "dist.get_rank()"}),
    Edit("the number of ranks in the group decides what is drawn inside: the place in the group counts alone",
         {RANK: f"{RANK} + 100 * dist.get_world_size(group)"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    seed = case.params.get("seed", int(torch.randint(1000, 30000, (), generator=case.generator())))
    groups = groups_of(case) if "groups" in case.params else []
    program = case.params.get("program", [*FORWARD, "outside"])
    return [{"seed": seed, "group": groups, "program": program} for _ in range(case.world_size)]


def on_rank(answer: Any, seed: Any, group: Any, program: Any) -> Any:
    from dtlearn.grading.on_rank.tools import own_group

    own, states, seen = own_group(group), {}, 0
    draws: Any = []

    def region_of(seeds: Any, ends: Any = None, times: Any = 1) -> Any:
        with seeds.split():
            draws.extend(torch.rand(4) for _ in range(times))
            if ends:
                raise ends

    seeds = answer(seed, own)
    for step, *number in (text.split() for text in program):
        if step == "outside":
            draws.append(torch.rand(4))
        elif step == "region":
            region_of(seeds)
        elif step == "states":
            states[number[0]] = seeds.states()
        elif step == "restore":
            seeds.restore(states[number[0]])
        else:
            try:
                region_of(seeds, {"error": ValueError("in a region"), "interrupt": KeyboardInterrupt()}[step])
            except (ValueError, KeyboardInterrupt):
                seen += 1
    program_draws, draws, starts = draws, [], []
    for again in (
        (seed, own),
        (seed + 10_007, own),
        (seed, None),
    ):  # each: numbers that one region of a new object draws
        region_of(answer(*again), times=12)
        starts.append(torch.stack(draws[-12:]))
    right = torch.rand(12, 4, generator=torch.Generator().manual_seed(seed))
    known = {
        f"{where} {k}": row for where, rows in (("outside", right), ("inside", starts[0])) for k, row in enumerate(rows)
    }
    labels = [
        next((name for name, row in known.items() if torch.equal(row, one)), "none of both") for one in program_draws
    ]
    everyone = [torch.empty(3, 12, 4) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, torch.stack(starts))
    members = dist.get_process_group_ranks(own or dist.group.WORLD)
    with answer(seed, own).split():
        far = torch.rand(200_000)  # what is drawn later; two ranks' numbers may not meet there either
    pairs = {f"rank {r}": everyone[r][0, 0, :2] for r in members if r != dist.get_rank()} | {"outside": right[0, :2]}
    meets = [name for name, (a, b) in pairs.items() if ((far[:-1] == a) & (far[1:] == b)).any()]
    return {
        "numbers": labels,
        "exceptions that the caller sees": seen,
        "also drawn inside, sooner or later": meets,
        "with another seed there are others": not torch.equal(starts[0], starts[1]),
        "ranks of a group of all ranks that draw the same": [
            r for r, other in enumerate(everyone) if torch.equal(other[2], starts[0])
        ],
    }


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """Two sequences, each with the place where it goes on."""
    results: list[dict[str, Any]] = [{} for _ in given]
    at, kept, labels = {"outside": 0, "inside": 0}, dict[str, dict[str, int]](), list[str]()
    for step, *number in (text.split() for text in given[0]["program"]):
        if step == "states":
            kept[number[0]] = dict(at)
        elif step == "restore":
            at = dict(kept[number[0]])
        else:
            where = "outside" if step == "outside" else "inside"
            labels.append(f"{where} {at[where]}")
            at[where] += 1
    ends = sum(step in ("error", "interrupt") for step in given[0]["program"])
    for ranks in groups_of(case):
        for place, rank in enumerate(ranks):
            results[rank] = {"numbers": labels, "exceptions that the caller sees": ends}
            results[rank] |= {"also drawn inside, sooner or later": [], "with another seed there are others": True}
            results[rank] |= {"ranks of a group of all ranks that draw the same": [place]}
    return results


def why(case: Case, given: Given, record: Record) -> str:
    text = (
        "split() is used in a `with` statement, and once more after an exception in its block; what states() returns "
    )
    return f"{MAY_HELP}{text}is given to restore(), as it is"


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    why=why,
    rules=[rules.most_messages("0")],
    reads=[no_stores],
)
