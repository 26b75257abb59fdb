"""ch03.overlap_hooks: two steps of a small network; when each bucket was launched, and what came of it.

`on_rank` has hooks of its own on the same parameters, which run after the answer's and set a mark. So a call belongs to
the hook whose mark follows it: that needs no assumption on how fast anything is, and no clock of the rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, Mistake, Stress, compare, difference
from dtlearn.runtime.record.record import Record

from ..marks import steps_of
from ._launches import START_OVER, calls_of, timing

_STEPS = 2
_ROWS, _WIDTH = 4, 3
# Layers of the network in the order of the forward pass; rank r begins `turn` x r layers later. Parameters 2 i and
# 2 i + 1 are weight and bias of layer i. In the second case the order of arrival differs within a bucket too.
_CASES: dict[str, dict[str, Any]] = {
    "layer after layer": {"chained": True, "turn": 0, "buckets": [[5, 4], [3, 2], [1, 0]]},
    "branches, in another order on each rank": {"chained": False, "turn": 1, "buckets": [[5, 4], [3, 0], [2, 1]]},
}
_LAYERS = 3


def inputs(case: Case) -> Given:
    g, given = case.generator(), []
    shapes = [(_WIDTH, _WIDTH), (_WIDTH,)] * _LAYERS
    parameters = [torch.randn(shape, generator=g) for shape in shapes]
    for rank in range(case.world_size):
        order = [(layer + case.params["turn"] * rank) % _LAYERS for layer in range(_LAYERS)]
        x = torch.randn(_STEPS, _ROWS, _WIDTH, generator=g) + rank
        same = {name: case.params[name] for name in ("buckets", "chained")}
        given.append({"parameters": parameters, **same, "order": order, "x": x})
    return given


def on_rank(answer: Any, parameters: Any, buckets: Any, order: Any, chained: bool, x: Any) -> Any:
    from dtlearn.runtime.rank.task import mark

    leaves: list[Any] = [torch.nn.Parameter(p.clone()) for p in parameters]
    overlap = answer([[leaves[i] for i in bucket] for bucket in buckets])
    if not callable(getattr(overlap, "finish", None)):
        return type(overlap).__name__
    steps: list[Any] = []
    hooks = [len(leaf._post_accumulate_grad_hooks or ()) for leaf in leaves]
    made = [list((leaf._post_accumulate_grad_hooks or {}).values())[:1] for leaf in leaves]
    cells = [
        dict(zip(hook.__code__.co_freevars, hook.__closure__ or (), strict=True))
        for hooks_of_leaf in made
        for hook in hooks_of_leaf
        if hasattr(hook, "__code__")
    ]

    def is_of_a_loop(content: Any) -> bool:
        """Whether it is the number of the last bucket or parameter, or the last bucket."""
        return content in (len(buckets) - 1, len(leaves) - 1) or content == [leaves[i] for i in buckets[-1]]

    # Of a loop's variable the hooks should have a value each. One that they share is read when it is too late.
    shared = [
        name
        for name, cell in (cells[0] if len(cells) == len(leaves) else {}).items()
        if all(c.get(name) is cell for c in cells) and "size" not in name and is_of_a_loop(cell.cell_contents)
    ]
    for number, leaf in enumerate(leaves):
        leaf.register_post_accumulate_grad_hook(lambda _, number=number: mark(str(number)))
    for rows in x:
        for leaf in leaves:
            leaf.grad = torch.zeros_like(leaf)  # a new one in each step, as after zero_grad()
        mark("begin")
        hidden, total = rows, torch.zeros(())
        for layer in order:
            out = torch.tanh((hidden if chained else rows) @ leaves[2 * layer] + leaves[2 * layer + 1])
            hidden, total = out, total + (layer + 1) * out.square().sum()
        total.backward()
        mark("done")
        overlap.finish()
        moved = [i for i, leaf in enumerate(leaves) if not torch.equal(leaf, parameters[i])]
        again = [len(leaf._post_accumulate_grad_hooks) - 1 for leaf in leaves] != hooks
        grads = [None if leaf.grad is None else leaf.grad.clone() for leaf in leaves]
        notes = {"moved": moved, "again": again, "shared": shared}
        counts = {a: v for a, v in getattr(overlap, "__dict__", {}).items() if isinstance(v, list) and v}
        counts = {a: v for a, v in counts.items() if all(type(i) is int for i in v)}
        same = [a for a, v in counts.items() if sum(v is other for other in counts.values()) > 1]
        steps.append({"grads": grads, "one list": same, **notes})
    return steps


def _alone(given: Given) -> list[list[list[torch.Tensor]]]:
    """Each rank's own gradients: [rank][step][parameter]."""
    return [[_gradient(i, rows) for rows in i["x"]] for i in given]


