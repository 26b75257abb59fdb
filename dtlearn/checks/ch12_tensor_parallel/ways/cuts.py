"""Ways to cut a weight, and to join its parts, that people get wrong: for `split_and_reassemble`."""

from __future__ import annotations

from collections.abc import Callable

import torch

Parts = list[torch.Tensor]


def cut(full: torch.Tensor, dim: int, t: int, place: int) -> torch.Tensor:
    k = full.shape[dim] // t
    return full.movedim(dim, 0)[place * k : place * k + k].movedim(0, dim)


# (full, dim, group, rank, world size) -> the rank's part.
Cut = Callable[[torch.Tensor, int, list[int], int, int], torch.Tensor]
# (parts, dim, place in the group) -> the whole that the rank has.
Join = Callable[[Parts, int, int], torch.Tensor]
CUTS: tuple[tuple[str, str, Cut], ...] = (
    (
        "GROUP-IGNORED",
        "the part is that of the rank's number in the job; its place in the group counts: dist.get_rank(group)",
        lambda full, dim, group, rank, n: cut(full, dim, len(group), rank),
    ),
    (
        "GROUP-IGNORED",
        "the part is that of the rank's number in the job, modulo the group's size; its place in the group counts: "
        "dist.get_rank(group)",
        lambda full, dim, group, rank, n: cut(full, dim, len(group), rank % len(group)),
    ),
    (
        "GROUP-IGNORED",
        "the weight is cut into as many parts as the job has ranks; the group may have fewer: "
        "dist.get_world_size(group)",
        lambda full, dim, group, rank, n: cut(full, dim, n, rank),
    ),
    (
        "DEALT-OUT",
        "rows or columns are dealt out in turn; a part is contiguous: the first one has the first of them",
        lambda full, dim, group, rank, n: full.movedim(dim, 0)[group.index(rank) :: len(group)].movedim(0, dim),
    ),
    (
        "OTHER-DIM",
        "the weight is cut along its first dim, whatever `dim` is",
        lambda full, dim, group, rank, n: cut(full, 0, len(group), group.index(rank)),
    ),
    (
        "OTHER-DIM",
        "the weight is cut along its last dim, whatever `dim` is",
        lambda full, dim, group, rank, n: cut(full, -1, len(group), group.index(rank)),
    ),
    ("NOT-CUT", "the part is the whole weight: nothing was cut", lambda full, dim, group, rank, n: full),
)
JOINS: tuple[tuple[str, str, Join], ...] = (
    ("OTHER-DIM", "the parts are joined along the first dim, whatever `dim` is", lambda parts, d, p: torch.cat(parts)),
    (
        "OTHER-DIM",
        "the parts stand one after the other in memory, and are given the shape of the whole: for another dim than "
        "the first this mixes rows up (torch.cat along `dim`)",
        lambda parts, dim, place: torch.cat(parts).reshape(torch.cat(parts, dim).shape),
    ),
    ("NOT-GATHERED", "what a rank gives comes back: nothing was gathered", lambda parts, dim, place: parts[place]),
    (
        "NOT-GATHERED",
        "only the rank's own part is in the whole; the rest is 0",
        lambda parts, dim, p: torch.cat([part * (k == p) for k, part in enumerate(parts)], dim),
    ),
    (
        "ONE-BUFFER",
        "the part of one rank stands in every place: the list of parts to receive has one tensor several times "
        "([torch.empty_like(part)] * n makes one)",
        lambda parts, dim, place: torch.cat(parts[-1:] * len(parts), dim),
    ),
    (
        "ROTATED",
        "each rank puts its own part first; the order is that of the ranks in the group",
        lambda parts, dim, place: torch.cat([parts[place], *parts[:place], *parts[place + 1 :]], dim),
    ),
)
# Of `reassemble`, called three times: for which calls the first values come back.
OLD = {
    "both": "reassemble returns the weight as it was when it was cut; it has to make it of the parts that it is given",
    "third": "reassemble returns what it made of the same tensor before, though its values have changed in place since",
}
OF_THE_LAST = (
    "when another weight was cut, reassemble has the dim and the group of that one: both belong to what is returned, "
    "not to a function, class or module"
)
