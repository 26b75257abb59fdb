"""ch09.reduce_scatter_hook: a network of branches; the shards, then when each bucket was launched, and what was freed.

How many buckets were launched when a gradient was there: torch counts the collectives of a group.
"""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, Stress, rules
from dtlearn.runtime.record.record import Record

from ..sent import no_stores
from . import MAY_HELP, groups_of
from ._launches import one_under_way

IN_TURN = [[5, 4], [3, 2], [1, 0]]  # parameters 2 i and 2 i + 1 are weight and bias of branch i
TURNED = (
    "where the gradients become ready in another order on each rank, all launch the buckets in the order of the list"
)
# Per case: the `buckets`; `turn`, by how many branches each rank begins later; `unused`, of each step, the branches
# that rank 0 leaves out and those that all do; `shape` of a weight; `look`, what is compared.
CASES: dict[str, dict[str, Any]] = {
    "one step": {},
    "padding": {
        "says": "zeros at the end of a bucket's vector make its length a multiple of N, and no longer",
        "shape": (4, 1),
    },
    "two steps": {
        "says": "in the second step the shards are wrong: finish() has to start over, with nothing of the step before",
        "unused": [([], []), ([], [])],
    },
    "other orders on other ranks": {
        "says": f"{TURNED}, and the gradients stand in the order of the bucket",
        "turn": 1,
        "buckets": [[5, 2], [4, 3], [1, 0]],
    },
    "parameters without a gradient": {
        "says": "a parameter that gets no gradient, on one rank or on all, counts as zeros at its place in the bucket",
        "buckets": [[4, 3], [2, 5], [0, 1]],
        "unused": [([], [1]), ([2], [])],
        "shape": (2, 2),
    },
    "groups of ranks": {
        "says": "with `group`, N, the shards and the mean are those of its ranks",
        "pairs": True,
        "shape": (2, 2),
        "sizes": (4,),
    },
    "when buckets are launched": {
        "says": "a bucket is launched in the hook of the gradient that completes it and all buckets before it, and in "
        "finish() only if backward does not complete it",
        "turn": 1,
        "unused": [([], []), ([0], []), ([], [])],
        "look": "launched",
    },
    "what is freed": {
        "says": "full gradients are kept: a bucket's .grad are None from its launch on, and its vector goes when it "
        "was waited for",
        "shape": (22, 22),
        "unused": [([], []), ([], [])],
        "look": "kept",
    },
}
DIVIDED, START = "p.grad.flatten() / num_ranks", "new_zeros(size + -size % num_ranks), 0"
MORE = (
    "while len(self._shards) < len(self.buckets) and not self._missing[len(self._shards)]:\n            self.launch()"
)
HOOK, BUCKET, SIZE = "lambda _, number=number: self.arrived(number)", "self.buckets[len(self._shards)]", "size = sum("
KEEP, AGAIN = "self._shards.append(shard)", "self._missing = [len(bucket) for bucket in self.buckets]\n"
EDITS = (
    Edit("the gradients are added up over the ranks, and not divided by N", {DIVIDED: "p.grad.flatten()"}),
    Edit("the gradients are divided by N twice", {DIVIDED: f"{DIVIDED}**2"}),
    Edit("the last bucket is not divided by N, and the others are: it is waited for in finish(), and divided there",
         {DIVIDED: "p.grad.flatten() / (1 if len(self._shards) == len(self.buckets) - 1 else num_ranks)"}),
    Edit("the sum over the group is divided by the number of all ranks, not of those in group",
         {DIVIDED: "p.grad.flatten() / dist.get_world_size()"}),
    Edit("the shards are of each rank's own gradients: those of the other ranks are missing in them",
         {KEEP: "self._shards.append(parts[dist.get_rank(self.group)] * num_ranks)"}),
    Edit("a bucket is launched with its first gradient, when the others of it are not there: count per bucket",
         {"not self._missing[len(self._shards)]": f"self._missing[len(self._shards)] < len({BUCKET})"}),
    Edit("the padding stands in front of the gradients: it belongs at the end",
         {START: "new_zeros(size + -size % num_ranks), -size % num_ranks"}),
    Edit("N elements of padding are added where none are needed: N - size % N is N if N divides size; -size % N is 0",
         {START: "new_zeros(size + num_ranks - size % num_ranks), 0"}),
    Edit("in every step the shards are those of the first: finish() has to start over, with no shards",
         {"return shards\n": "self.first = getattr(self, 'first', shards)\n        return self.first\n"}),
    Edit("the gradients of a bucket stand in its vector as they arrived, in another order on each rank, so that "
         "different parameters are added up: keep to the order of the bucket",
         {HOOK: "lambda p, number=number: (self.came.setdefault(number, []).append(p), self.arrived(number))[1]",
          "self.buckets, self.group =": "self.came = {}; self.buckets, self.group =",
          SIZE: "came = self.came.pop(len(self._shards), []); bucket = sorted(bucket, key=lambda p: next((k for k, q "
                f"in enumerate(came) if q is p), len(bucket))); {SIZE}"}),
    Edit("where a parameter has no gradient, those after it in the bucket move up, to where its zeros should be",
         {"p.grad = None\n            start": "p.grad = None\n                start"}),
    Edit("`group` is not used: with it N, the shards and the mean are those of its ranks",
         {"self.group = buckets, group": "self.group = buckets, None"}),
    Edit("all hooks share the variable of a loop, and see its last value, as a function reads it when it runs: bind "
         "it, as in `lambda p, number=number: ...`", {HOOK: "lambda _: self.arrived(number)"}),
    Edit("nothing is launched while backward runs, though buckets are complete in it", {MORE: "pass"}),
    Edit("from the second step on nothing is launched while backward runs: finish() has to set anew how many gradients "
         "are missing", {AGAIN: "pass\n"}),
    Edit("in a hook one bucket is launched where two can be: the second was complete, and had waited for the first",
         {MORE: MORE.replace("while", "if")}),
    Edit("a bucket's .grad are still there after its launch: set them to None", {"p.grad = None\n": "pass\n"}),
    Edit("the last bucket's vector is still there after finish(): let go of it when it was waited for",
         {"self._under_way = None\n        shards": "shards"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    p, given = case.params, [dict[str, Any]() for _ in range(case.world_size)]
    rows, columns = p.get("shape", (2, 4))
    for number, ranks in enumerate(groups_of(case)):
        g = case.generator(number)
        shapes = [(rows, columns), (columns,)] * 3
        same = {"parameters": [torch.randn(shape, generator=g) / rows for shape in shapes], "look": p.get("look", "")}
        same |= {"buckets": p.get("buckets", IN_TURN), "group": groups_of(case) if "pairs" in p else []}
        for rank in ranks:
            orders = []
            for first, everyone in p.get("unused", [([], [])]):
                left_out = {*everyone, *(first if rank == 0 else [])}
                turned = [(branch + rank * p.get("turn", 0)) % 3 for branch in range(3)]
                orders.append([branch for branch in turned if branch not in left_out])
            given[rank] = {**same, "orders": orders, "x": torch.randn(len(orders), 2, rows, generator=g) + 1}
    return given


def on_rank(answer: Any, parameters: Any, buckets: Any, group: Any, orders: Any, x: Any, look: Any) -> Any:
    import contextlib
    import time

    from dtlearn.grading.on_rank.tools import own_group
    from dtlearn.memory.ledger.outside_torch import names_of_module, outside_torch
    from dtlearn.memory.ledger.storage_ledger import StorageLedger
    from dtlearn.runtime.recording.phases import phase

    own, notes = own_group(group), {}
    leaves: list[Any] = [torch.nn.Parameter(p.clone()) for p in parameters]
    reducer = answer([[leaves[i] for i in bucket] for bucket in buckets], group=own)
    made: list[Any] = [next(iter((leaf._post_accumulate_grad_hooks or {}).values()), None) for leaf in leaves]
    cells = [dict(zip(h.__code__.co_freevars, h.__closure__ or ())) for h in made if hasattr(h, "__code__")]  # noqa: B905
    of_first = cells[0].items() if len(cells) == len(leaves) else ()
    shared = [cell.cell_contents for name, cell in of_first if all(c.get(name) is cell for c in cells)]
    last = [v for v in shared if type(v) is int and v in (len(buckets) - 1, len(leaves) - 1)]
    counts: list[Any] = []

    def launched() -> int:
        return (own or dist.group.WORLD)._get_sequence_number_for_group() - begun  # type: ignore[no-any-return,name-defined,union-attr] # noqa: F821

    def ready(*_: Any) -> None:
        counts.append(launched())
        with phase("a gradient is there"):
            pass

    # Hooks of the node run last, after those of the leaf and those that the answer gave the node.
    nodes: list[Any] = [leaf.expand_as(leaf).grad_fn.next_functions[0][0] for leaf in leaves]
    for node in nodes:
        node.register_hook(ready)
    size = sum(leaves[i].nbytes for i in buckets[0])
    shards_size = -(-size // dist.get_world_size(own)) * len(buckets)  # type: ignore[name-defined] # noqa: F821
    for number, (rows, order) in enumerate(zip(x, orders, strict=True)):
        for leaf in leaves:
            leaf.grad = None
        with StorageLedger() if look == "kept" else contextlib.nullcontext() as ledger:
            with phase("a step begins"):
                begun = 0
                begun = launched()
            branches = [torch.tanh(rows @ leaves[2 * i] + leaves[2 * i + 1]).square().sum() * (i + 1) for i in order]
            torch.stack(branches).sum().backward()
            del branches
            with phase("backward is over"):
                pass
            there = any(leaf.grad is not None for leaf in leaves)
            roots = [reducer, *made, *names_of_module("exercise")]

            def held(most: float) -> bool:
                for _ in range(8):  # the backend lets go of a vector a little after wait()
                    if ledger.now <= most:  # type: ignore[union-attr]
                        return False
                    time.sleep(0.01)
                return True

            # Shards, vector and shard of a bucket under way, and half a vector to spare.
            much = ledger is not None and held(shards_size + 2.5 * size)
            third = (
                outside_torch(*roots).sizes[2] if ledger else 0
            )  # of the bucket under way an array, and a tensor on it
            shards = reducer.finish()
            late = ledger is not None and held(shards_size + size / 4)
            outside = outside_torch(*roots).sizes[0] if ledger else 0
        each = max(1, launched() // len(buckets))  # of one call with a list torch counts several
        note: dict[str, Any] = {"buckets launched after each gradient": [count // each for count in counts]}
        note["a loop's last value is shared"] = bool(last)
        counts.clear()
        kept = {"gradients after backward": there, "more than a bucket after backward": much or third > size / 6}
        kept |= {"a vector after finish()": late or outside > size / 6}
        kept["gradients after finish()"] = any(leaf.grad is not None for leaf in leaves)
        alike = all(torch.equal(leaf, p) for leaf, p in zip(leaves, parameters, strict=True))
        values = {"shards": [s.clone() for s in shards], "parameters left alone": alike}
        notes[f"step {number + 1}"] = {"launched": note, "kept": kept}.get(look, values)
    return notes


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """The gradients by autograd, averaged over the ranks of a group, and cut."""
    results: list[dict[str, Any]] = [{} for _ in given]
    for ranks in groups_of(case):
        for step in range(len(given[0]["x"])):
            grads = [gradients_of(given[rank], step) for rank in ranks]
            cuts = []
            for bucket in given[0]["buckets"]:
                whole = torch.stack([torch.cat([own[i].flatten() for i in bucket]) for own in grads]).mean(0)
                padded = torch.cat([whole, whole.new_zeros(-len(whole) % len(ranks))]).float()
                cuts.append(padded.view(len(ranks), -1))
            for place, rank in enumerate(ranks):
                values = {"shards": [cut[place] for cut in cuts], "parameters left alone": True}
                kept = dict.fromkeys(("gradients after backward", "more than a bucket after backward"), False)
                kept |= dict.fromkeys(("a vector after finish()", "gradients after finish()"), False)
                look = {"launched": launches(given[rank], step), "kept": kept}
                results[rank][f"step {step + 1}"] = look.get(given[rank]["look"], values)
    return results


def gradients_of(own: dict[str, Any], step: int) -> list[torch.Tensor]:
    leaves = [p.double().requires_grad_() for p in own["parameters"]]
    rows = own["x"][step].double()
    branches = [
        torch.tanh(rows @ leaves[2 * i] + leaves[2 * i + 1]).square().sum() * (i + 1) for i in own["orders"][step]
    ]
    return list(torch.autograd.grad(torch.stack(branches).sum(), leaves, allow_unused=True, materialize_grads=True))


def launches(own: dict[str, Any], step: int) -> dict[str, Any]:
    """The buckets launched after each gradient. Gradients arrive from the last branch to the first, biases first."""
    arrivals = [p for branch in reversed(own["orders"][step]) for p in (2 * branch + 1, 2 * branch)]
    counts = []
    for k in range(len(arrivals)):
        complete = [set(bucket) <= {*arrivals[: k + 1]} for bucket in own["buckets"]]
        counts.append([*complete, False].index(False))
    return {"buckets launched after each gradient": counts, "a loop's last value is shared": False}


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised, or hangs: what is special about its case."""
    special = "; here a parameter gets no gradient, and what backward does not complete is launched in finish()"
    return f"{MAY_HELP}N does not divide all buckets{special * any(map(any, case.params.get('unused', [])))}"


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    why=why,
    rules=[
        rules.only("reduce_scatter", "reduce_scatter_tensor", why="A rank needs its shard of the mean only."),
        one_under_way,
        rules.most_messages(lambda case, given: float(len(given[0]["x"]) * len(given[0]["buckets"]))),
    ],
    reads=[no_stores],
    stress=Stress(poison=True),
    rtol=1e-4,
    atol=1e-5,
)
