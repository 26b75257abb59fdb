"""Ways to an embedding whose rows are divided: the right one, and those that people take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .groups import Play, group_of

WIDTH = 3  # of a row
FACTOR = -2.0  # what shards are multiplied by before their last call

Lookup = Callable[[torch.Tensor, int, int, int], tuple[torch.Tensor, torch.Tensor]]  # ids, rows, place, t: row, whether


@dataclass(frozen=True)
class Way:
    """How the embeddings are made.

    Attributes:
        lookup: which rows of a rank's shard stand for which ids, and whether they count.
        gradient: the same for the gradient, if it is another.
        made_of: the sum of the group, or "own", "mean", "largest", "world".
        times: the gradient is so much too large: "t", "1/t" or "".
        upstream: the gradient of the result is each rank's "own", or the sum over the "world".
        place: the place of a rank in "group" or in the "world".
        spare: the first row gets no gradient.
        last: of the last call, "old": it has the rows from before the shards were changed; "shared": its result stands
            in that of the first call too.
    """

    lookup: Lookup
    gradient: Lookup | None = None
    made_of: str = "sum"
    times: str = ""
    upstream: str = "own"
    place: str = "group"
    spare: bool = False
    last: str = ""


def masked(ids: torch.Tensor, rows: int, place: int, t: int) -> tuple[torch.Tensor, torch.Tensor]:
    local = ids - place * rows
    own = (local >= 0) & (local < rows)
    return local.where(own, torch.zeros_like(local)), own


def _between(least: int, most: int) -> Lookup:
    """Ids count whose distance from the first is from `least` to rows - 1 + `most`."""

    def lookup(ids: torch.Tensor, rows: int, place: int, t: int) -> tuple[torch.Tensor, torch.Tensor]:
        local = ids - place * rows
        return local.clamp(0, rows - 1), (local >= least) & (local < rows + most)

    return lookup


def _first_row(ids: torch.Tensor, rows: int, place: int, t: int) -> tuple[torch.Tensor, torch.Tensor]:
    return masked(ids, rows, place, t)[0], torch.ones_like(ids, dtype=torch.bool)


def _clamped(ids: torch.Tensor, rows: int, place: int, t: int) -> tuple[torch.Tensor, torch.Tensor]:
    return (ids - place * rows).clamp(0, rows - 1), torch.ones_like(ids, dtype=torch.bool)


def _remainder(ids: torch.Tensor, rows: int, place: int, t: int) -> tuple[torch.Tensor, torch.Tensor]:
    return ids % rows, torch.ones_like(ids, dtype=torch.bool)


def _from_the_end(ids: torch.Tensor, rows: int, place: int, t: int) -> tuple[torch.Tensor, torch.Tensor]:
    local = ids - place * rows
    return local % rows, local.abs() < rows + (local < 0)


def _in_turn(ids: torch.Tensor, rows: int, place: int, t: int) -> tuple[torch.Tensor, torch.Tensor]:
    return ids // t, ids % t == place


_ROW_0 = "ids of other ranks are looked up as row 0 of the own shard"
_LAST = "ids of other ranks are looked up as the first or last row of the own shard (clamp)"
_REST = "ids of other ranks are looked up as id % rows of the own shard"
_KEPT = "the results are right, but in the backward pass"
_TO_ROW = "which get their gradients: masking has to be part of what autograd sees, not done in .data or no_grad"
WAYS: tuple[tuple[str, str, Way], ...] = (
    ("FOREIGN-ROWS", f"{_ROW_0} and added to the sum: zeros belong there", Way(_first_row)),
    ("FOREIGN-ROWS", f"{_LAST} and added to the sum: zeros belong there", Way(_clamped)),
    ("FOREIGN-ROWS", f"{_REST} and added to the sum: zeros belong there", Way(_remainder)),
    (
        "FOREIGN-ROWS",
        "ids below those of this rank become negative, and count from the end of the shard: zeros belong there",
        Way(_from_the_end),
    ),
    ("FOREIGN-GRADIENT", f"{_KEPT} {_ROW_0}, {_TO_ROW}", Way(masked, _first_row)),
    ("FOREIGN-GRADIENT", f"{_KEPT} {_LAST}, {_TO_ROW}", Way(masked, _clamped)),
    ("FOREIGN-GRADIENT", f"{_KEPT} {_REST}, {_TO_ROW}", Way(masked, _remainder)),
    (
        "ROW-0-UNTRAINED",
        "the results are right, but row 0 of each shard gets no gradient, as with padding_idx=0: it is a token too",
        Way(masked, spare=True),
    ),
    ("BORDER-ID", "the first id of each shard is looked up by no rank: its row is missing", Way(_between(1, 0))),
    ("BORDER-ID", "the last id of each shard is looked up by no rank: its row is missing", Way(_between(0, -1))),
    ("BORDER-ID", "the id after the last of each shard counts as its own too: two rows are added", Way(_between(0, 1))),
    (
        "BORDER-ID",
        "the id before the first of each shard counts as its own too: two rows are added",
        Way(_between(-1, 0)),
    ),
    (
        "PARTIAL-SUM",
        "each rank has the rows of its own ids and zeros for those of others: nothing is added up over the ranks",
        Way(masked, made_of="own"),
    ),
    (
        "AVERAGED",
        "the sum over the ranks is divided by their number: each row comes from one rank only",
        Way(masked, made_of="mean"),
    ),
    (
        "LARGEST",
        "the result is the largest of the ranks' values: the zeros of other ranks win where a row is negative",
        Way(masked, made_of="largest"),
    ),
    (
        "AVERAGED",
        "the result and its gradient are divided by the number of ranks: each row comes from one rank only",
        Way(masked, made_of="mean", times="1/t"),
    ),
    (
        "REDUCED-AGAIN",
        "the results are right, but the gradient is t times as large: each rank has the whole gradient of the result "
        "already, so the backward pass must not add it up over the ranks again",
        Way(masked, times="t"),
    ),
    (
        "REDUCED-AGAIN",
        "the results are right, but the backward pass adds up the gradient over all ranks of the job: each rank has "
        "the whole gradient of the result already, so nothing is added up there, in no group",
        Way(masked, upstream="world"),
    ),
    (
        "GROUP-IGNORED",
        "forward and backward add up over all ranks of the job: forward has to over the group, backward not at all",
        Way(masked, made_of="world", upstream="world"),
    ),
    (
        "AVERAGED",
        "the results are right, but the gradient is divided by the number of ranks: each rank has its rows to itself",
        Way(masked, times="1/t"),
    ),
    (
        "GROUP-IGNORED",
        "the first id of a shard is computed from the rank in the world, not from the rank in the group",
        Way(masked, place="world"),
    ),
    (
        "GROUP-IGNORED",
        "all ranks are added up, not those of the group: other groups have other weights",
        Way(masked, made_of="world"),
    ),
    (
        "GROUP-IGNORED",
        "the rank in the world and the sum over the world are used, not those of the group",
        Way(masked, made_of="world", place="world"),
    ),
    (
        "OLD-VALUES",
        "after a change of the shards, as by an optimizer, the embeddings are still those from before: keep no weight",
        Way(masked, last="old"),
    ),
    (
        "RESULT-SHARED",
        "a later call with as many ids has changed the embeddings of an earlier one: each call returns a new tensor",
        Way(masked, last="shared"),
    ),
    ("DEALT-OUT", "id i is looked up on rank i % t: a rank has contiguous rows, from r V/t on", Way(_in_turn)),
)


def play_of(way: Way) -> Play:
    def looked_up(everyone: list[dict[str, Any]], rank: int, call: int, lookup: Lookup) -> list[torch.Tensor]:
        members = group_of(rank, everyone[rank], len(everyone))
        place = rank if way.place == "world" else members.index(rank)
        rows = len(everyone[rank]["shard"])
        at, counts = lookup(everyone[rank]["ids"][call], rows, place, len(members))
        return [at.clamp(0, rows - 1), counts.unsqueeze(-1)]

    def play(rank: int, everyone: list[dict[str, Any]]) -> dict[str, Any]:
        own, members = everyone[rank], group_of(rank, everyone[rank], len(everyone))
        t = len(members)
        summed = {"world": list(range(len(everyone))), "own": [rank]}.get(way.made_of, members)
        embeddings, gradient = [], torch.zeros_like(own["shard"])
        for call in range(len(own["ids"])):
            found = {r: looked_up(everyone, r, call, way.lookup) for r in summed}
            parts = torch.stack([everyone[r]["shard"][at] * counts for r, (at, counts) in found.items()])
            parts = parts * FACTOR if call == len(own["ids"]) - 1 and way.last != "old" else parts
            total = parts.amax(0) if way.made_of == "largest" else parts.sum(0)
            embeddings.append(total / t if way.made_of == "mean" else total)
            at, counts = looked_up(everyone, rank, call, way.gradient or way.lookup)
            begun = everyone if way.upstream == "world" else [own]
            upstream = (torch.stack([one["upstream"][call] for one in begun]).sum(0) * counts).reshape(-1, WIDTH)
            gradient.index_put_((at.reshape(-1),), upstream, accumulate=True)
        if way.last == "shared":
            embeddings[0] = embeddings[-1]
        if way.spare:
            gradient[0] = 0.0
        return {"embeddings": embeddings, "gradient": gradient * {"": 1.0, "t": t, "1/t": 1 / t}[way.times]}

    return play