def _gradient(i: dict[str, Any], rows: torch.Tensor) -> list[torch.Tensor]:
    leaves = [p.double().requires_grad_() for p in i["parameters"]]
    hidden, total = rows.double(), torch.zeros((), dtype=torch.float64)
    for layer in i["order"]:
        out = torch.tanh((hidden if i["chained"] else rows.double()) @ leaves[2 * layer] + leaves[2 * layer + 1])
        hidden, total = out, total + (layer + 1) * out.square().sum()
    return [g.float() for g in torch.autograd.grad(total, leaves)]


def _mean(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.stack(list(tensors)).double().mean(0).float()


def _named(steps: Sequence[Sequence[Any]]) -> dict[str, dict[str, Any]]:
    """As messages name them: of each step, the gradient of each parameter."""
    return {f"step {s + 1}": {f"parameter {p}": g for p, g in enumerate(grads)} for s, grads in enumerate(steps)}


def _means(given: Given) -> list[list[torch.Tensor]]:
    alone = _alone(given)
    return [[_mean([a[s][p] for a in alone]) for p in range(2 * _LAYERS)] for s in range(_STEPS)]


def _right(case: Case, given: Given) -> list[dict[str, dict[str, torch.Tensor]]]:
    return [_named(_means(given))] * case.world_size


def _mistakes(case: Case, given: Given) -> list[Mistake]:
    alone, right = _alone(given), _means(given)
    # Biases are added last in the forward pass, so the weight of a layer is the last of its bucket to arrive.
    without = [[g if p % 2 else torch.zeros_like(g) for p, g in enumerate(step)] for step in right]
    early = Mistake(
        "DTL-VALUE-MISSING",
        "the gradient that arrives last is missing in every bucket: its hook ran before p.grad had it; "
        "register_post_accumulate_grad_hook runs after",
        [_named(without)] * len(alone),
    )
    n, buckets, sizes = case.world_size, case.params["buckets"], [p.numel() for p in given[0]["parameters"]]
    orders = [_in_order_of_arrival(i["order"], buckets) for i in given]
    mixed = [_through_tensors([a[s] for a in alone], orders, sizes) for s in range(_STEPS)]
    divisor = "the sum over the ranks is divided by the number of buckets, 3, and not by the number of ranks"
    found = [
        early,
        Mistake(
            "DTL-VALUE-PARAMETERS",
            "each .grad holds the parameter: the tensor was made of the parameters, p, and not of their p.grad",
            [_named([given[0]["parameters"]] * _STEPS)] * n,
        ),
        Mistake(
            "DTL-VALUE-MISPAIRED",
            "the gradients of a bucket stand in its tensor as they arrived, in another order on each rank, so that "
            "different parameters are added up: keep to the order of the bucket",
            [_named([step[r] for step in mixed]) for r in range(n)],
        ),
        Mistake("DTL-VALUE-FACTOR", divisor, [_named([[g * n / len(buckets) for g in step] for step in right])] * n),
    ]
    if n == 1:
        return found
    summed = f"the result is exactly {n}x the reference on every rank; {n} is the world size: you summed and did not "
    summed += "average, or divided before wait(), when the sum was not there yet"
    stale = "DTL-VALUE-STALE"
    nothing = "every rank still has its own gradients: finish() must wait, divide and copy the result back into p.grad"
    second = "the first step is right; in the second every rank keeps its own gradients"
    repeated = "the first step is right; the second has the gradients of the first"
    counts = START_OVER
    return [
        *found,
        Mistake("DTL-VALUE-FACTOR", summed, [_named([[g * n for g in step] for step in right])] * n),
        Mistake(stale, nothing, [_named(a) for a in alone]),
        Mistake(stale, f"{second}: {counts}", [_named([right[0], a[1]]) for a in alone]),
        Mistake(stale, f"{repeated}: {counts}", [_named([right[0], right[0]])] * len(alone)),
    ]


def _in_order_of_arrival(order: list[int], buckets: list[list[int]]) -> list[list[int]]:
    """The buckets, sorted inside: backward goes from the last layer to the first, in each from bias to weight."""
    arrivals = [p for layer in reversed(order) for p in (2 * layer + 1, 2 * layer)]
    return [sorted(bucket, key=arrivals.index) for bucket in buckets]


def _through_tensors(
    grads: list[list[torch.Tensor]], orders: list[list[list[int]]], sizes: list[int]
) -> list[list[torch.Tensor]]:
    """What each rank has of a step's gradients when it puts them into a bucket's tensor in an order of its own, and
    takes the means out of it in the same. `orders`: by rank, the buckets."""
    after = [list(own) for own in grads]
    for k in range(len(orders[0])):
        flat = _mean(
            [torch.cat([own[p].flatten() for p in buckets[k]]) for own, buckets in zip(grads, orders, strict=True)]
        )
        for own, buckets in zip(after, orders, strict=True):
            for p, part in zip(buckets[k], flat.split([sizes[p] for p in buckets[k]]), strict=True):
                own[p] = part.view_as(own[p])
    return after


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """When the calls were made, then the gradients."""
    for rank, steps in enumerate(got):
        if isinstance(steps, str):
            text = f"rank {rank} got an object of type {steps} from overlap_hooks; it should have a method finish()"
            return Finding("DTL-VALUE-TYPE", text, rank)
        if moved := steps[0]["moved"]:
            text = (
                f"rank {rank} changed parameter {moved[0]} itself: the mean belongs into its .grad, and the optimizer "
            )
            return Finding("DTL-VALUE-PARAMETERS", f"{text}steps later", rank)
    each_once = rf"(?:( [0-9])(?!.*\1)){{{2 * _LAYERS}}}"  # in whatever order
    marked = steps_of(record, f"begin{each_once} done", [len(steps) for steps in got])
    if isinstance(marked, Finding):
        return marked
    alone = case.world_size == 1 and not record.select(op="all_reduce").events  # then there is nothing to reduce
    if not alone and not record.incomplete:
        for rank, steps in enumerate(got):
            for number, step in enumerate(steps):
                calls = calls_of(record, rank, marked[rank], number)
                if found := timing(rank, number, step, marked[rank][number], calls, case.params["buckets"]):
                    return found
    found = compare(_GRADS, case, given, _right(case, given), [_named([s["grads"] for s in steps]) for steps in got])
    if found and any(step["again"] for step in got[found.rank or 0]):
        text = "there are more hooks after a step than before it: they stay where they are, so register them once; "
        return Finding("DTL-RULE-SCHEDULE", f"{text}else each gradient is counted several times", found.rank)
    if found and found.code in ("DTL-VALUE", "DTL-VALUE-PERMUTED", "DTL-VALUE-ONE-RANK"):
        return _misplaced(case, given, got) or found
    return found


def _misplaced(case: Case, given: Given, got: list[Any]) -> Finding | None:
    """Of means that are other parts of their bucket's tensor than their own: which parts."""
    for rank, steps in enumerate(got):
        for step, right in zip(steps, _means(given), strict=True):
            for k, bucket in enumerate(case.params["buckets"]):
                flat, own = torch.cat([right[p].flatten() for p in bucket]), 0
                wrong = []
                for p in bucket:
                    size = right[p].numel()
                    parts = [flat[i : i + size].view_as(right[p]) for i in range(len(flat) - size + 1)]
                    held = [i for i, part in enumerate(parts) if not difference(part, step["grads"][p], 1e-4, 1e-5)]
                    if held and own not in held:
                        text = (
                            f"the .grad of parameter {p} holds elements {held[0]} to {held[0] + size - 1}, and its own "
                        )
                        wrong.append(f"{text}are {own} to {own + size - 1}")
                    own += size
                if wrong:
                    text = f"of the tensor of bucket {k}, {bucket}, {'; '.join(wrong)}. Each p takes its own p.numel() "
                    return Finding("DTL-VALUE-MISPAIRED", f"{text}elements back, in the order they were put in", rank)
    return None


def rule(case: Case, given: Given, record: Record) -> Finding | None:
    """Nothing but all-reduces. (A record that is incomplete is refused before.)"""
    for event in record:
        if event.op != "all_reduce":
            text = f"line {event.line} of rank {event.rank} calls {event.op}; one all_reduce per bucket is enough"
            return Finding("DTL-RULE-CALLS", text, event.rank, event.line or None)
    return None


def payload(case: Case, given: Given) -> int:
    return _STEPS * sum(4 * int(p.numel()) for p in given[0]["parameters"])


_STRESS = Stress(poison=True, delays=0.002)
_GRADS = Check(on_rank, inputs, _right, mistakes=_mistakes, rtol=1e-4, atol=1e-5, stress=_STRESS)
CHECK = Check(on_rank, inputs, None, cases=_CASES, verify=verify, rules=[rule], payload=payload, stress=_STRESS)
