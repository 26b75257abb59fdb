"""ch14.mesh_groups: two axes of two ranks; then other sizes and orders, axes of one rank, several axes at once."""

from __future__ import annotations

import math
from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.runtime.record.record import Record

# Per case: the sizes of the axes, and along which axes groups are wanted.
CASES: dict[str, dict[str, Any]] = {
    "two axes of two ranks": {"mesh": {"tp": 2, "pp": 2}, "wanted": [["tp"], ["pp"]], "sizes": (4,)},
    "groups in another order": {
        "says": "`wanted` says along which axes groups are returned, and in which order",
        "mesh": {"tp": 2, "pp": 2},
        "wanted": [["pp"], ["tp"]],
        "sizes": (4,),
    },
    "both axes together": {
        "says": "along all axes there is one group: that of all ranks",
        "mesh": {"tp": 2, "pp": 2},
        "wanted": [["tp", "pp"]],
        "sizes": (4,),
    },
    "axes of different sizes": {
        "says": "along an axis, ranks are as far apart as the product of the sizes of the axes further in",
        "mesh": {"tp": 2, "pp": 3},
        "wanted": [["tp"], ["pp"]],
        "sizes": (6,),
    },
    "another order of the axes": {
        "says": "the first key of sizes is the innermost axis, whatever its name is",
        "mesh": {"pp": 3, "tp": 2},
        "wanted": [["tp"], ["pp"]],
        "sizes": (6,),
    },
    "an axis of one rank": {
        "says": "along an axis of one rank, a rank is alone in its group; None would be the group of all ranks",
        "mesh": {"tp": 1, "pp": 4},
        "wanted": [["pp"], ["tp"]],
        "sizes": (4,),
    },
    "three axes": {
        "says": "with three axes there are several groups along each one, for each place on the two others",
        "mesh": {"tp": 2, "pp": 2, "dp": 2},
        "wanted": [["pp"], ["dp"]],
        "sizes": (8,),
    },
    "two of three axes": {
        "says": "a group along two axes has all ranks that have the same place on the others, also if these axes "
        "are not next to each other",
        "mesh": {"tp": 2, "pp": 2, "dp": 2},
        "wanted": [["dp", "tp"], ["pp", "dp"]],
        "sizes": (8,),
    },
    "four axes": {
        "says": "a mesh may have any number of axes, and one of 1 rank may lie between longer ones",
        "mesh": {"tp": 2, "ep": 1, "pp": 2, "dp": 2},
        "wanted": [["pp"]],
        "sizes": (8,),
    },
}
LOOP, OTHERS, GROWS = "for axis, size in sizes.items():", "if axis not in axes:", "stride *= size\n"
WANTED, PLACE, LOT = "for axes in wanted:", "rank // stride % size", "lots.setdefault(tuple(others), []).append(rank)"
MADE, OWN, RETURN = "for ranks in lots.values():", "if dist.get_rank() in ranks:", "return mine"
EDITS = (
    Edit("a group has the ranks that differ along this axis: those that differ on no other one are wanted",
         {OTHERS: "if axis in axes:"}),
    Edit("ranks are numbered from the last key of sizes: the first one is the innermost axis",
         {LOOP: "for axis, size in reversed(sizes.items()):"}),
    Edit("every group has consecutive ranks: along axes further out the ranks lie further apart",
         {LOT: 'size = math.prod(sizes[axis] for axis in axes)\n            '
               "lots.setdefault(rank // size, []).append(rank)"}),
    Edit("the strides of the axes are those of their own sizes: multiply the sizes of the axes further in",
         {PLACE: "rank // (stride * size) % size"}),
    Edit("the stride of an axis is the size of the axis before it: multiply the sizes of all axes further in",
         {GROWS: "stride = size\n"}),
    Edit("the axes are numbered in the order tp, pp, dp: the order is that of the keys",
         {LOOP: "for axis, size in sorted(sizes.items(), reverse=True):"}),
    Edit("the groups are in the order of the axes in sizes: `wanted` has the order",
         {WANTED: "for axes in sorted(wanted, key=lambda axes: list(sizes).index(axes[0])):"}),
    Edit("of an entry with several axes only the first one counts", {OTHERS: "if axis not in axes[:1]:"}),
    Edit("of an entry with several axes only the last one counts", {OTHERS: "if axis not in axes[-1:]:"}),
    Edit("two axes are taken for neighbours: a group along the first and the last of three has another shape",
         {OTHERS: "at = sorted(map(list(sizes).index, axes))\n                "
                  "if axis not in list(sizes)[at[0] : at[-1] + 1]:"}),
    Edit("the group of all ranks is returned for every entry", {RETURN: "return [dist.group.WORLD] * len(wanted)"}),
    Edit("the first group of each entry is returned, which is this rank's on some ranks only",
         {OWN: "if ranks[0] == 0:"}),
    Edit("the last group of each entry is returned, which is this rank's on some ranks only",
         {OWN: "if ranks[-1] == math.prod(sizes.values()) - 1:"}),
    Edit("along an axis of one rank None is returned, which is the group of all ranks",
         {"mine.append(group)": "mine.append(group if len(ranks) > 1 else None)"}),
    Edit("along an axis of one rank the group of all ranks is returned",
         {"mine.append(group)": "mine.append(group if len(ranks) > 1 else dist.group.WORLD)"}),
    Edit("each rank of a group has made a group of its own with these ranks, and they cannot communicate: make one "
         "group for each set of ranks",
         {MADE: "for member, ranks in ((rank, ranks) for ranks in lots.values() for rank in ranks):",
          OWN: "if dist.get_rank() == member:"}),
    Edit("all axes are taken to be equally long: sizes has a size for each",
         {PLACE: "rank // stride % next(iter(sizes.values()))"}),  # last: with one rank it looks like another one
)  # fmt: skip


