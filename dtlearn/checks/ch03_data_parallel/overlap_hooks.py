"""ch03.overlap_hooks: two steps of a small network; when each bucket was launched, and what came of it.

`on_rank` has hooks of its own on the same parameters, which run after the answer's. They ask the group how many
collectives were launched so far, and set a mark: so a call belongs to the hook whose mark follows it. That needs no
assumption on how fast anything is, and no clock of the rank.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from dtlearn.grading import Case, Check, Edit, Finding, Given, Stress
from dtlearn.runtime.record.record import Record

from ._launches import AFTER, while_backward_ran

_STEPS, _ROWS, _WIDTH, _LAYERS = 2, 4, 3, 3
# Layers of the network in the order of the forward pass; rank r begins `turn` x r layers later. Parameters 2 i and
# 2 i + 1 are weight and bias of layer i. In the second case the order of arrival differs within a bucket too.
CASES: dict[str, dict[str, Any]] = {
    "layer after layer": {"chained": True, "turn": 0, "buckets": [[5, 4], [3, 2], [1, 0]]},
    "branches, in another order on each rank": {
        "says": "the gradients of a bucket, and the buckets, may become ready in any order, another one on each rank: "
        "launch the buckets in the order of the list, as soon as each and all before it are complete",
        "chained": False,
        "turn": 1,
        "buckets": [[5, 4], [3, 0], [2, 1]],
    },
}
HOOK, FLAT = "lambda _, number=number: self.arrived(number)", "flat = torch.cat([p.grad.reshape(-1) for p in bucket])"
WHILE = "while len(self._launched) < len(self.buckets) and not self._missing[len(self._launched)]:"
BUCKET = f"{WHILE}\n            bucket = self.buckets[len(self._launched)]"
LAUNCH = "self._launched.append((dist.all_reduce(flat, async_op=True), flat))"
FINISH, MEANS = "zip(self.buckets, self._launched, strict=True)", "means = (flat / dist.get_world_size())"
BACK, AGAIN = (
    "parameter.grad.copy_(mean.view_as(parameter))",
    "self._missing = [len(bucket) for bucket in self.buckets]",
)
FEWER = {FINISH: "zip(self.buckets, self._launched)"}  # where not all are launched
START_OVER = (
    "no bucket is launched in the second step: what is still missing, and what was launched, must start over in "
    "finish(). If finish() does set them anew: is it a copy? `a = b` gives one list two names, and counting down "
    "changes both"
)
ORDER = "self.order = [*getattr(self, 'order', []), bucket][-len(self.buckets) :]"
EDITS = (
    Edit("nothing with a method finish() is returned: is a `return` missing?",
         {"return Overlap(buckets)": "Overlap(buckets)"}),
    Edit("the parameters themselves are changed: the mean belongs into their .grad, and the optimizer steps later",
         {BACK: "parameter.data.copy_(mean.view_as(parameter))"}),
    Edit("each .grad holds the parameter: the tensor was made of the parameters, p, and not of their p.grad",
         {FLAT: FLAT.replace("p.grad.", "p.detach().")}),
    Edit(AFTER,
         {HOOK: "lambda _, number=number: None",
          FINISH: "[(b, (dist.all_reduce(f, async_op=True), f)) for b in self.buckets "
                  "for f in [torch.cat([p.grad.reshape(-1) for p in b])]]"}),
    Edit("all buckets are launched when the last gradient of all is ready: launch each as soon as it, and those "
         "before it, are complete",
         {WHILE: WHILE.replace("not self._missing[len(self._launched)]", "not any(self._missing)")}),
    Edit("a bucket is launched when its first gradient is ready, and lacks the others: the last one completes it",
         {WHILE: WHILE.replace("not self._missing[len(self._launched)]",
                               "self._missing[len(self._launched)] < len(self.buckets[len(self._launched)])")}),
    Edit("a bucket has several all-reduces: one for each bucket, of all its gradients in one tensor",
         {LAUNCH: "works = [dist.all_reduce(part, async_op=True) for part in flat.split([p.numel() for p in bucket])]\n"
                  "            every = type('Every', (), {'wait': lambda _, works=works: [w.wait() for w in works]})\n"
                  "            self._launched.append((every(), flat))"}),
    Edit("no bucket is ever launched, as where all hooks share the variable of a loop and see its last value: a "
         "function reads it when it runs, so bind it, as in `lambda p, i=i: ...`",
         {HOOK: "lambda _: self.arrived(number)", **FEWER}),
    Edit("the buckets are launched as they become ready, in another order on each rank, and the sums mix different "
         "buckets: keep to the order of the list",
         {BUCKET: f"if not self._missing[number]:\n            bucket = self.buckets[number]; {ORDER}",
          FINISH: FINISH.replace("self.buckets", "self.order")}),
    Edit("the gradient that arrives last is missing in every bucket: its hook ran before p.grad had it; "
         "register_post_accumulate_grad_hook runs after",
         {"parameter.register_post_accumulate_grad_hook": "parameter.register_hook"}),
    Edit("the gradients of a bucket stand in its tensor as they arrived, in another order on each rank, so that "
         "different parameters are added up: keep to the order of the bucket",
         {HOOK: "lambda p, number=number: self.buckets[number].sort(key=lambda q: q is p) or "
               "self.arrived(number)"}),
    Edit("the sum over the ranks is divided by the number of buckets, and not by the number of ranks",
         {MEANS: "means = (flat / len(self.buckets))"}),
    Edit("the gradients are sums over the ranks: you did not average, or divided before wait(), when the sum was not "
         "there yet", {MEANS: "means = flat"}),
    Edit("every rank still has its own gradients: finish() must wait, divide and copy the result back into p.grad",
         {BACK: "pass"}),
    Edit("the parts of a bucket's tensor come back in the reverse order: each p takes its own p.numel() elements, in "
         "the order in which they were put in",
         {"split([p.numel() for p in bucket])": "split([p.numel() for p in reversed(bucket)])",
          "zip(bucket, means": "zip(reversed(bucket), means"}),
    Edit(START_OVER, {AGAIN: "self._missing = [-1 for _ in self.buckets]", **FEWER}),
    Edit(START_OVER, {f"{AGAIN}\n        self._launched = []": AGAIN}),
    Edit("in the second step every rank keeps its own gradients, although the buckets were launched: were they copied "
         "back into the tensors of the first step? Read p.grad in each step anew",
         {BACK: "self.kept = getattr(self, 'kept', {}); self.kept.setdefault(id(parameter), parameter.grad)\n"
                "                self.kept[id(parameter)].copy_(mean.view_as(parameter))"}),
    # Only where the ranks launch alike: elsewhere such a program hangs.
    Edit("there are more hooks after a step than before it: they stay where they are, so register them once; else each "
         "gradient is counted several times",
         {f"{AGAIN}\n        self._launched = []": f"{AGAIN}\n        self._launched = []\n        "
          "_ = self.buckets[2][0].dim() == 1 and self.__init__(self.buckets)"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, given = case.generator(), []
    parameters = [torch.randn(shape, generator=g) for shape in [(_WIDTH, _WIDTH), (_WIDTH,)] * _LAYERS]
    for rank in range(case.world_size):
        order = [(layer + case.params["turn"] * rank) % _LAYERS for layer in range(_LAYERS)]
        x = torch.randn(_STEPS, _ROWS, _WIDTH, generator=g) + rank
        same = {name: case.params[name] for name in ("buckets", "chained")}
        given.append({"parameters": parameters, **same, "order": order, "x": x})
    return given


def on_rank(answer: Any, parameters: Any, buckets: Any, order: Any, chained: bool, x: Any) -> Any:
    from dtlearn.runtime.rank.state import group_sequence
    from dtlearn.runtime.rank.task import mark

    leaves: list[Any] = [torch.nn.Parameter(p.clone()) for p in parameters]
    overlap = answer([[leaves[i] for i in bucket] for bucket in buckets])
    facts: dict[str, Any] = {"it has a method finish()": callable(getattr(overlap, "finish", None))}
    if not facts["it has a method finish()"]:
        return facts
    counts: Any = []

    def arrived(number: int) -> None:
        counts.append(group_sequence() - begun)
        mark(str(number))

    for number, leaf in enumerate(leaves):
        leaf.register_post_accumulate_grad_hook(lambda _, number=number: arrived(number))
    hooks = [len(leaf._post_accumulate_grad_hooks) for leaf in leaves]
    for step, rows in enumerate(x, 1):
        for leaf in leaves:
            leaf.grad = torch.zeros_like(leaf)  # a new one in each step, as after zero_grad()
        counts.clear()
        begun = group_sequence()
        mark("begin")
        hidden, total = rows, torch.zeros(())
        for layer in order:
            out = torch.tanh((hidden if chained else rows) @ leaves[2 * layer] + leaves[2 * layer + 1])
            hidden, total = out, total + (layer + 1) * out.square().sum()
        total.backward()
        mark("done")
        launched = counts[:]
        overlap.finish()
        launched = [*launched, group_sequence() - begun] if dist.get_world_size() > 1 else []  # one may call nothing
        grads = {f"parameter {i}": None if leaf.grad is None else leaf.grad.clone() for i, leaf in enumerate(leaves)}
        facts[f"step {step}"] = {"buckets launched after each gradient": launched, **grads}
    facts["parameters left alone"] = all(torch.equal(a, b) for a, b in zip(leaves, parameters, strict=True))
    facts["hooks are registered once"] = hooks == [len(leaf._post_accumulate_grad_hooks) for leaf in leaves]
    return facts


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """The means of the ranks' own gradients; and when the k-th bucket, and all before it, are complete."""
    alone = [[_gradient(i, rows) for rows in i["x"]] for i in given]
    results = []
    for i in given:
        arrivals = [p for layer in reversed(i["order"]) for p in (2 * layer + 1, 2 * layer)]
        complete = [max(arrivals.index(p) for bucket in i["buckets"][: k + 1] for p in bucket) for k in range(_LAYERS)]
        launched = [sum(k <= at for k in complete) for at in range(2 * _LAYERS)] + [_LAYERS]
        facts: dict[str, Any] = {"it has a method finish()": True}
        for s in range(_STEPS):
            means = [torch.stack([a[s][p] for a in alone]).double().mean(0).float() for p in range(2 * _LAYERS)]
            facts[f"step {s + 1}"] = {
                "buckets launched after each gradient": launched if len(given) > 1 else [],
                **{f"parameter {p}": mean for p, mean in enumerate(means)},
            }
        results.append({**facts, "parameters left alone": True, "hooks are registered once": True})
    return results


