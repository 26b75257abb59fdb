"""ch03.shard_indices: as torch's DistributedSampler, over several epochs, also with fewer samples than ranks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.utils.data import DistributedSampler

from ....runtime.record import Record
from ... import rules
from ...check import Case, Check, Finding, Given, Mistake
from ...compare import compare

Order = list[int]
# Samples: `per_rank` for each rank and `more`, but at least one. `turned`: processes play the ranks backwards.
_CASES: dict[str, dict[str, Any]] = {
    "in order, N divides n": {"per_rank": 3, "more": 0, "shuffle": False, "drop_last": False},
    "in order, padded": {"per_rank": 3, "more": 1, "shuffle": False, "drop_last": False},
    "shuffled, three epochs": {"per_rank": 4, "more": 1, "shuffle": True, "drop_last": False, "epochs": [0, 1, 7]},
    "drop_last": {"per_rank": 5, "more": -1, "shuffle": True, "drop_last": True, "epochs": [3]},
    "fewer samples than ranks": {"per_rank": 0, "more": 1, "shuffle": True, "drop_last": False, "epochs": [2]},
    "fewer samples than ranks, drop_last": {"per_rank": 1, "more": -1, "shuffle": False, "drop_last": True},
    "rank is an argument": {"per_rank": 4, "more": 2, "shuffle": True, "drop_last": False, "turned": True},
}
_SHOWN = 4  # indices of a list
_ALIKE = "All ranks need the same order, and each its own places in it."


def inputs(case: Case) -> Given:
    size, params = case.world_size, case.params
    job = {
        "n": max(1, params["per_rank"] * size + params["more"]),
        "num_replicas": size,
        "shuffle": params["shuffle"],
        "seed": int(torch.randint(1, 1000, (), generator=case.generator())),
        "drop_last": params["drop_last"],
        "epochs": params.get("epochs", [0]),
    }
    return [{**job, "rank": size - 1 - r if params.get("turned") else r} for r in range(size)]


def on_rank(answer: Any, n: int, num_replicas: int, rank: int, epochs: Any, **options: Any) -> Any:
    return {f"epoch {epoch}": answer(n, num_replicas, rank, epoch=epoch, **options) for epoch in epochs}


def expected(case: Case, given: Given) -> list[dict[str, Order]]:
    return [{f"epoch {epoch}": _sampled(i, epoch) for epoch in i["epochs"]} for i in given]


def _sampled(i: dict[str, Any], epoch: int) -> Order:
    names = ("num_replicas", "rank", "shuffle", "seed", "drop_last")
    sampler = DistributedSampler(range(i["n"]), **{name: i[name] for name in names})  # type: ignore[arg-type,var-annotated]
    sampler.set_epoch(epoch)
    return [int(index) for index in sampler]


def _order(i: dict[str, Any], seed: int, shuffle: bool | None = None) -> Order:
    if i["shuffle"] if shuffle is None else shuffle:
        return _shuffled(list(range(i["n"])), seed)
    return list(range(i["n"]))


def _whole(i: dict[str, Any], order: Order, drop_last: bool | None = None) -> Order:
    """Padded or cut to a multiple of the number of ranks."""
    n, size = int(i["n"]), int(i["num_replicas"])
    if i["drop_last"] if drop_last is None else drop_last:
        return order[: n // size * size]
    total = math.ceil(n / size) * size
    return (order * math.ceil(total / n))[:total]


def _dealt(i: dict[str, Any], whole: Order) -> Order:
    return whole[i["rank"] :: i["num_replicas"]]


def _block(i: dict[str, Any], order: Order, length: int) -> Order:
    return order[i["rank"] * length : (i["rank"] + 1) * length]


def mistakes(case: Case, given: Given) -> list[Mistake]:
    first = given[0]
    n, size, epochs = first["n"], first["num_replicas"], first["epochs"]
    extra = -n % size
    found: list[Mistake] = []

    def add(code: str, text: str, shard: Callable[[dict[str, Any], int], Order]) -> None:
        shards = [{f"epoch {epoch}": shard(i, epoch) for epoch in epochs} for i in given]
        found.append(Mistake(code, text, shards))

    def order(i: dict[str, Any], epoch: int) -> Order:
        return _order(i, i["seed"] + epoch)

    def blocks(text: str, shard: Callable[[dict[str, Any], int], Order]) -> None:
        start = {**first, "rank": 0}
        right, wrong = (_short(f(start, epochs[0])) for f in (_sampled, shard))
        add("DTL-VALUE-BLOCKS", f"contiguous blocks: {text}; rank 0 has {wrong} and should have {right}", shard)

    blocks(
        "rank r takes the r-th piece of the order, but it is dealt out like cards, order[r::N]",
        lambda i, e: _block(i, whole := _whole(i, order(i, e)), len(whole) // size),
    )
    blocks(
        "rank r takes the r-th piece of the order, and nothing is padded or dropped; order[r::N] deals it out",
        lambda i, e: _block(i, order(i, e), math.ceil(n / size)),
    )
    blocks(
        "rank r takes the r-th piece of the order, and nothing is padded or dropped; order[r::N] deals it out",
        lambda i, e: torch.tensor(order(i, e)).tensor_split(size)[i["rank"]].tolist(),
    )
    add(
        "DTL-VALUE-DROP-IGNORED",
        f"drop_last=True was ignored: the order is padded by {size - n % size}, and should be cut by {n % size}",
        lambda i, e: _dealt(i, _whole(i, order(i, e), drop_last=False)),
    )
    add(
        "DTL-VALUE-DROPPED",
        f"{n % size} of {n} samples are dropped; without drop_last the order is padded, by {extra}",
        lambda i, e: _dealt(i, _whole(i, order(i, e), drop_last=True)),
    )
    lengths = [len(range(r, n, size)) for r in range(size)]
    add(
        "DTL-VALUE-LENGTHS",
        f"neither padded nor cut: ranks 0 to {size - 1} have {', '.join(map(str, lengths))} samples; those with more "
        "make more steps, and hang in the all-reduce that the others do not make",
        lambda i, e: _dealt(i, order(i, e)),
    )
    add(
        "DTL-VALUE-LENGTHS",
        f"padded once only: {n} samples and the same {n} again are too few for {size} ranks, and some get none; "
        "repeat the order as often as needed",
        lambda i, e: _dealt(i, order(i, e) + order(i, e)[: -i["n"] % size]),
    )
    add(
        "DTL-VALUE-EPOCH",
        "the same order in every epoch: the epoch is not in the generator's seed, which is seed + epoch",
        lambda i, e: _dealt(i, _whole(i, _order(i, i["seed"]))),
    )
    add(
        "DTL-VALUE-SEED",
        "the generator is seeded with the epoch alone: the argument seed is ignored",
        lambda i, e: _dealt(i, _whole(i, _order(i, e))),
    )
    for add_epoch in (1, 0):
        add(
            "DTL-VALUE-SEED",
            "every rank shuffles with a seed of its own, with rank in it: the ranks deal from different orders, so "
            "that samples are seen twice and others never; all need the same order",
            lambda i, e, k=add_epoch: _dealt(i, _whole(i, _order(i, i["seed"] + i["rank"] + k * e))),  # type: ignore[misc]
        )
    if first["shuffle"] and size > 1:
        add(
            "DTL-VALUE-LOCAL-SHUFFLE",
            "dealt out first and shuffled then: every rank sees the same samples in every epoch, and never the others'",
            lambda i, e: _shuffled(_dealt(i, _whole(i, _order(i, 0, shuffle=False))), i["seed"] + e),
        )
    asked = "shuffle=False" if not first["shuffle"] else "shuffle=True"
    add(
        "DTL-VALUE-SHUFFLE",
        f"{asked} was ignored",
        lambda i, e: _dealt(i, _whole(i, _order(i, i["seed"] + e, shuffle=not i["shuffle"]))),
    )
    fillers: list[tuple[str, Callable[[Order], Order]]] = [
        ("repeats the last sample of the order", lambda o: o[-1:] * extra),
        ("repeats the last samples of the order", lambda o: o[-extra:]),
        ("repeats sample 0", lambda o: [0] * extra),
        ("takes the samples 0, 1, ... and not the first of the shuffled order", lambda o: list(range(extra))),
    ]
    for what, filler in fillers if extra and not first["drop_last"] else []:
        text = f"the padding {what}; it should begin the order again from its start"
        add("DTL-VALUE-PADDING", text, lambda i, e, f=filler: _dealt(i, (o := order(i, e)) + f(o)))  # type: ignore[misc]
    found.append(
        Mistake(
            "DTL-VALUE-RANK",
            "the rank is that of this process, dist.get_rank(), and not the argument `rank`: later, when ranks share "
            "the same data, the two differ",
            [expected(case, [{**i, "rank": r}])[0] for r, i in enumerate(given)],
        )
    )
    return found


def _shuffled(samples: Order, seed: int) -> Order:
    places = torch.randperm(len(samples), generator=torch.Generator().manual_seed(seed)).tolist()
    return [samples[place] for place in places]


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Compares; where the values alone say nothing, by what all ranks have together."""
    found = compare(_VALUES, case, given, expected(case, given), got)
    if found is None or found.code not in ("DTL-VALUE", "DTL-VALUE-SHAPE", "DTL-VALUE-ONE-RANK"):
        return found
    whole = expected(case, given)
    n, ranks = given[0]["n"], f"ranks 0 to {case.world_size - 1}"
    for epoch in whole[0]:
        have: list[Any] = [one.get(epoch) if isinstance(one, dict) else None for one in got]
        if not all(isinstance(shard, list) and all(type(s) is int for s in shard) for shard in have):
            return found
        if len({len(shard) for shard in have}) > 1:
            text = f"in {epoch} {ranks} have {', '.join(str(len(shard)) for shard in have)} samples: those with more "
            return replace(found, code="DTL-VALUE-LENGTHS", text=f"{text}make more steps, and hang", advice="")
        seen, wanted = (Counter(s for one in by_rank for s in one[epoch]) for by_rank in (got, whole))
        if strange := sorted(s for s in seen if s not in range(n)):
            text = f"in {epoch} there is an index {strange[0]}; with {n} samples the last is {n - 1}"
            return replace(found, code="DTL-VALUE-SAMPLES", text=text, advice="")
        most = max(seen.values(), default=0)
        if most > max(wanted.values(), default=0):
            often, never = min(s for s in seen if seen[s] == most), [s for s in range(n) if s not in seen]
            text = f"in {epoch} the ranks together see sample {often} {'twice' if most == 2 else f'{most} times'}"
            text += f", and sample {never[0]} never" if never else ""
            return replace(found, code="DTL-VALUE-SAMPLES", text=text, advice=_ALIKE)
        if have != [one[epoch] for one in whole] and given[0]["shuffle"]:
            text = f"in {epoch} every sample is there, in another order than that of torch.randperm(n, generator=g), g "
            return replace(found, code="DTL-VALUE-ORDER", text=f"{text}seeded with seed + epoch", advice="")
    return found


def _short(samples: Order) -> str:
    return f"[{', '.join(map(str, samples[:_SHOWN]))}{', ...' * (len(samples) > _SHOWN)}]"


_VALUES = Check(on_rank, inputs, expected, cases=_CASES, mistakes=mistakes)
CHECK = replace(
    _VALUES,
    expected=None,
    verify=verify,
    rules=[rules.most_messages("0")],
)
