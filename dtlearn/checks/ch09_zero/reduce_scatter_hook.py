"""ch09.reduce_scatter_hook: four steps of a small network; when each bucket was launched, what was freed, the shards.

As in ch03.overlap_hooks, `on_rank` has hooks of its own on the same parameters, which run after the answer's and set a
mark: a call belongs to the hook whose mark follows it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, Mistake, Stress, compare, rules
from dtlearn.runtime.record.event import Mark
from dtlearn.runtime.record.record import Record

from ..marks import steps_of
from . import MAY_HELP
from ._launches import find_wrong_launches

_LAYERS, _INSIDE, _ROWS = 5, 22, 2
# Parameters 2 i and 2 i + 1 are weight and bias of layer i. All buckets have one weight and one bias: 529 elements,
# which 3 does not divide, or 506, which 2 divides. gloo aborts where sizes differ between ranks, and no verdict could
# name the order.
_BUCKETS = [[9, 8], [7, 4], [6, 5], [3, 2], [1, 0]]
# Of each step: layers that rank 0 leaves out, and those that all leave out.
_UNUSED: list[tuple[list[int], list[int]]] = [([], []), ([], [3]), ([1], []), ([], [])]
Grads = list[torch.Tensor | None]


def inputs(case: Case) -> Given:
    g, given = case.generator(), []
    width = _elements(case.world_size) // (_INSIDE + 1)
    shapes = [(_INSIDE, width), (width,)] * _LAYERS
    parameters = [torch.randn(shape, generator=g) / 5 for shape in shapes]
    for rank in range(case.world_size):
        orders = []
        for k, (first, everyone) in enumerate(_UNUSED):
            left_out = {*everyone, *(first if rank == 0 else [])}
            turned = [(layer + k + rank) % _LAYERS for layer in range(_LAYERS)]
            orders.append([layer for layer in (turned if k else range(_LAYERS)) if layer not in left_out])
        x = torch.randn(len(_UNUSED), _ROWS, _INSIDE, generator=g) + rank
        same = {"parameters": parameters, "buckets": _BUCKETS, "pairs": case.world_size == 4}
        same |= {"length": _length(case.world_size), "most": _most(case.world_size)}
        given.append({**same, "orders": orders, "x": x})
    return given


def on_rank(
    answer: Any, parameters: Any, buckets: Any, pairs: bool, length: int, most: int, orders: Any, x: Any
) -> Any:
    import time

    from dtlearn.memory.ledger.outside_torch import names_of_module, outside_torch
    from dtlearn.memory.ledger.storage_ledger import StorageLedger
    from dtlearn.runtime.rank.task import mark

    group = None
    for members in ([0, 2], [1, 3]) if pairs else ():
        made = dist.new_group(members)  # type: ignore[name-defined] # noqa: F821
        group = made if rank in members else group  # type: ignore[name-defined] # noqa: F821
    leaves: list[Any] = [torch.nn.Parameter(p.clone()) for p in parameters]
    reducer = answer([[leaves[i] for i in bucket] for bucket in buckets], group=group)
    if not callable(getattr(reducer, "finish", None)):
        return type(reducer).__name__
    steps = []
    made = [next(iter((leaf._post_accumulate_grad_hooks or {}).values()), None) for leaf in leaves]
    cells = [dict(zip(h.__code__.co_freevars, h.__closure__ or ())) for h in made if hasattr(h, "__code__")]  # noqa: B905
    # Of a loop's variable the hooks should have a value each. One that they share is read when it is too late.
    shared = [
        name
        for name, cell in (cells[0] if len(cells) == len(leaves) else {}).items()
        if all(c.get(name) is cell for c in cells)
        and type(cell.cell_contents) is int
        and cell.cell_contents in (len(buckets) - 1, len(leaves) - 1)
    ]
    hooks = [len(leaf._post_accumulate_grad_hooks or ()) for leaf in leaves]
    # Hooks of the node run last, after those of the leaf and those that the answer gave the node.
    nodes: list[Any] = [leaf.expand_as(leaf).grad_fn.next_functions[0][0] for leaf in leaves]
    for number, node in enumerate(nodes):
        node.register_hook(lambda *_, number=number: mark(str(number)))
    for rows, order in zip(x, orders, strict=True):
        for leaf in leaves:
            leaf.grad = None
        with StorageLedger() as ledger:
            mark("begin")
            total = torch.zeros(())
            for layer in order:
                out = torch.tanh(rows @ leaves[2 * layer] + leaves[2 * layer + 1])
                total = total + (layer + 1) * out.square().sum()
            del out
            total.backward()
            mark("done")
            there = [i for i, leaf in enumerate(leaves) if leaf.grad is not None]
            for _ in range(8):  # the backend lets go of a vector a little after wait()
                held = ledger.now
                if held <= most:
                    break
                time.sleep(0.01)
            outside = [[*outside_torch(reducer, *made, *names_of_module("exercise"))]]
            shards = reducer.finish()
            outside.append([*outside_torch(reducer, *made, *names_of_module("exercise"))])
            ended = shards if isinstance(shards, list) else []
            sizes = {s.untyped_storage()._cdata: s.untyped_storage().nbytes() for s in ended if hasattr(s, "dim")}
            for _ in range(8):
                after = max(0, ledger.now - sum(sizes.values()))
                if after <= most // 8:
                    break
                time.sleep(0.01)
        left = [i for i, leaf in enumerate(leaves) if leaf.grad is not None]
        again = [len(leaf._post_accumulate_grad_hooks or ()) for leaf in leaves] != hooks
        moved = [i for i, leaf in enumerate(leaves) if not torch.equal(leaf, parameters[i])]
        notes = {"there": there, "left": left, "held": held, "after": after, "outside": outside}
        # Copies: an answer may fill the same shards in each step.
        notes["shards"] = [s.clone() if hasattr(s, "clone") else s for s in shards] if ended else shards
        steps.append({**notes, "again": again, "moved": moved, "shared": shared})
        lengths = [s.numel() for s in shards] if isinstance(shards, list) else []
        if lengths != [length] * len(buckets):  # on the other ranks too; later the calls would not fit together
            break
        del shards, ended
    return steps


def _elements(world_size: int) -> int:
    """Of a bucket."""
    return (_INSIDE + 1) * (22 if world_size == 4 else 23)


def _length(world_size: int) -> int:
    """Elements of a shard."""
    return -(-_elements(world_size) // len(_members(0, world_size)))


def _members(rank: int, world_size: int) -> list[int]:
    """The ranks of the group of a rank."""
    return [rank % 2, rank % 2 + 2] if world_size == 4 else list(range(world_size))


def _most(world_size: int) -> int:
    """Bytes at the end of backward: the shards, vector and shard of a bucket under way, and half a vector to spare."""
    return 4 * ((len(_BUCKETS) + 1) * _length(world_size) + _elements(world_size) * 3 // 2)


def _gradients(given: Given) -> list[list[Grads]]:
    """[rank][step][parameter]: each rank's own gradients; None where a parameter is not used."""
    found: list[list[Grads]] = []
    for i in given:
        leaves = [p.double().requires_grad_() for p in i["parameters"]]
        steps = []
        for rows, order in zip(i["x"].double(), i["orders"], strict=True):
            total = torch.zeros((), dtype=torch.float64)
            for layer in order:
                out = torch.tanh(rows @ leaves[2 * layer] + leaves[2 * layer + 1])
                total = total + (layer + 1) * out.square().sum()
            own: Grads = [*torch.autograd.grad(total, leaves, allow_unused=True)]
            steps.append(own)
        found.append(steps)
    return found


