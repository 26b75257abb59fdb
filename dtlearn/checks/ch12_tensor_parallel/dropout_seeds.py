"""ch12.dropout_seeds: numbers drawn outside and inside of split regions, after an exception, and computed again.

What is drawn outside is known: it is torch's own after `manual_seed`. Of what is drawn inside, only its likeness is:
to what other ranks draw, to what is drawn outside, and to one region that draws as much.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from dtlearn.grading import Case, Check, Finding, Given, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP
from .ways.groups import GROUPS, with_all

_DRAWN, _LENGTH = 7, 5  # numbers drawn outside in one job, each a tensor of so many
_FORWARD = 2  # regions of a forward pass that is computed again


def inputs(case: Case) -> Given:
    seeds = torch.randint(1000, 30000, (len(GROUPS[case.world_size]),), generator=case.generator()).tolist()
    jobs = [
        {"title": title, "members": [list(one) for one in groups], "seed": seed + 10000 * k}
        for k, ((title, groups), seed) in enumerate(zip(GROUPS[case.world_size], seeds, strict=True))
    ]
    return [{"jobs": jobs} for _ in range(case.world_size)]


def on_rank(answer: Any, jobs: Any) -> Any:
    notes: Any = []
    for job in jobs:
        group = None
        for members in job["members"]:
            made = dist.new_group(members)
            group = made if dist.get_rank() in members else group
        seeds = answer(job["seed"], group)
        outside: Any = []
        inside: Any = []

        def draw(after: Any = outside) -> None:
            after.append(torch.rand(5))

        def region(seeds: Any = seeds, after: Any = inside, draw: Any = draw) -> None:
            with seeds.split():
                draw(after)

        for _ in range(2):
            draw()
            region()
        draw()
        goes_on = False
        try:
            with seeds.split():
                draw(inside)
                raise KeyError("an exception in a split region")
        except KeyError:
            goes_on = True
        draw()
        before = seeds.states()
        for _ in range(2):
            draw()
            region()
        now = seeds.states()
        again: Any = []
        for _ in range(2):
            seeds.restore(before)
            one: Any = {"outside": [], "inside": []}
            for _ in range(2):
                draw(one["outside"])
                region(after=one["inside"])
            again.append(one)
        seeds.restore(now)
        draw()
        region()
        seeds = answer(job["seed"], group)
        together: Any = []
        with seeds.split():
            for _ in range(6):
                draw(together)
        note = {"outside": outside, "inside": inside, "again": again, "together": together, "goes_on": goes_on}
        notes.append(note)
    return notes


Note = dict[str, Any]


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    jobs = given[0]["jobs"]
    for k, job in enumerate(jobs):
        notes = [of_rank[k] for of_rank in got]
        for members in with_all(job["members"], case.world_size):
            if found := _of_a_group(job["seed"], members, [notes[rank] for rank in members]):
                return Finding(f"DTL-VALUE-{found[0]}", f"{job['title']}: {found[1]}", found[2])
    for rank, of_rank in enumerate(got):
        if torch.equal(of_rank[0]["inside"][0], of_rank[1]["inside"][0]) and case.world_size > 1:
            text = (
                f"the numbers inside are the same on rank {rank} with the seeds {jobs[0]['seed']} and {jobs[1]['seed']}"
            )
            return Finding("DTL-VALUE-SEED", f"{text}: they should follow from the seed", rank)
    for k, job in enumerate(jobs):
        first, *others = with_all(job["members"], case.world_size)
        for members in others:
            if not torch.equal(got[first[0]][k]["inside"][0], got[members[0]][k]["inside"][0]):
                text = f"{job['title']}: ranks {first[0]} and {members[0]} are each the first of their group, with one "
                text += "seed, and draw other numbers inside: the place in the group counts, not the rank in the world"
                return Finding("DTL-VALUE-GROUP-IGNORED", text, members[0])
    return None


def _of_a_group(seed: int, members: list[int], notes: list[Note]) -> tuple[str, str, int] | None:
    """What is wrong in one group: a code, a text, a rank. What comes first in the program goes first."""
    right = torch.rand(_DRAWN, _LENGTH, generator=torch.Generator().manual_seed(seed)).unbind()
    for place, (rank, note) in enumerate(zip(members, notes, strict=True)):
        if found := _first_region(right, rank, note):
            return (*found, rank)
        for other, known in zip(members[:place], notes[:place], strict=True):
            if _alike(known["together"], note["together"]):
                text = f"ranks {other} and {rank} draw the same numbers inside a split region: their heads get one mask"
                return "SAME-INSIDE", text, rank
    for rank, note in zip(members, notes, strict=True):
        if found := _later(right, rank, note) or _recomputed(right, rank, note):
            return (*found, rank)
    return None


def _first_region(right: Any, rank: int, note: Note) -> tuple[str, str] | None:
    """The first number outside, and the first one inside."""
    if not torch.equal(right[0], note["outside"][0]):
        text = (
            f"the first numbers outside on rank {rank} are not those after torch.manual_seed(seed): seed the generator "
        )
        return "SEED", f"{text}with seed itself on all ranks, after anything else that you do with it"
    if _alike(note["together"], right):
        text = f"rank {rank} draws inside what is drawn outside too: its own seed is the common one, as seed + 0 is"
        if not torch.equal(note["inside"][0], right[0]):
            text = f"rank {rank} draws inside what comes next outside: the generator's state is the same in the block"
        return "INSIDE-AS-OUTSIDE", text
    return None


def _later(right: Any, rank: int, note: Note) -> tuple[str, str] | None:
    """What comes after the first region, until the recomputation."""
    outside, inside, together = note["outside"], note["inside"], note["together"]
    if not torch.equal(inside[0], together[0]):
        text = (
            f"a second dropout_seeds(seed) on rank {rank} draws other numbers inside than the first one: they should "
        )
        return "SEED", f"{text}follow from the seed and the place in the group alone, not from what was drawn before"
    after_exception = torch.equal(right[1], outside[1]) and torch.equal(right[2], outside[2])
    for k in (1, 2, 3):
        if not torch.equal(right[k], outside[k]):
            why = "an exception has ended a region" if after_exception else "a region"
            text = (
                f"after {why}, the numbers outside on rank {rank} are not those that would have come next without it: "
            )
            if torch.equal(right[0], outside[k]):
                return "GENERATOR", f"{text}they begin again from the seed"
            if torch.equal(outside[k], together[k if not after_exception else 3]):
                text += "they go on with the numbers of the region"
            else:
                text += "the default generator is left in another state than before the block"
            return "GENERATOR", f"{text}. try ... finally is for exceptions" if after_exception else text
    if not note["goes_on"]:
        return "SWALLOWED", f"an exception in a region on rank {rank} ends there: the caller has to see it"
    for k in (1, 2):
        if torch.equal(inside[k], inside[0]):
            text = (
                f"region {k + 1} on rank {rank} draws the numbers of the first one again, in each layer the same mask: "
            )
            return "REGION-RESTARTS", f"{text}keep the state with which a region ends"
        if not torch.equal(inside[k], together[k]):
            text = f"region {k + 1} on rank {rank} does not go on where the one before ended: what is drawn inside may "
            return "REGION-RESTARTS", f"{text}not depend on what was drawn outside, nor on how a block ended"
    return None


def _recomputed(right: Any, rank: int, note: Note) -> tuple[str, str] | None:
    """The forward pass, the same computed again, and what comes then."""
    outside, inside = note["outside"], note["inside"]
    first = {"outside": outside[4:6], "inside": inside[3:5]}
    wanted = {"outside": list(right[4:6]), "inside": note["together"][3:5]}
    if _same(first["inside"], note["together"][2:4]):
        text = f"the region after one that an exception ended draws the numbers of that one again on rank {rank}: its "
        return "REGION-RESTARTS", f"{text}state has to be kept then, too (try ... finally)"
    for where in ("outside", "inside"):
        if not _same(first[where], wanted[where]):
            text = (
                f"after states() the numbers {where} on rank {rank} are not those that would have come next: it should "
            )
            return "STATES-CHANGED", f"{text}leave everything as it is"
    for k, again in enumerate(note["again"]):
        for where in ("outside", "inside"):
            if not _same(again[where], first[where]):
                text = f"computed again after restore(), on rank {rank}, the numbers {where} are others than in the "
                text += "forward pass: dropout has another mask, and the gradients belong to another function"
                if k:
                    text += (
                        ". The first restore() of these states was right, the second one was not: a block or restore() "
                    )
                    return "RESTORED-ONCE", f"{text}changed what states() had returned"
                return "NOT-RECOMPUTED", text
    if not torch.equal(outside[6], right[6]):
        text = (
            f"after a recomputation and restore() of the states before it, the numbers outside on rank {rank} are not "
        )
        return "NOT-RECOMPUTED", f"{text}those that come after the forward pass"
    if not torch.equal(inside[5], note["together"][5]):
        text = (
            f"after a recomputation and restore() of the states before it, the numbers inside on rank {rank} are not "
        )
        return "NOT-RECOMPUTED", f"{text}those that come after the forward pass"
    return None


def _alike(some: Any, others: Any) -> bool:
    """Whether these numbers have more in common than chance has."""
    return int(torch.isin(torch.cat(list(some)), torch.cat(list(others))).sum()) > 3


def _same(one: Any, other: Any) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def why(case: Case, given: Given, record: Record) -> str:
    text = (
        "split() is used in a `with` statement, and once more after an exception in its block; what states() returns "
    )
    return f"{MAY_HELP}{text}is given to restore(), as it is"


CHECK = Check(
    on_rank,
    inputs,
    None,
    verify=verify,
    why=why,
    rules=[rules.most_messages("0")],
)