def inputs(case: Case) -> Given:
    return [{"sizes": case.params["mesh"], "wanted": case.params["wanted"]}] * case.world_size


def on_rank(answer: Any, sizes: Any, wanted: Any) -> Any:
    import zlib

    import torch.distributed as dist

    rank = dist.get_rank()
    own: list[list[Any]] = []

    class Axis(str):
        """A name that lies elsewhere in a set on each rank, as all names do in processes that torchrun starts."""

        __slots__ = ()

        def __hash__(self) -> int:
            return zlib.crc32(f"{rank} {self}".encode())

    named, entries = {Axis(axis): size for axis, size in sizes.items()}, [tuple(map(Axis, axes)) for axes in wanted]
    groups = answer(named, entries)
    if list(named.items()) != list(sizes.items()):  # the grader sees what was changed
        sizes.clear()
        sizes.update({str(axis): size for axis, size in named.items()})
    wanted[:] = [[str(axis) for axis in axes] for axes in entries]
    is_list = isinstance(groups, list | tuple)
    for group in groups if is_list else []:
        is_group = isinstance(group, dist.ProcessGroup)
        other = "None, which is all ranks" if group is None else "no group of this rank"
        own.append([dist.get_process_group_ranks(group) if is_group else other, getattr(group, "group_name", "")])
    everyone: Any = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, own)

    def fits(member: int, n: int) -> bool:
        """Whether all ranks of that group hold the same one. If not, they would wait for each other for ever."""
        one = everyone[member][n]
        return not isinstance(one[0], str) and all(everyone[m][n : n + 1] == [one] for m in (*one[0], member))

    results = []
    for n, (members, _) in enumerate(own):
        name, total = " and ".join(wanted[n] if n < len(wanted) else []), torch.tensor(10**rank)
        all_fit = all(n < len(theirs) and fits(member, n) for member, theirs in enumerate(everyone))
        if all_fit:
            dist.all_reduce(total, group=groups[n])
        facts = {f"ranks along {name}": members, "one group for all of them": fits(rank, n)}
        results.append({**facts, f"sum of 10**rank along {name}": total.item() if all_fit else None})
    if not is_list:
        return None if groups is None else {} if isinstance(groups, dict) else str(groups)
    return results


def expected(case: Case, given: Given) -> list[list[dict[str, Any]]]:
    """All ranks in a tensor with a dim for each axis: a group is a row, a column, a plane of it."""
    sizes: dict[str, int] = case.params["mesh"]
    outermost_first = list(sizes)[::-1]
    mesh = torch.arange(math.prod(sizes.values())).view([sizes[axis] for axis in outermost_first])
    results: list[list[dict[str, Any]]] = []
    for rank in range(case.world_size):
        place = dict(zip(outermost_first, (mesh == rank).nonzero()[0].tolist(), strict=True))
        results.append([])
        for axes in case.params["wanted"]:
            index = tuple(slice(None) if axis in axes else place[axis] for axis in outermost_first)
            members, name = sorted(mesh[index].flatten().tolist()), " and ".join(axes)
            facts: dict[str, Any] = {f"ranks along {name}": members, "one group for all of them": True}
            results[-1].append({**facts, f"sum of 10**rank along {name}": sum(10**r for r in members)})
    return results


def why(case: Case, given: Given, record: Record) -> str:
    """The hint where ranks made different groups, or made them in different orders; "" if they did not."""
    made: dict[int, list[list[int]]] = {}
    for event in record.select(op="new_group"):
        made.setdefault(event.rank, []).append(event.detail.get("ranks") or [])
    together = list(zip(*made.values(), strict=False))
    if all(one == calls[0] for calls in together for one in calls):
        return ""
    first = {tuple(groups[0]) for groups in made.values()}
    others_first = len(first) > 1 and any(rank not in groups[0] for rank, groups in made.items())
    if others_first or all(sorted(groups) == sorted(made[0]) for groups in made.values()):
        return "ranks make the groups, but not in one order; the order of a set is another one in each process"
    if all(rank in groups[0] for rank, groups in made.items()):
        return "each rank begins with its own group, or makes no other; every rank makes all groups, in one order"
    return "every rank makes all groups, also those after its own, and all in one order"


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    edits_at_once=5,
    example=[{"sizes": {"tp": 2, "pp": 2}, "wanted": [["tp"], ["pp"], ["tp", "pp"]]}] * 4,
    rules=[rules.only("new_group", why="The numbers of the ranks say all that is needed.")],
    why=why,
)
