"""ch03.shard_indices: as torch's DistributedSampler, from a plain order to fewer samples than ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DistributedSampler

from dtlearn.grading import Case, Check, Edit, Given, rules

# Samples: `per_rank` for each rank and `more`, but at least one. `pairs`: two processes play one rank, the last ones
# rank 0: so neither the rank nor the number of ranks is that of `dist`.
CASES: dict[str, dict[str, Any]] = {
    "in order": {"per_rank": 3, "says": "rank r takes the positions r, r + N, r + 2N, ... of the order"},
    "a number of samples that N does not divide": {
        "says": "without drop_last the order is padded to the next multiple of N, from its own start",
        "per_rank": 3,
        "more": 1,
    },
    "shuffle": {
        "says": "with shuffle the order is torch.randperm(n, generator=g), g seeded with seed + epoch",
        "per_rank": 5,
        "shuffle": True,
    },
    "several epochs": {
        "says": "each epoch has an order of its own: the seed is seed + epoch",
        "per_rank": 5,
        "shuffle": True,
        "epochs": [0, 1, 7],
    },
    "shuffle and padding": {
        "says": "the padding is the beginning of the shuffled order, of all its n samples",
        "per_rank": 4,
        "more": 1,
        "shuffle": True,
    },
    "drop_last": {
        "says": "with drop_last the order is cut to n // N samples for each rank, and no more is dropped",
        "per_rank": 5,
        "more": -1,
        "drop_last": True,
    },
    "fewer samples than ranks": {
        "says": "with fewer samples than ranks the order is repeated as often as needed",
        "per_rank": 0,
        "more": 1,
    },
    "fewer samples than ranks, drop_last": {
        "says": "with drop_last and fewer samples than ranks every list is empty",
        "per_rank": 1,
        "more": -1,
        "drop_last": True,
    },
    "two processes share a rank": {
        "says": "the rank and the number of ranks are the arguments: when ranks share the same data, dist has others",
        "per_rank": 4,
        "pairs": True,
    },
}
DEALT = "return order[:total][rank::num_replicas]"
PADDED, REPEATED = "total = math.ceil(n / num_replicas) * num_replicas", "order = order * math.ceil(total / n)"
CUT, SEED = "n // num_replicas * num_replicas", "manual_seed(seed + epoch)"
SHUFFLED = "order = torch.randperm(n, generator=generator).tolist()"
# The special ones first: of two that lead to the same values the first one names them.
EDITS = (
    Edit("the number of ranks is dist.get_world_size(), and not the argument `num_replicas`: when ranks share the same "
         "data, they differ",
         {"order = list(range(n))": "num_replicas = torch.distributed.get_world_size(); order = list(range(n))"}),
    Edit("the rank is that of this process, dist.get_rank(), and not the argument `rank`: when ranks share the same "
         "data, they differ", {DEALT: "return order[:total][torch.distributed.get_rank() :: num_replicas]"}),
    Edit("with drop_last and fewer samples than ranks every list is empty: here some ranks have a sample",
         {CUT: "max(1, n // num_replicas) * num_replicas"}),
    Edit("padded once only: with fewer samples than ranks the order and one repeat of it are too few, and some ranks "
         "get none; repeat the order as often as needed", {REPEATED: "order = order + order[: total - n]"}),
    Edit("a whole round is dropped where N divides n: nothing is left over there",
         {CUT: "(n - 1) // num_replicas * num_replicas"}),
    Edit("drop_last=True is ignored: the order is padded, and should be cut", {"if drop_last:": "if False:"}),
    Edit("padded or cut first, and shuffled then: shuffle the n samples, and pad or cut their order",
         {SHUFFLED: "", DEALT: "order = order[:total]; order = [order[i] for i in torch.randperm(total, "
          "generator=generator)] if shuffle else order; return order[rank::num_replicas]"}),
    Edit("the same order in every epoch: the epoch is not in the generator's seed, which is seed + epoch",
         {SEED: "manual_seed(seed)"}),
    Edit("dealt out first and shuffled then: every rank sees the same samples in every epoch, and never the others'",
         {SHUFFLED: "", DEALT: "mine = order[:total][rank::num_replicas]; return [mine[i] for i in "
          "torch.randperm(len(mine), generator=generator)] if shuffle else mine"}),
    Edit("every rank shuffles with a seed of its own, with rank in it: the ranks deal from different orders, so that "
         "samples are seen twice and others never; all need the same order",
         {SEED: "manual_seed(seed + epoch + rank)"}),
    Edit("torch's global random numbers were changed: pass a torch.Generator of your own to randperm, generator=g; "
         "else dropout and all else that is random changes", {"torch.Generator().manual_seed": "torch.manual_seed"}),
    Edit("the seed is seed * epoch, which is 0 in epoch 0 whatever seed is: it is seed + epoch",
         {SEED: "manual_seed(seed * epoch)"}),
    Edit("the seed is the epoch alone: the argument seed is ignored", {SEED: "manual_seed(epoch)"}),
    Edit("shuffle=True is ignored", {"if shuffle:": "if False:"}),
    Edit("the padding takes the samples 0, 1, ... and not the first of the shuffled order",
         {REPEATED: "order = order + list(range(n)) * num_replicas"}),
    Edit("the padding repeats sample 0: it should go on in the order from its start",
         {REPEATED: "order = order + [0] * (total - n)"}),
    Edit("each rank pads its own samples, with the first of them: the order of all is padded, from its own start, and "
         "dealt out then", {DEALT: "mine = order[: min(n, total)][rank::num_replicas] or order[:1]; return mine + "
          "mine[:1] * (total // num_replicas - len(mine))"}),
    Edit("the padding repeats the end of the order: it should begin the order again from its start",
         {REPEATED: "order = order + order[-1:] * (total - n)"}),
    Edit("neither padded nor cut: ranks with more samples make more steps, and hang in the all-reduce that the others "
         "do not make", {DEALT: "return order[:n][rank::num_replicas]"}),
    Edit("samples are dropped: without drop_last the order is padded", {"if drop_last:": "if True:"}),
    Edit("shuffle=False is ignored", {"if shuffle:": "if True:"}),
    Edit("a multiple of N is padded by another round: it stays as long as it is",
         {PADDED: "total = (n // num_replicas + 1) * num_replicas"}),
    Edit("contiguous blocks, and nothing is padded or dropped: the order is dealt out like cards, order[r::N]",
         {DEALT: "return torch.tensor(order[:n]).tensor_split(num_replicas)[rank].tolist()"}),
    Edit("contiguous blocks: rank r takes the r-th piece of the order, but it is dealt out like cards, order[r::N]",
         {DEALT: "size = total // num_replicas; return order[:total][rank * size : (rank + 1) * size]"}),
    Edit("an index is a whole number, and this is a float",
         {DEALT: "return [i / 1 for i in order[:total][rank::num_replicas]]"}),
    Edit("nothing is returned: is a `return` missing?", {DEALT: DEALT.removeprefix("return ")}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    p, size = case.params, case.world_size
    num_replicas = (size + 1) // 2 if "pairs" in p else size
    same = {
        "n": max(1, p["per_rank"] * num_replicas + p.get("more", 0)),
        "num_replicas": num_replicas,
        "shuffle": p.get("shuffle", False),
        "seed": int(torch.randint(1, 1000, (), generator=case.generator())),
        "drop_last": p.get("drop_last", False),
        "epochs": p.get("epochs", [0]),
    }
    return [{**same, "rank": (size - 1 - r) // 2 if "pairs" in p else r} for r in range(size)]


def on_rank(answer: Any, n: int, num_replicas: int, rank: int, epochs: Any, **options: Any) -> Any:
    before = torch.get_rng_state()
    made = {f"epoch {epoch}": answer(n, num_replicas, rank, epoch=epoch, **options) for epoch in epochs}
    if None in made.values():
        return None
    floats = any(isinstance(index, float) for indices in made.values() for index in indices)
    changed = not torch.equal(torch.get_rng_state(), before)
    return {**made, "floats among the indices": floats, "torch's global random numbers changed": changed}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    return [
        {
            **{f"epoch {epoch}": sampled(own, epoch) for epoch in own["epochs"]},
            "floats among the indices": False,
            "torch's global random numbers changed": False,
        }
        for own in given
    ]


def sampled(own: dict[str, Any], epoch: int) -> list[int]:
    names = ("num_replicas", "rank", "shuffle", "seed", "drop_last")
    sampler = DistributedSampler(range(own["n"]), **{name: own[name] for name in names})  # type: ignore[arg-type,var-annotated]
    sampler.set_epoch(epoch)
    return [int(index) for index in sampler]


NOT_SHUFFLED = {"shuffle": False, "seed": 0, "epochs": [0]}
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    rules=[rules.most_messages("0")],
    example=[{"n": 5, "num_replicas": 2, "rank": rank, "drop_last": False, **NOT_SHUFFLED} for rank in range(2)],
)
