"""What is wrong with the numbers that are drawn outside and inside of split regions: for `dropout_seeds`."""

from __future__ import annotations

from typing import Any

import torch

_DRAWN, _LENGTH = 7, 5  # numbers drawn outside in one job, each a tensor of so many
_FAR = 200_000  # numbers of two sequences that have nothing in common
Note = dict[str, Any]


def find_in_group(seed: int, members: list[int], notes: list[Note]) -> tuple[str, str, int] | None:
    """What is wrong in one group: a code, a text, a rank. What comes first in the program goes first."""
    right = torch.rand(_DRAWN, _LENGTH, generator=torch.Generator().manual_seed(seed)).unbind()
    for place, (rank, note) in enumerate(zip(members, notes, strict=True)):
        if found := _first_region(right, rank, note):
            return (*found, rank)
        for other, known in zip(members[:place], notes[:place], strict=True):
            if _alike(known["together"], note["together"]):
                text = f"ranks {other} and {rank} draw the same numbers inside a split region: their heads get one mask"
                return "SAME-INSIDE", text, rank
    if meeting := _sequences(seed, members, notes):
        return meeting
    for rank, note in zip(members, notes, strict=True):
        if found := _later(right, rank, note) or _recomputed(right, rank, note):
            return (*found, rank)
    return None


def _sequences(seed: int, members: list[int], notes: list[Note]) -> tuple[str, str, int] | None:
    """Sequences that meet much later, as where one is the other from another place on."""
    later = {"outside": _from(torch.Generator().manual_seed(seed))}
    for rank, note in zip(members, notes, strict=True):
        numbers = _from(_generator(note["state"]))
        if not torch.equal(numbers[:_LENGTH], note["together"][0]):
            text = (
                f"in a region torch.rand on rank {rank} does not draw from torch's default generator, as dropout does: "
            )
            return "GENERATOR", f"{text}change the generator's state, not the functions that draw", rank
        for name, known in later.items():
            if (after := max(_place(numbers[:2], known), _place(known[:2], numbers))) >= 0:
                text = (
                    f"rank {rank} draws inside what comes {name} too, after {after:,} numbers of one of the two: one "
                )
                text += "sequence from two places on; a layer's dropout draws millions. Seed them differently"
                return "SAME-INSIDE" if name != "outside" else "INSIDE-AS-OUTSIDE", text, rank
        later[f"inside on rank {rank}"] = numbers
    return None


def _generator(state: Any) -> torch.Generator:
    """A generator of that state, which an answer's process has sent; another one, if that is none."""
    try:
        return torch.Generator().set_state(state)
    except (RuntimeError, TypeError):
        return torch.Generator()


def _from(generator: torch.Generator) -> torch.Tensor:
    return torch.rand(_FAR, generator=generator)


def _place(pair: torch.Tensor, numbers: torch.Tensor) -> int:
    """Where two numbers stand side by side among others; -1 if nowhere. One alone stands there by chance."""
    places = ((numbers[:-1] == pair[0]) & (numbers[1:] == pair[1])).nonzero()
    return int(places[0]) if len(places) else -1


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
            if after_exception:
                text += ". try ... finally is for exceptions of every kind, KeyboardInterrupt too"
            return "GENERATOR", text
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
    if not torch.equal(note["late"][0], note["late"][1]):
        text = (
            f"three states are kept at a time, as of three micro-batches; restore() of the second one, on rank {rank}: "
        )
        return "NOT-RECOMPUTED", f"{text}the numbers inside are not those that came after that call of states()"
    for k, wanted_first in enumerate((right[0], note["together"][0])):
        if not torch.equal(note["early"][k], wanted_first):
            text = f"restore() of states from before the first region, on rank {rank}: the numbers "
            text += f"{('outside', 'inside')[k]} are not those that came after that call of states()"
            return "NOT-RECOMPUTED", text
    return None


def _alike(some: Any, others: Any) -> bool:
    """Whether these numbers have more in common than chance has."""
    return int(torch.isin(torch.cat(list(some)), torch.cat(list(others))).sum()) > 3


def _same(one: Any, other: Any) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
