"""ch03.shard_indices: as torch's DistributedSampler, over several epochs, also with fewer samples than ranks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.utils.data import DistributedSampler

from dtlearn.grading import Case, Check, Finding, Given, Mistake, compare, rules
from dtlearn.runtime.record.record import Record
from dtlearn.runtime.words import counted

from ._orders import Order, block, dealt, order_of, short, shuffled, whole_rounds

# Samples: `per_rank` for each rank and `more`, but at least one. `pairs`: two processes play one rank, the last ones
# rank 0: so neither the rank nor the number of ranks is that of `dist`.
_CASES: dict[str, dict[str, Any]] = {
    "in order, N divides n": {"per_rank": 3, "more": 0, "shuffle": False, "drop_last": False},
    "in order, padded": {"per_rank": 3, "more": 1, "shuffle": False, "drop_last": False},
    "shuffled, three epochs": {"per_rank": 4, "more": 1, "shuffle": True, "drop_last": False, "epochs": [0, 1, 7]},
    "drop_last": {"per_rank": 5, "more": -1, "shuffle": True, "drop_last": True, "epochs": [3]},
    "fewer samples than ranks": {"per_rank": 0, "more": 1, "shuffle": True, "drop_last": False, "epochs": [2]},
    "fewer samples than ranks, drop_last": {"per_rank": 1, "more": -1, "shuffle": False, "drop_last": True},
    "two processes share a rank": {"per_rank": 4, "more": 2, "shuffle": True, "drop_last": False, "pairs": True},
}
_ALIKE = "All ranks need the same order, and each its own places in it."


def inputs(case: Case) -> Given:
    params = case.params
    size = (case.world_size + 1) // 2 if params.get("pairs") else case.world_size
    job = {
        "n": max(1, params["per_rank"] * size + params["more"]),
        "num_replicas": size,
        "shuffle": params["shuffle"],
        "seed": int(torch.randint(1, 1000, (), generator=case.generator())),
        "drop_last": params["drop_last"],
        "epochs": params.get("epochs", [0]),
    }
    n = case.world_size
    return [{**job, "rank": (n - 1 - r) // 2 if params.get("pairs") else r} for r in range(n)]


def on_rank(answer: Any, n: int, num_replicas: int, rank: int, epochs: Any, **options: Any) -> Any:
    before = torch.get_rng_state()
    made = {f"epoch {epoch}": answer(n, num_replicas, rank, epoch=epoch, **options) for epoch in epochs}
    return {**made, "reseeded": not torch.equal(torch.get_rng_state(), before)}


def expected(case: Case, given: Given) -> list[dict[str, Order]]:
    return [{f"epoch {epoch}": _sampled(i, epoch) for epoch in i["epochs"]} for i in given]


def _sampled(i: dict[str, Any], epoch: int) -> Order:
    names = ("num_replicas", "rank", "shuffle", "seed", "drop_last")
    sampler = DistributedSampler(range(i["n"]), **{name: i[name] for name in names})  # type: ignore[arg-type,var-annotated]
    sampler.set_epoch(epoch)
    return [int(index) for index in sampler]


def mistakes(case: Case, given: Given) -> list[Mistake]:
    first = given[0]
    n, size, epochs = first["n"], first["num_replicas"], first["epochs"]
    extra = -n % size
    found: list[Mistake] = []

    def add(code: str, text: str, shard: Callable[[dict[str, Any], int], Order]) -> None:
        shards = [{f"epoch {epoch}": shard(i, epoch) for epoch in epochs} for i in given]
        found.append(Mistake(code, text, shards))

    def order(i: dict[str, Any], epoch: int) -> Order:
        return order_of(i, i["seed"] + epoch)

    def blocks(text: str, shard: Callable[[dict[str, Any], int], Order]) -> None:
        start = {**first, "rank": 0}
        right, wrong = (short(f(start, epochs[0])) for f in (_sampled, shard))
        add("DTL-VALUE-BLOCKS", f"contiguous blocks: {text}; rank 0 has {wrong} and should have {right}", shard)

    blocks(
        "rank r takes the r-th piece of the order, but it is dealt out like cards, order[r::N]",
        lambda i, e: block(i, whole := whole_rounds(i, order(i, e)), len(whole) // size),
    )
    blocks(
        "rank r takes the r-th piece of the order, and nothing is padded or dropped; order[r::N] deals it out",
        lambda i, e: block(i, order(i, e), math.ceil(n / size)),
    )
    blocks(
        "rank r takes the r-th piece of the order, and nothing is padded or dropped; order[r::N] deals it out",
        lambda i, e: torch.tensor(order(i, e)).tensor_split(size)[i["rank"]].tolist(),
    )
    ignored = f"drop_last=True was ignored: the order is padded by {size - n % size}, and should be cut by {n % size}"
    if n < size:
        ignored = (
            f"with drop_last and {counted(n, 'sample')} for {size} ranks every list is empty; this one is padded, "
        )
        ignored += "so that each rank has a sample"
    add(
        "DTL-VALUE-DROP-IGNORED",
        ignored,
        lambda i, e: dealt(i, whole_rounds(i, order(i, e), drop_last=False)),
    )
    add(
        "DTL-VALUE-DROPPED",
        f"{n % size} of {counted(n, 'sample')} dropped; without drop_last the order is padded, by {extra}",
        lambda i, e: dealt(i, whole_rounds(i, order(i, e), drop_last=True)),
    )
    lengths = [len(range(r, n, size)) for r in range(size)]
    add(
        "DTL-VALUE-LENGTHS",
        f"neither padded nor cut: ranks 0 to {size - 1} have {', '.join(map(str, lengths))} samples; those with more "
        "make more steps, and hang in the all-reduce that the others do not make",
        lambda i, e: dealt(i, order(i, e)),
    )
    add(
        "DTL-VALUE-LENGTHS",
        f"padded once only: with {counted(n, 'sample')}, the order and one repeat of it are too few for {size} ranks, "
        "and some get none; repeat the order as often as needed",
        lambda i, e: dealt(i, order(i, e) + order(i, e)[: -i["n"] % size]),
    )
    add(
        "DTL-VALUE-EPOCH",
        "the same order in every epoch: the epoch is not in the generator's seed, which is seed + epoch",
        lambda i, e: dealt(i, whole_rounds(i, order_of(i, i["seed"]))),
    )
    add(
        "DTL-VALUE-SEED",
        "the generator is seeded with the epoch alone: the argument seed is ignored",
        lambda i, e: dealt(i, whole_rounds(i, order_of(i, e))),
    )
    add(
        "DTL-VALUE-SEED",
        "the generator is seeded with seed * epoch, which is 0 in epoch 0 whatever the seed is; it is seed + epoch",
        lambda i, e: dealt(i, whole_rounds(i, order_of(i, i["seed"] * e))),
    )
    for add_epoch in (1, 0):
        add(
            "DTL-VALUE-SEED",
            "every rank shuffles with a seed of its own, with rank in it: the ranks deal from different orders, so "
            "that samples are seen twice and others never; all need the same order",
            lambda i, e, k=add_epoch: dealt(i, whole_rounds(i, order_of(i, i["seed"] + i["rank"] + k * e))),  # type: ignore[misc]
        )
    if first["shuffle"] and size > 1:
        add(
            "DTL-VALUE-LOCAL-SHUFFLE",
            "dealt out first and shuffled then: every rank sees the same samples in every epoch, and never the others'",
            lambda i, e: shuffled(dealt(i, whole_rounds(i, order_of(i, 0, shuffle=False))), i["seed"] + e),
        )
    if first["shuffle"] and extra:
        add(
            "DTL-VALUE-ORDER",
            f"padded or cut first, and shuffled then: shuffle the {counted(n, 'sample')}, and pad or cut their order",
            lambda i, e: dealt(i, shuffled(whole_rounds(i, order_of(i, 0, shuffle=False)), i["seed"] + e)),
        )
    asked = "shuffle=False" if not first["shuffle"] else "shuffle=True"
    add(
        "DTL-VALUE-SHUFFLE",
        f"{asked} was ignored",
        lambda i, e: dealt(i, whole_rounds(i, order_of(i, i["seed"] + e, shuffle=not i["shuffle"]))),
    )
    fillers: list[tuple[str, Callable[[Order], Order]]] = [
        ("repeats the last sample of the order", lambda o: o[-1:] * extra),
        ("repeats the last samples of the order", lambda o: o[-extra:]),
        ("repeats sample 0", lambda o: [0] * extra),
        ("takes the samples 0, 1, ... and not the first of the shuffled order", lambda o: list(range(extra))),
    ]
    for what, filler in fillers if extra and not first["drop_last"] else []:
        text = f"the padding {what}; it should begin the order again from its start"
        add("DTL-VALUE-PADDING", text, lambda i, e, f=filler: dealt(i, (o := order(i, e)) + f(o)))  # type: ignore[misc]
    if extra and not first["drop_last"]:
        add(
            "DTL-VALUE-PADDING",
            "each rank pads its own samples, with the first of them; the order of all is padded, from its own start, "
            "and dealt out then",
            lambda i, e: (own := dealt(i, o := order(i, e)) or o[:1]) + own[:1] * (math.ceil(n / size) - len(own)),
        )
    for what, name, own in (
        ("rank is that of this process, dist.get_rank()", "rank", {"rank"}),
        ("number of ranks is dist.get_world_size()", "num_replicas", {"num_replicas"}),
        ("rank and the number of ranks are those of `dist`", "rank` and `num_replicas", {"rank", "num_replicas"}),
    ):
        jobs: list[dict[str, Any]] = [
            {**i, **{k: v for k, v in {"rank": r, "num_replicas": case.world_size}.items() if k in own}}
            for r, i in enumerate(given)
        ]
        shares = [{f"epoch {e}": dealt(j, whole_rounds(j, order(j, e))) for e in epochs} for j in jobs]
        text = f"the {what}, and not the argument `{name}`: when ranks share the same data, they differ"
        found.append(Mistake("DTL-VALUE-RANK", text, shares))
    return found


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Compares; where the values alone say nothing, by what all ranks have together."""
    for rank, one in enumerate(got):
        if one.pop("reseeded", False):
            text = (
                f"rank {rank} changed torch's global random numbers: pass a torch.Generator of your own to randperm, "
            )
            return Finding(
                "DTL-VALUE-SEED", f"{text}generator=g; else dropout and all else that is random changes", rank
            )
        for epoch, shard in one.items():
            if shard is None:
                return Finding("DTL-VALUE-NONE", f"rank {rank} returned None: is a `return` missing?", rank)
            if isinstance(shard, list) and (odd := next((s for s in shard if isinstance(s, float)), None)) is not None:
                text = f"rank {rank} returned {odd!r} in {epoch}: an index is a whole number, and this is a float"
                return Finding("DTL-VALUE-TYPE", text, rank)
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
        right = len(whole[0][epoch])
        if len(have[0]) != right:
            text = f"in {epoch} each rank has {counted(len(have[0]), 'sample')}, and should have {right}: "
            what = "cut to" if given[0]["drop_last"] else "padded to"
            text += f"{counted(n, 'sample')} dealt out to N = {given[0]['num_replicas']}, and {what} a multiple of N"
            return replace(found, code="DTL-VALUE-LENGTHS", text=text, advice="")
        seen, wanted = (Counter(s for one in by_rank for s in one[epoch]) for by_rank in (got, whole))
        if strange := sorted(s for s in seen if s not in range(n)):
            text = f"in {epoch} there is an index {strange[0]}; with {counted(n, 'sample')} the last is {n - 1}"
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


_VALUES = Check(on_rank, inputs, expected, cases=_CASES, mistakes=mistakes)
CHECK = replace(
    _VALUES,
    expected=None,
    verify=verify,
    rules=[rules.most_messages("0")],
)
