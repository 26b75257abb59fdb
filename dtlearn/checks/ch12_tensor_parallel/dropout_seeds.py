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
from .ways.random_numbers import find_in_group


def inputs(case: Case) -> Given:
    seeds = torch.randint(1000, 30000, (len(GROUPS[case.world_size]),), generator=case.generator()).tolist()
    jobs = [
        {"title": title, "members": [list(one) for one in groups], "seed": seed + 10000 * k}
        for k, ((title, groups), seed) in enumerate(zip(GROUPS[case.world_size], seeds, strict=True))
    ]
    return [{"jobs": jobs} for _ in range(case.world_size)]


def on_rank(answer: Any, jobs: Any) -> Any:
    notes: Any = []

    class Stop(BaseException):  # as KeyboardInterrupt is: no Exception
        pass

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
                raise Stop("an exception in a split region")
        except Stop:
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
        before = seeds.states()
        together: Any = []
        with seeds.split():
            state = torch.get_rng_state()
            for _ in range(6):
                draw(together)
        middle = seeds.states()
        late: Any = []
        region(seeds, late)
        seeds.states()  # the third one that is kept
        seeds.restore(before)
        early: Any = []
        draw(early)
        region(seeds, early)
        seeds.restore(middle)
        region(seeds, late)
        note = {"outside": outside, "inside": inside, "again": again, "together": together, "goes_on": goes_on}
        notes.append({**note, "early": early, "late": late, "state": state})
    return notes


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    jobs = given[0]["jobs"]
    for k, job in enumerate(jobs):
        notes = [of_rank[k] for of_rank in got]
        for members in with_all(job["members"], case.world_size):
            if found := find_in_group(job["seed"], members, [notes[rank] for rank in members]):
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
                text += "seed, and draw other numbers inside: the place in the group counts, not "
                text += "the rank in the world, nor the group's size"
                return Finding("DTL-VALUE-GROUP-IGNORED", text, members[0])
    return None


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
