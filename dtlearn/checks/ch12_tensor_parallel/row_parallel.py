"""ch12.row_parallel: a layer without a bias and with one, its memory, groups, and what comes after an update."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from dtlearn.grading import Case, Check, Edit, Given, Stress, rules
from dtlearn.runtime.record.record import Record

from ..sent import no_stores
from . import MAY_HELP, SOME, groups_of

# Per case: `bias`, whether there is one; `shape`, the dims of x before the features; `left`, features that no rank
# has a share in; what else `on_rank` does with the layer.
CASES: dict[str, dict[str, Any]] = {
    "no bias": {"bias": False},
    "a bias": {"says": "the bias counts once in the output, and has its whole gradient on every rank"},
    "an input of three dims that is not contiguous": {
        "says": "x may have any dims before its features, and any strides",
        "shape": (2, 3),
    },
    "two batches before backward": {
        "says": "forward runs for two batches before the first backward pass: keep nothing of a batch in the module",
        "batches": 2,
    },
    "an update between two batches": {
        "says": "after an update of the parameters the output is still made of the old ones: read them in forward",
        "batches": 2,
        "update": True,
    },
    "groups of fewer ranks": {
        "says": "the ranks of the group have the features, not those of the job: dist.get_rank(group), "
        "dist.get_world_size(group)",
        "groups": SOME,
    },
    "another layer made after it": {
        "says": "what belongs to a layer was changed when another layer was made: keep it in self",
        "others": SOME,
    },
    "features that the ranks do not divide": {"says": "expected a ValueError that names both numbers", "left": 1},
}
SUM, RETURN = "y = self.g(F.linear(x, self.weight))", "return y if self.bias is None else y + self.bias"
SET, COLUMNS = "self.g = g\n", "weight.chunk(num_ranks, 1)[dist.get_rank(group)]"
MORE = {SET: "self.g, self.group, self.t, self.place = g, group, num_ranks, dist.get_rank(group)\n"}
OLD = {SET: "self.g, self.old = g, (self.weight.data.clone(), None if bias is None else bias.clone())\n"}


def biased(before: str, after: str = "return y") -> dict[str, str]:
    """An edit with another `forward`: `before` is the bias in front of g."""
    return {SUM: f"y = self.g(F.linear(x, self.weight, {before}))", RETURN: after, **MORE}


NONE = "None if self.bias is None else "
EDITS = (
    Edit("the columns are those of the rank's number in the job; its place in the group counts: dist.get_rank(group)",
         {COLUMNS: "weight.chunk(num_ranks, 1)[dist.get_rank() % num_ranks]"}),
    Edit("the columns are dealt out in turn; they have to be contiguous",
         {COLUMNS: "weight[:, dist.get_rank(group)::num_ranks]"}),
    Edit("the parameters are not the module's own `weight` and `bias`: self.weight = nn.Parameter(...)",
         {"self.weight = ": "self.part = torch.nn.Module(); self.part.weight = ",
          SUM: SUM.replace("self.w", "self.part.w")}),
    Edit("the output is this rank's partial sum: g adds up those of all ranks", {SUM: "y = F.linear(x, self.weight)"}),
    Edit("the partial sums are averaged over the ranks: they have to be added up", {SUM: f"{SUM} / self.t", **MORE}),
    Edit("the partial sums are added up by a call of its own: g, which was given, does that and has a backward pass",
         {SUM: "y = F.linear(x, self.weight); total = y.detach().clone(); dist.all_reduce(total, group=self.group); "
               "y = y + (total - y.detach())", **MORE}),
    Edit("g is called twice in a forward pass: once is enough", {SUM: f"{SUM} + 0 * self.g(x).sum()"}),
    Edit("no gradient comes to x and weight: the product is made under torch.no_grad(), or detached",
         {SUM: "y = self.g(F.linear(x, self.weight).detach().requires_grad_())"}),
    Edit("the bias counts once for each rank of the group: it is added before g, which adds it up (add it after g)",
         biased("self.bias")),
    Edit("the bias is divided by the number of ranks before g: the output is right, the bias's gradient is divided too "
         "(add the whole bias after g)", biased(NONE + "self.bias / self.t")),
    Edit("the bias is added on the first rank of the group only: the output is right, but on the other ranks the bias "
         "has no gradient, and their copies stay as they are (add it on all ranks, after g)",
         biased("None if self.place else self.bias")),
    Edit("the bias is added on the first rank of the group only: the output is right, but on the other ranks the "
         "bias's gradient is 0, and their copies stay as they are (add it on all ranks, after g)",
         biased(NONE + "self.bias * (self.place == 0)")),
    Edit("the bias is added on rank 0 of the job only: other groups have none, and on other ranks it has no gradient "
         "(add it on all ranks, after g)", biased("None if dist.get_rank() else self.bias")),
    Edit("the bias is added after g on the first rank of the group only: the output has to be the same on all ranks",
         biased("None", f"{RETURN.replace('is None', 'is None or self.place')}")),
    Edit("the bias is added on each rank before g, and t - 1 times taken off after it: the output is right, the bias's "
         "gradient is 2 - t times what it should be (add it once, after g)",
         biased("self.bias", "return y if self.bias is None else y - (self.t - 1) * self.bias")),
    Edit("the bias is not added", {RETURN: "return y"}),
    Edit("the bias is added and has no gradient: is it cut off from autograd?", {RETURN: f"{RETURN}.detach()"}),
    Edit("after an update of the parameters the output still has the old bias: forward uses a copy of it",
         {RETURN: "return y if self.bias is None else y + self.bias - self.bias.detach() + self.old[1]", **OLD}),
    Edit("after an update of the parameters the output still has the old weight: forward uses a copy of it",
         {SUM: "y = self.g(F.linear(x, self.weight - self.weight.detach() + self.old[0]))", **OLD}),
    Edit("all layers call the g of the layer that was made last: it belongs to its layer, not to the class or the "
         "module", {SET: "row_parallel.last = [g]\n", "self.g(F": "row_parallel.last[0](F"}),
    Edit("the parameter `weight` is a view of the weight that was given, and keeps its memory; changing one changes "
         "the other: clone() copies", {"columns.clone()": "columns"}),
    Edit("the parameter `bias` is the bias that was given; changing one changes the other: clone() copies",
         {"bias.clone()": "bias"}),
    Edit("the whole weight is still in memory when the caller has dropped it: the module refers to it, or keeps a "
         "copy. Keep the part only", {SET: "self.g, self.given = g, (weight,)\n"}),
    Edit("features that the ranks do not divide: expected a ValueError, but nothing was raised",
         {"if size % num_ranks:": "if False:"}),
    Edit("the message of the ValueError has to name both numbers, the features and the ranks",
         {'f"{num_ranks} ranks do not divide {size} input features"': '"the ranks do not divide the features"'}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, n, p = case.generator(), case.world_size, case.params
    given: Given = [{} for _ in range(n)]
    groups = groups_of(case)
    for group in groups:

        def random(*shape: int) -> torch.Tensor:
            return torch.randn(shape, dtype=torch.float64, generator=g)

        batches, shape = range(p.get("batches", 1)), p.get("shape", (3,))
        whole = {
            "weight": random(2, 2 * len(group) + p.get("left", 0)),
            "bias": random(2) if p.get("bias", True) else None,
        }
        for rank in group:
            given[rank] = {**whole, "group": groups, "xs": [random(*shape, 2) for _ in batches]}
        for rank in group:
            given[rank]["dys"] = [random(*shape, 2) for _ in batches] if rank == group[0] else given[group[0]]["dys"]
            given[rank] |= {
                "others": p.get("others", {}).get(n, []),
                "update": p.get("update", False),
                "left": p.get("left", 0),
            }
    return given


def on_rank(
    answer: Any,
    weight: Any,
    bias: Any,
    group: Any,
    xs: Any,
    dys: Any,
    others: Any = (),
    update: Any = False,
    left: Any = 0,
) -> Any:
    from dtlearn.grading.on_rank.tools import has_own_memory, holds, own_group, refusal_naming, summed_over

    def layer_of(groups: Any) -> Any:
        """A layer, and the calls of its g."""
        own, calls = own_group(groups), []

        def g(x: Any) -> Any:
            calls.append(1)
            return summed_over(x, own, True)

        given = weight.clone(), None if bias is None else bias.clone()
        if left:
            numbers = [weight.shape[1], dist.get_world_size(own)]
            return refusal_naming(numbers, answer, *given, own, g)
        return answer(*given, own, g), calls, given, dist.get_world_size(own)

    if left:
        return {"features that the ranks do not divide": layer_of(group)}
    layer, calls, given, t = layer_of(group)
    of_other = layer_of(others)[1] if others else []
    parts = dict(layer.named_parameters())
    if {*parts} != {"weight", "bias"} - ({"bias"} if bias is None else set()):
        return {"its parameters are `weight` and `bias`": False}
    kept = {name: part.detach().clone() for name, part in parts.items()}
    outputs: Any = []
    xs = [x.requires_grad_() if x.dim() < 2 else x.mT.contiguous().mT.requires_grad_() for x in xs]
    for x in xs:
        if update and outputs:
            with torch.no_grad():
                [part.add_(1) for part in parts.values()]
        outputs.append(layer(x))
    made = [y.detach().clone() for y in outputs]
    for y, dy in zip(outputs if not update else (), dys, strict=False):
        y.backward(dy.clone())
    facts = {"its parameters are `weight` and `bias`": True, **kept, "outputs": made}
    facts["gradients"] = {"x": [x.grad for x in xs], **{name: part.grad for name, part in parts.items()}}
    facts["calls of g"] = len(calls) / len(xs) if t > 1 else 1.0
    facts["calls of another layer's g"] = len(of_other)
    own = all(has_own_memory(part, *given) for part in parts.values())
    return {**facts, "memory of its own": own, "whole weight held": holds(weight, kept["weight"], layer, answer)}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """Each rank's part of the whole layer."""
    results: list[dict[str, Any]] = [{} for _ in given]
    for group in given[0]["group"]:
        weight, bias = given[group[0]]["weight"].clone().requires_grad_(), given[group[0]]["bias"]
        bias = None if bias is None else bias.clone().requires_grad_()
        whole = [torch.cat(parts, -1).requires_grad_() for parts in zip(*(given[r]["xs"] for r in group), strict=True)]
        plus = [case.params.get("update", False) * m for m in range(len(whole))]
        if case.params.get("left"):
            numbers = f"{weight.shape[1]} and {len(group)}"
            results = [{"features that the ranks do not divide": f"a ValueError that names {numbers}"} for _ in given]
            continue
        ys = [F.linear(x, weight + p, bias if bias is None else bias + p) for x, p in zip(whole, plus, strict=True)]
        for y, dy in zip(ys if not any(plus) else (), given[group[0]]["dys"], strict=False):
            y.backward(dy)
        for place, rank in enumerate(group):
            columns = slice(2 * place, 2 * place + 2)
            biases = {} if bias is None else {"bias": bias}
            results[rank] = {
                "its parameters are `weight` and `bias`": True,
                "weight": weight[:, columns],
                **biases,
                "outputs": ys,
            }
            grads = {"weight": None if weight.grad is None else weight.grad[:, columns]}
            grads |= {name: b.grad for name, b in biases.items()}
            results[rank]["gradients"] = {
                "x": [None if x.grad is None else x.grad[..., columns] for x in whole],
                **grads,
            }
            results[rank] |= {"calls of g": 1.0, "calls of another layer's g": 0}
            results[rank] |= {"memory of its own": True, "whole weight held": False}
    return results


def why(case: Case, given: Given, record: Record) -> str:
    if "groups" in case.params:
        text = "each rank of the group has 1/t of the columns: dist.get_world_size(group), dist.get_rank(group)"
        return f"{MAY_HELP}{text}"
    return f"{MAY_HELP}the input features are dim 1 of a weight (out, in), and x has this rank's part of them already"


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"weight": torch.tensor([[2.0, 3.0]]), "bias": torch.tensor([10.0]), "group": [[0, 1]],
              "xs": [torch.tensor([x])], "dys": [torch.tensor([1.0])]} for x in (4.0, 5.0)],
    why=why,
    rules=[rules.most_messages("0")],
    reads=[no_stores],
    rtol=1e-9,
    atol=1e-9,
    stress=Stress(poison=True),
)  # fmt: skip