def _flat(grads: Grads, bucket: list[int], parameters: list[torch.Tensor]) -> torch.Tensor:
    """A bucket's gradients in the order of `bucket`, without padding."""
    parts = [torch.zeros_like(parameters[p]).double() if (g := grads[p]) is None else g for p in bucket]
    return torch.cat([part.flatten() for part in parts])


def _shards(
    given: Given,
    grads: list[list[Grads]],
    divisor: Callable[[int], int] = lambda n: n,
    arrange: Callable[[int, int, list[int]], list[int]] = lambda rank, step, bucket: bucket,
    in_front: bool = False,
    source: Callable[[int], int] = lambda step: step,
    alone: bool = False,
) -> list[dict[str, dict[str, torch.Tensor]]]:
    """By rank, what `finish()` returns in each step, as messages name it."""
    world, found = len(given), list[dict[str, dict[str, torch.Tensor]]]()
    for rank in range(world):
        members = _members(rank, world)
        n, steps = len(members), {}
        for step in range(len(_UNUSED)):
            shards = {}
            for k, bucket in enumerate(_BUCKETS):
                whole = torch.zeros((), dtype=torch.float64)
                for r in [rank] if alone else members:
                    flat = _flat(grads[r][source(step)], arrange(r, step, bucket), given[0]["parameters"])
                    padding = flat.new_zeros(-len(flat) % n)
                    whole = whole + torch.cat([padding, flat] if in_front else [flat, padding])
                own = (whole / divisor(n)).view(n, -1)[members.index(rank)]
                shards[f"bucket {k}"] = own.float()
            steps[f"step {step + 1}"] = shards
        found.append(steps)
    return found