def _gradient(i: dict[str, Any], rows: torch.Tensor) -> list[torch.Tensor]:
    """The gradients of one rank in one step."""
    leaves = [p.double().requires_grad_() for p in i["parameters"]]
    hidden, total = rows.double(), torch.zeros((), dtype=torch.float64)
    for layer in i["order"]:
        out = torch.tanh((hidden if i["chained"] else rows.double()) @ leaves[2 * layer] + leaves[2 * layer + 1])
        hidden, total = out, total + (layer + 1) * out.square().sum()
    return [g.float() for g in torch.autograd.grad(total, leaves)]


def rule(case: Case, given: Given, record: Record) -> Finding | None:
    """The ranks call nothing but all-reduces. (An incomplete record is refused before.)"""
    for event in record:
        if event.op != "all_reduce":
            text = f"line {event.line} of rank {event.rank} calls {event.op}; one all_reduce per bucket is enough"
            return Finding("DTL-RULE-CALLS", text, event.rank, event.line or None)
    return None


def why(case: Case, given: Given, record: Record) -> str:
    """The hint where ranks launched different numbers of buckets; "" if they launched equally many."""
    counts = {rank: len(record.select(rank=rank, op="all_reduce").events) for rank in range(case.world_size)}
    most, least = max(counts, key=lambda r: counts[r]), min(counts, key=lambda r: counts[r])
    if counts[most] == counts[least]:
        return ""
    text = f"rank {most} launched {counts[most]} buckets so far, and rank {least} {counts[least]}. Each rank launches "
    text += "all: after each launch the next bucket may be complete as well (while, and not if), and what is still "
    return f"{text}missing has to start over in finish()"


def payload(case: Case, given: Given) -> int:
    return _STEPS * sum(4 * int(p.numel()) for p in given[0]["parameters"])


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    why=why,
    verify=while_backward_ran(_STEPS, 2 * _LAYERS),
    rules=[rule],
    payload=payload,
    rtol=1e-4,
    atol=1e-5,
    stress=Stress(poison=True, delays=0.002),
)
