"""ch12.fused_qkv: as many key heads as query heads, and fewer; a second batch, groups, and another layer."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from dtlearn.grading import Case, Check, Edit, Given, Stress, rules
from dtlearn.runtime.record.record import Record

from ..sent import no_stores
from . import MAY_HELP, SOME, groups_of

# Per case: by rank of a group, query heads and key and value heads; the size of a head; tokens of each batch.
CASES: dict[str, dict[str, Any]] = {
    "as many key heads as query heads": {},
    "fewer key heads than query heads": {
        "says": "with K < H the blocks of the fused weight have sizes of their own, and H/K query heads that follow "
        "one another share a key head",
        "heads": (4, 2),
        "size": 1,
    },
    "a second batch, which is longer": {
        "says": "batches may have other lengths: keep no mask of the first one",
        "tokens": (3, 4),
    },
    "groups of fewer ranks": {
        "says": "the group's ranks have the heads, not those of the job: dist.get_rank(group)",
        "groups": SOME,
    },
    "another layer made after it": {
        "says": "what belongs to a layer was changed when another layer was made: keep it in self",
        "others": SOME,
    },
    "key heads that the ranks do not divide": {
        "says": "expected a ValueError that names both numbers",
        "kv": {2: (6, 3), 4: (8, 2)},
    },
}
CUT, OUTPUT = "torch.cat([part.chunk(n)[place] for part in whole])", "output.chunk(n, 1)[place]"
RANK, WHOLE = "dist.get_rank(group)", "whole = qkv.split([n * size for size in self.sizes])"
SET, PRODUCT = "self.f, self.g = f, g", "parts = F.linear(self.f(x), self.qkv).split(self.sizes, -1)"
HEADS, JOINED = "part.unflatten(-1, (-1, self.head_size)).transpose(1, 2)", "y.transpose(1, 2).flatten(2)"
OUT, CAUSAL = f"self.g(F.linear({JOINED}, self.output))", ", is_causal=True)"
PARTS = "parts = [F.linear(one, rows) for one, rows in zip({}, self.qkv.split(self.sizes), strict=True)]"
QKV = "self.qkv = torch.nn.Parameter("
BY_HEAD = "zip(q.chunk(len(k)), k, v, strict=True)"
JOB = "the heads are those of the rank's number in the job{}; its place in the group counts: dist.get_rank(group)"
MIXED = "heads and tokens change places"
EDITS = (
    Edit("the fused weight is cut into contiguous pieces, as if it were one: the first rank then has no values, the "
         "last one no queries. Cut the queries, the keys and the values each", {CUT: "qkv.chunk(n)[place].clone()"}),
    Edit("the fused weight is cut as thirds: with fewer key and value heads the queries have more than a third of its "
         "rows", {WHOLE: "whole = qkv.tensor_split(3)", CUT: CUT.replace("chunk", "tensor_split")}),
    Edit(JOB.format(", modulo the group's size"), {RANK: "dist.get_rank() % dist.get_world_size(group)"}),
    Edit(JOB.format(""), {RANK: "dist.get_rank()",
                          OUTPUT: "output.unflatten(1, (n, -1))[:, place : place + 1].flatten(1)",
      CUT: "torch.cat([part.unflatten(0, (n, -1))[place : place + 1].flatten(0, 1) for part in whole])"}),
    Edit("the heads are dealt out in turn; a rank's heads have to follow one another",
         {CUT: "torch.cat([part.unflatten(0, (-1, self.head_size))[place::n].flatten(0, 1) for part in whole])",
          OUTPUT: "output.unflatten(1, (num_heads, -1))[:, place::n].flatten(1)"}),
    Edit("rows are dealt out one by one; the rows of a head stay together, and a rank's heads follow one another",
         {CUT: "torch.cat([part[place::n] for part in whole])", OUTPUT: "output[:, place::n]"}),
    Edit("the rows are laid out head by head, query, key and value side by side: first come all queries of this rank, "
         "then its keys, then its values",
         {QKV: f"q, k, v = (part.chunk(n)[place].unflatten(0, (-1, self.head_size)) for part in whole)\n        {QKV}",
          CUT: f"torch.cat([torch.cat([one.flatten(0, 1), two, three]) for one, two, three in {BY_HEAD}])"}),
    Edit("all key and value heads are on every rank: it needs those that its queries use",
         {CUT: "torch.cat([whole[0].chunk(n)[place], *whole[1:]])"}),
    Edit("the output's weight is cut by rows: a rank's heads are the input of it, its columns",
         {OUTPUT: "output.chunk(n)[place]"}),
    Edit("the gradient of x is that of this rank's heads only: f, before the first product, adds up those of all ranks",
         {"self.f(x)": "x"}),
    Edit("the output is that of this rank's heads only: g adds up those of all ranks",
         {OUT: OUT.removeprefix("self.g")}),
    Edit("f is applied for the queries only: keys and values are made of x, too, and their gradient has to go through "
         "f",
         {PRODUCT: PARTS.format("(self.f(x), x, x)")}),
    Edit("f is called for queries, keys and values each: once is enough, before the fused product",
         {PRODUCT: PARTS.format("(self.f(x), self.f(x), self.f(x))")}),
    Edit("f stands before the product with the output's weight, where each rank has heads of its own; it belongs "
         "where all ranks have the same, at x", {"self.f(x)": "x", JOINED: f"self.f({JOINED})"}),
    Edit("g stands before the product with the output's weight, and adds up heads that have nothing to do with one "
         "another; partial sums are what comes after it", {OUT: f"F.linear(self.g({JOINED}), self.output)"}),
    Edit("f and g are swapped: f comes first, g last", {"self.f(x)": "self.g(x)", "self.g(F": "self.f(F"}),
    Edit("the ranks' outputs are averaged: they have to be added up",
         {SET: "self.f, self.g, self.n = f, g, n", OUT: f"{OUT} / self.n"}),
    Edit("queries use key and value heads in turn (repeat); those that follow one another share one "
         "(repeat_interleave)",
         {"part.repeat_interleave(self.shared_by, 1)": "part.repeat(1, self.shared_by, 1, 1)"}),
    Edit("the scores are divided by the root of all features; the size of a head counts",
         {CAUSAL: ", is_causal=True, scale=x.shape[-1] ** -0.5)"}),
    Edit("the scores are not divided by the root of the head size", {CAUSAL: ", is_causal=True, scale=1.0)"}),
    Edit("tokens attend to later ones: the attention is causal (is_causal=True)", {CAUSAL: ")"}),
    Edit(f"{MIXED} before attention without a transposition: (B, T, H, D) has to be transposed, not reshaped",
         {HEADS: "part.reshape(len(x), -1, x.shape[1], self.head_size)"}),
    Edit(f"{MIXED} after attention without a transposition: (B, H, T, D) has to be transposed first",
         {JOINED: "y.reshape(len(x), x.shape[1], -1)"}),
    Edit("all layers call the f and g of the layer that was made last: they belong to their layer, not to the class or "
         "the module", {SET: "fused_qkv.f, fused_qkv.g = staticmethod(f), staticmethod(g)"}),
    Edit("a parameter is a view of a whole weight: changing one changes the other, and the whole weight stays in "
         "memory: clone() copies", {f"{OUTPUT}.clone()": OUTPUT}),
    Edit("a whole weight is still in memory when the caller has dropped it: the module refers to it or a copy",
         {SET: f"{SET}; self.given = qkv, output"}),
    Edit("key heads that the ranks do not divide: expected a ValueError, but nothing was raised",
         {"if num_kv_heads % n:": "if False:", WHOLE: f"{WHOLE} if num_kv_heads % n == 0 else qkv.tensor_split(3)"}),
    Edit("the message of the ValueError has to name both numbers, the key and value heads and the ranks",
         {'f"{n} ranks do not divide {num_kv_heads} key and value heads"': '"the ranks do not divide the heads"'}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, n, p = case.generator(), case.world_size, case.params
    given: Given = [{} for _ in range(n)]
    for group in groups_of(case):

        def random(*shape: int) -> torch.Tensor:
            return torch.randn(shape, dtype=torch.float64, generator=g)

        heads, kv_heads = p["kv"][n] if "kv" in p else (k * len(group) for k in p.get("heads", (2, 2)))
        size = p.get("size", 2)
        own: dict[str, Any] = {"num_heads": heads, "num_kv_heads": kv_heads, "group": groups_of(case)}
        own |= {
            "qkv": random((heads + 2 * kv_heads) * size, heads * size),
            "output": random(heads * size, heads * size),
        }
        for name in ("xs", "dys"):
            own[name] = [random(2, tokens, heads * size) for tokens in p.get("tokens", (3,))]
        for rank in group:
            given[rank] = {**own, "others": p.get("others", {}).get(n, []), "refused": "kv" in p}
    return given


def on_rank(
    answer: Any, qkv: Any, output: Any, num_heads: Any, num_kv_heads: Any, group: Any, xs: Any, dys: Any,
    others: Any = (), refused: Any = False
) -> Any:  # fmt: skip
    from dtlearn.grading.on_rank.tools import has_own_memory, holds, own_group, refusal_naming, summed_over

    def layer_of(groups: Any) -> Any:
        """A layer, and the calls of its f and its g."""
        own, calls, given = own_group(groups), {"f": 0, "g": 0}, (qkv.clone(), output.clone())

        def f(x: Any) -> Any:
            calls["f"] += 1
            return summed_over(x, own, False)

        def g(x: Any) -> Any:
            calls["g"] += 1
            return summed_over(x, own, True)

        if refused:
            numbers = [num_kv_heads, dist.get_world_size(own)]
            return refusal_naming(numbers, answer, *given, num_heads, num_kv_heads, own, f, g)
        return answer(*given, num_heads, num_kv_heads, own, f, g), calls, given, dist.get_world_size(own)

    if refused:
        return {"key heads that the ranks do not divide": layer_of(group)}
    layer, calls, given, t = layer_of(group)
    of_other = layer_of(others)[1] if others else {}
    parts = {name: part.detach().clone() for name, part in layer.named_parameters()}
    names = ("qkv", "output", "outputs", "gradient of x", "gradients", "calls of f and g")
    facts: Any = (
        dict.fromkeys((*names, "memory of its own", "whole weight held", "calls of another layer's f and g")) | parts
    )
    # With other shapes a forward pass would end in an exception, and hide the cause.
    shapes = {"qkv": [len(qkv) // t, qkv.shape[1]], "output": [len(output), output.shape[1] // t]}
    right = torch.tensor({name: list(part.shape) for name, part in parts.items()} == shapes).int()
    dist.all_reduce(right, dist.ReduceOp.MIN)
    if not right:
        return facts
    xs = [x.clone().requires_grad_() for x in xs]
    outputs = [layer(x) for x in xs]
    facts["outputs"] = [y.detach().clone() for y in outputs]
    for y, dy in zip(outputs, dys, strict=True):
        y.backward(dy.clone())
    own = dict(layer.named_parameters())
    facts["gradient of x"], facts["gradients"] = [x.grad for x in xs], {name: own[name].grad for name in shapes}
    facts["calls of f and g"] = [calls[name] / len(xs) if t > 1 else 1.0 for name in "fg"]
    facts["calls of another layer's f and g"] = sum(of_other.values())
    facts["memory of its own"] = all(has_own_memory(part, *given) for part in own.values())
    held = (holds(whole, parts[name], layer, answer) for name, whole in (("qkv", qkv), ("output", output)))
    return {**facts, "whole weight held": any(held)}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """The whole attention, and each rank's part of the weights and of their gradients."""
    results: list[dict[str, Any]] = [{} for _ in given]
    for group in groups_of(case):
        own, t = given[group[0]], len(group)
        H, K, D = own["num_heads"], own["num_kv_heads"], own["output"].shape[1] // own["num_heads"]
        text = {"key heads that the ranks do not divide": f"a ValueError that names {K} and {t}"}
        qkv, output, *xs = (one.clone().requires_grad_() for one in (own["qkv"], own["output"], *own["xs"]))
        sizes, outputs = [H * D, K * D, K * D], []
        for x, dy in zip(xs, own["dys"], strict=True):
            q, k, v = (p.unflatten(-1, (-1, D)).transpose(1, 2) for p in F.linear(x, qkv).split(sizes, -1))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            outputs.append(F.linear(y.transpose(1, 2).flatten(2), output))
            outputs[-1].backward(dy)
        for place, rank in enumerate(group):
            rows, their_gradients = (
                None if w is None else torch.cat([p.tensor_split(t)[place] for p in w.split(sizes)])
                for w in (qkv, qkv.grad)
            )
            columns, column_gradients = (
                None if w is None else w.tensor_split(t, 1)[place] for w in (output, output.grad)
            )
            gradients = {"qkv": their_gradients, "output": column_gradients}
            results[rank] = {"qkv": rows, "output": columns, "outputs": outputs}
            results[rank] |= {"gradient of x": [x.grad for x in xs], "gradients": gradients}
            results[rank] |= {"calls of f and g": [1.0, 1.0], "calls of another layer's f and g": 0}
            results[rank] |= {"memory of its own": True, "whole weight held": False}
            results[rank] = text if "kv" in case.params else results[rank]
    return results


def why(case: Case, given: Given, record: Record) -> str:
    text = "the fused weight has (H + 2 K) D rows, a rank (H + 2 K) D / t of them; it has H/t and K/t heads: (B, T, "
    return f"{MAY_HELP}{text}heads, D), transposed. dist.get_rank() without the group is the number in the job"


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    why=why,
    rules=[rules.most_messages("0")],
    reads=[no_stores],
    rtol=1e-8,
    atol=1e-8,
    stress=Stress(poison=True),
)