def _mistakes(case: Case, given: Given) -> list[Mistake]:
    grads, world = _gradients(given), case.world_size
    n = len(_members(0, world))

    def arrival(rank: int, step: int, bucket: list[int]) -> list[int]:
        arrivals = [p for layer in reversed(given[rank]["orders"][step]) for p in (2 * layer + 1, 2 * layer)]
        return sorted(bucket, key=lambda p: arrivals.index(p) if p in arrivals else len(arrivals))

    def moved_up(rank: int, step: int, bucket: list[int]) -> list[int]:
        return sorted(bucket, key=lambda p: grads[rank][step][p] is None)

    text = "where a parameter has no gradient, those after it in the bucket move up, to where its zeros should be"
    in_arrival = (
        "the gradients of a bucket stand in its vector as they arrived, in another order on each rank, so that "
    )
    in_arrival += "different parameters are added up: keep to the order of the bucket"
    ways: list[tuple[str, str, dict[str, Any]]] = [
        ("MISPAIRED", text, {"arrange": moved_up}),
        ("NOT-MEAN", "the gradients are added up over the ranks, and not divided by N", {"divisor": lambda n: 1}),
        ("NOT-MEAN", "the gradients are divided by N twice", {"divisor": lambda n: n * n}),
        ("NOT-MEAN", "the sum is divided by the number of buckets, 5", {"divisor": lambda n: len(_BUCKETS)}),
        ("SHARD-PADDING", "the padding stands in front of the gradients: it belongs at the end", {"in_front": True}),
        ("STALE", "in every step the shards are those of the first", {"source": lambda step: 0}),
        ("OWN-GRADIENT", "the shards are of each rank's own gradients", {"alone": True, "divisor": lambda n: 1}),
        ("MISPAIRED", in_arrival, {"arrange": arrival}),
    ]
    if world != n:
        text = "the sum over the group is divided by the number of all ranks, not of those in group"
        ways.insert(0, ("NOT-MEAN", text, {"divisor": lambda n: world}))
    return [Mistake(f"DTL-VALUE-{code}", text, _shards(given, grads, **way)) for code, text, way in ways]


def _right(case: Case, given: Given) -> list[Any]:
    return _shards(given, _gradients(given))


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """When the calls were made, then the shards, then what was freed."""
    if found := _ONLY(case, given, record):
        return found
    for rank, steps in enumerate(got):
        if isinstance(steps, str):
            text = f"rank {rank} got an object of type {steps} from reduce_scatter_hook"
            return Finding("DTL-VALUE-TYPE", f"{text}; it should have a method finish()", rank)
        if moved := next((s["moved"] for s in steps if s["moved"]), None):
            text = f"rank {rank} changed parameter {moved[0]} itself: only its gradient is reduced"
            return Finding("DTL-VALUE-PARAMETERS", text, rank)
        if any(s["again"] for s in steps):
            text = "there are more hooks after a step than before it: they stay where they are, so register them once"
            return Finding("DTL-RULE-SCHEDULE", text, rank)
    marked = steps_of(record, "begin( [0-9])* done", [len(steps) for steps in got])
    if isinstance(marked, Finding):
        return marked
    if not record.incomplete and (found := find_wrong_launches(record, got, marked, _BUCKETS)):
        return found
    for rank, steps in enumerate(got):
        for k, step in enumerate(steps):
            if wrong := _lengths(step["shards"], case.world_size):
                return Finding(wrong[0], f"rank {rank}, step {k + 1}: {wrong[1]}", rank)
    named = [
        {f"step {k + 1}": {f"bucket {b}": s for b, s in enumerate(step["shards"])} for k, step in enumerate(steps)}
        for steps in got
    ]
    if found := compare(_VALUES, case, given, _right(case, given), named):
        return found
    return _memory(case, got, marked)


