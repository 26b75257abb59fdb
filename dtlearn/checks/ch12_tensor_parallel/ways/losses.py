"""Ways to a sharded cross entropy: the right one, and those that people take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .groups import group_of

Columns = tuple[torch.Tensor, torch.Tensor]  # of each target: a column of the part, and whether it counts
Find = Callable[[torch.Tensor, int], Columns]  # from targets minus the first token of the part, and its columns


def masked(local: torch.Tensor, columns: int) -> Columns:
    own = (local >= 0) & (local < columns)
    return local.where(own, torch.zeros_like(local)), own


def column_0(local: torch.Tensor, columns: int) -> Columns:
    return masked(local, columns)[0], torch.ones_like(local, dtype=torch.bool)


def clamped(local: torch.Tensor, columns: int) -> Columns:
    return local.clamp(0, columns - 1), torch.ones_like(local, dtype=torch.bool)


def remainder(local: torch.Tensor, columns: int) -> Columns:
    return local % columns, torch.ones_like(local, dtype=torch.bool)


def none(local: torch.Tensor, columns: int) -> Columns:
    return torch.zeros_like(local), torch.zeros_like(local, dtype=torch.bool)


def without_first(local: torch.Tensor, columns: int) -> Columns:
    return local.clamp(0, columns - 1), (local > 0) & (local < columns)


@dataclass(frozen=True)
class Way:
    """How losses and gradients are made.

    Attributes:
        find: the target's column in a rank's part.
        one_hot: the same in the gradient, if it is another.
        shift: what exponentials are taken relative to: "largest" of all ranks, or the "own" largest.
        sums: exponentials are summed over the "group", the rank's "own" part or the "world".
        target: logits of targets are summed over the "group" or the "world", "own", or their "largest" is taken;
            with " raw" the shift is subtracted afterwards.
        mean: over the targets that "count", "all", or a "sum"; in "all", ignored ones have the logit 0 as a target's,
            in "all counted" the loss 0.
        divisor: the same in the gradient, if it is another; "kept": ignored targets have a gradient too.
        times: of the gradient: "t", "1/t" or "".
        upstream: whether the gradient of the loss is heeded.
        through: the gradient goes through the maximum, too.
        place: of a rank, in the "group" or in the "world".
    """

    find: Find = masked
    one_hot: Find | None = None
    shift: str = "largest"
    sums: str = "group"
    target: str = "group"
    mean: str = "count"
    divisor: str = ""
    times: str = ""
    upstream: bool = True
    through: bool = False
    place: str = "group"


def play(way: Way, rank: int, everyone: list[dict[str, Any]]) -> dict[str, Any]:
    """What one rank has in one job, by what is special in each call: its loss and its gradient."""
    return {call["what"]: _call(way, k, rank, everyone) for k, call in enumerate(everyone[rank]["calls"])}


def _call(way: Way, k: int, rank: int, everyone: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    members, own = group_of(rank, everyone[rank], len(everyone)), everyone[rank]["calls"][k]
    ranks = members if "world" not in (way.sums, way.target) else list(range(len(everyone)))
    dtype, columns = own["logits"].dtype, int(own["logits"].shape[-1])
    exact = torch.float64 if way == Way() else dtype  # what is lost in float32 is a part of what is wrong
    parts = {r: everyone[r]["calls"][k]["logits"].to(exact).reshape(-1, columns) for r in {*ranks, rank}}
    largest = {r: x.amax(-1, keepdim=True) for r, x in parts.items()}
    shift = largest if way.shift == "own" else dict.fromkeys(parts, torch.stack(list(largest.values())).amax(0))
    exponentials = {r: (x - shift[r]).exp() for r, x in parts.items()}
    targets = own["targets"].reshape(-1)
    counts = targets != -100

    def local(r: int) -> torch.Tensor:
        of_group = group_of(r, everyone[r], len(everyone))
        place = r if way.place == "world" else of_group.index(r)
        targets: torch.Tensor = everyone[r]["calls"][k]["targets"]
        return targets.reshape(-1) - place * columns

    def of_target(r: int) -> torch.Tensor:
        at, has = way.find(local(r), columns)
        x = parts[r] if way.target.endswith("raw") else parts[r] - shift[r]
        logit: torch.Tensor = x.gather(-1, at.unsqueeze(-1)).squeeze(-1) * has * (targets != -100)
        return logit

    total = torch.stack([exponentials[r].sum(-1) for r in ([rank] if way.sums == "own" else ranks)]).sum(0)
    logits = torch.stack([of_target(r) for r in ([rank] if way.target == "own" else ranks)])
    logit = logits.amax(0) if way.target.startswith("largest") else logits.sum(0)
    logit = logit - shift[rank].squeeze(-1) if way.target.endswith("raw") else logit
    losses = total.log() - logit
    number = {"count": counts.sum(), "all": torch.tensor(len(targets)), "sum": torch.tensor(1)}
    loss = (losses if way.mean == "all" else losses[counts]).sum() / number[way.mean.removesuffix(" counted")]

    softmax = exponentials[rank] / total.unsqueeze(-1)
    at, has = (way.one_hot or way.find)(local(rank), columns)
    gradient = softmax.scatter_add(-1, at.unsqueeze(-1), -(has & counts).to(exact).unsqueeze(-1))
    if way.through:
        mass = (has & counts).to(exact) - softmax.sum(-1)
        gradient = gradient.scatter_add(-1, parts[rank].argmax(-1, keepdim=True), mass.unsqueeze(-1))
    divisor = way.divisor or way.mean
    heeded = torch.ones_like(counts) if divisor in ("all", "kept") else counts
    gradient = (
        gradient * heeded.unsqueeze(-1) / number["count" if divisor == "kept" else divisor.removesuffix(" counted")]
    )
    t = len(members)
    gradient = gradient * {"": 1.0, "t": t, "1/t": 1 / t}[way.times] * (own["upstream"] if way.upstream else 1.0)
    return {"loss": loss.to(dtype), "gradient": gradient.reshape(own["logits"].shape).to(dtype)}


_FOREIGN = "and counted in the sum over the ranks: zeros belong there"
_RIGHT = "the losses are right, but in the gradient"
WAYS: tuple[tuple[str, str, Way], ...] = (
    (
        "PARTIAL-SUM",
        "each rank computes the loss of its own part of the vocabulary: neither the sums of exponentials nor the "
        "targets' logits are added up over the ranks",
        Way(shift="own", sums="own", target="own"),
    ),
    (
        "PARTIAL-SUM",
        "the sums of exponentials are those of each rank's own part: the softmax is over V tokens",
        Way(sums="own"),
    ),
    (
        "PARTIAL-SUM",
        "the logit of the target is there on one rank only: the others have 0 for it, and nothing is added up",
        Way(target="own"),
    ),
    (
        "OWN-MAXIMUM",
        "each rank subtracts the largest logit of its own part, and then the sums of exponentials are added up: they "
        "have to be relative to one number",
        Way(shift="own"),
    ),
    (
        "OWN-MAXIMUM",
        "each rank subtracts the largest logit of its own part, from the target's logit of another part too: all ranks "
        "have to subtract the same number",
        Way(shift="own", target="group raw"),
    ),
    ("FOREIGN-TARGETS", f"targets of other ranks are looked up as column 0 of the own part, {_FOREIGN}", Way(column_0)),
    (
        "FOREIGN-TARGETS",
        f"targets of other ranks are looked up as the first or last column (clamp), {_FOREIGN}",
        Way(clamped),
    ),
    ("FOREIGN-TARGETS", f"targets of other ranks are looked up as target % columns, {_FOREIGN}", Way(remainder)),
    (
        "FOREIGN-TARGETS",
        "targets of other ranks are looked up as column 0 of the own part, in the loss",
        Way(column_0, masked),
    ),
    ("FOREIGN-ONE-HOT", f"{_RIGHT} 1 is subtracted at column 0 for targets of other ranks", Way(one_hot=column_0)),
    (
        "FOREIGN-ONE-HOT",
        f"{_RIGHT} 1 is subtracted at the first or last column for targets of other ranks",
        Way(one_hot=clamped),
    ),
    (
        "FOREIGN-ONE-HOT",
        f"{_RIGHT} 1 is subtracted at target % columns for targets of other ranks",
        Way(one_hot=remainder),
    ),
    ("NO-ONE-HOT", f"{_RIGHT} 1 is not subtracted at the target: it is the softmax alone", Way(one_hot=none)),
    (
        "BORDER-ID",
        "the first token of each part counts as no target: its logit is missing in the loss",
        Way(without_first),
    ),
    (
        "LARGEST",
        "the largest of the ranks' values for the target's logit is taken, and 0 of the other ranks is larger than a "
        "negative logit: add them up",
        Way(target="largest"),
    ),
    (
        "LARGEST",
        "the largest of the ranks' values for the target's logit is taken, and 0 of the other ranks is larger than a "
        "logit below 0: add them up",
        Way(target="largest raw"),
    ),
    ("IGNORED-COUNTED", "ignored targets count, in the loss and in the divisor", Way(mean="all", divisor="all")),
    (
        "IGNORED-COUNTED",
        "ignored targets count, in the loss and in the divisor; their gradients are 0",
        Way(mean="all", divisor="all counted"),
    ),
    (
        "IGNORED-COUNTED",
        "ignored targets have the loss 0, and count in the divisor all the same, also in the gradient's",
        Way(mean="all counted"),
    ),
    (
        "IGNORED-COUNTED",
        "ignored targets have the loss 0, and count in the divisor all the same (the gradient's is right)",
        Way(mean="all counted", divisor="count"),
    ),
    ("IGNORED-COUNTED", f"{_RIGHT} ignored targets have theirs too: it should be 0", Way(divisor="kept")),
    (
        "IGNORED-COUNTED",
        f"{_RIGHT} the divisor is the number of all targets, with those that are ignored",
        Way(divisor="all counted"),
    ),
    ("SUM", "the losses are added up: their mean is asked", Way(mean="sum")),
    ("SUM", "the loss is the mean, but the gradient is that of the sum: it is not divided", Way(divisor="sum")),
    (
        "REDUCED-AGAIN",
        "the losses are right, but the gradient is t times as large: each rank begins backward with the whole "
        "gradient, which must not be added up over the ranks again",
        Way(times="t"),
    ),
    ("AVERAGED", "the losses are right, but the gradient is divided by the number of ranks", Way(times="1/t")),
    (
        "UPSTREAM-IGNORED",
        "the losses are right, but the gradient is that of a loss whose own gradient is 1: backward is given another "
        "one, where the loss is scaled, and has to multiply by it",
        Way(upstream=False),
    ),
    (
        "THROUGH-MAXIMUM",
        f"{_RIGHT} the column of the largest logit of each part is wrong: the maximum is a constant that cancels out "
        "over all ranks together, not on each; detach it",
        Way(through=True),
    ),
    (
        "GROUP-IGNORED",
        "the first token of a part is computed from the rank in the world, not from the rank in the group",
        Way(place="world"),
    ),
    ("GROUP-IGNORED", "all ranks are added up, not those of the group", Way(sums="world", target="world")),
)