def _lengths(shards: Any, world_size: int) -> tuple[str, str] | None:
    """What is wrong with the number or the sizes of the shards."""
    if not isinstance(shards, list) or len(shards) != len(_BUCKETS):
        what = f"a list of {len(shards)}" if isinstance(shards, list) else type(shards).__name__
        return "DTL-VALUE-TYPE", f"finish() should return a list of {len(_BUCKETS)} shards; it returned {what}"
    length, n = _length(world_size), len(_members(0, world_size))
    for k, shard in enumerate(shards):
        if shard.dim() != 1 or shard.numel() != length:
            text = f"shard {k} has the shape {tuple(shard.shape)}; "
            text += f"bucket {k} has {_elements(world_size)} elements, and with N = {n} "
            if n != world_size and shard.numel() == -(-_elements(world_size) // world_size):
                return "DTL-VALUE-GROUP-IGNORED", f"{text}its shards have {length}: N is the number of ranks in group"
            return "DTL-VALUE-SHARD-LENGTH", f"{text}its shards have {length}"
    return None


def _memory(case: Case, got: list[Any], marked: list[list[list[Mark]]]) -> Finding | None:
    """What is still there at the end of backward."""
    elements = _elements(case.world_size)
    for rank, steps in enumerate(got):
        for number, step in enumerate(steps):
            used = {int(mark.label) for mark in marked[rank][number][1:-1]}
            whole = all(used >= set(bucket) for bucket in _BUCKETS)
            if step["left"] or (whole and step["there"]):
                kept, when = (step["there"], "backward") if whole and step["there"] else (step["left"], "finish()")
                text = f"rank {rank}, step {number + 1}: after {when} parameter {kept[0]} has its full gradient; a "
                return Finding("DTL-RULE-GRADIENTS-KEPT", f"{text}bucket's .grad are None from its launch on", rank)
            if whole and step["held"] > _most(case.world_size):
                text = f"rank {rank}, step {number + 1}: at the end of backward {step['held']:,} bytes are held; its "
                own = 4 * len(_BUCKETS) * _length(case.world_size)
                text += f"shards have {own:,}, and a bucket {4 * _elements(case.world_size):,}. "
                text += (
                    "The vectors of buckets that were launched before are still there: wait for a bucket before the "
                )
                return Finding("DTL-RULE-GRADIENTS-KEPT", f"{text}next is launched, and let go of its vector", rank)
            under_way, after = step["outside"]
            # While the last bucket is under way, its vector may be an array, and a tensor on it.
            if after[0][0] >= 0.75 * elements or under_way[0][2] >= 0.75 * elements:
                kind = (after if after[0][0] >= 0.75 * elements else under_way)[1]
                text = f"rank {rank}, step {number + 1}: outside torch, in an object of type {kind}, a vector of a "
                text += "bucket that was reduced before is kept: let go of each when it was waited for"
                return Finding("DTL-RULE-GRADIENTS-KEPT", text, rank)
            if step["after"] > _most(case.world_size) // 8:
                text = f"rank {rank}, step {number + 1}: after finish() {step['after']:,} bytes are held besides the "
                text += "shards: let go of the last bucket's vector, too, when it was waited for"
                return Finding("DTL-RULE-GRADIENTS-KEPT", text, rank)
    return None


def why(case: Case, given: Given, record: Record) -> str:
    """Of a run that raised: what is special in it."""
    return f"{MAY_HELP}in some steps a parameter gets no gradient, and N does not divide all buckets"


_WHY = "A rank needs its shard of the mean only."
_ONLY = rules.only("reduce_scatter", "reduce_scatter_tensor", why=_WHY)
_STRESS = Stress(poison=True)
_VALUES = Check(on_rank, inputs, _right, mistakes=_mistakes, rtol=1e-4, atol=1e-5, stress=_STRESS)
CHECK = Check(on_rank, inputs, None, verify=verify, why=why, stress=_STRESS)
