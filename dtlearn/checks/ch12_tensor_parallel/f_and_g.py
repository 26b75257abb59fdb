"""ch12.f_and_g: the two by themselves, with tensors of several strides, uses and groups, and in a layer."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from dtlearn.grading import Case, Check, Edit, Finding, Given, Stress
from dtlearn.runtime.record.record import Record

from ..sent import no_stores
from . import MAY_HELP, SOME, groups_of

CASES: dict[str, dict[str, Any]] = {
    "each by itself": {"runs": ["f", "g"]},
    "tensors of other strides": {
        "says": "tensors and gradients may have any strides, on each rank others "
        "(clone(memory_format=torch.contiguous_format))",
        "runs": ["f of other strides", "g of other strides"],
    },
    "other shapes": {"says": "tensors may have any shape", "runs": ["other shapes"]},
    "g used twice before backward": {
        "says": "a pair is used many times: each call returns a tensor of its own",
        "runs": ["g twice"],
    },
    "no gradients": {
        "says": "g adds up where no gradients are recorded (torch.no_grad), too",
        "runs": ["no gradients"],
    },
    "groups of fewer ranks": {
        "says": "the sums are those of the group's ranks, not of all ranks of the job (group=group)",
        "runs": ["f", "g"],
        "groups": SOME,
    },
    "another pair made after it": {
        "says": "a later pair has changed an earlier one: what belongs to a pair is its own",
        "runs": ["f", "g"],
        "others": SOME,
    },
    "a layer beside a residual": {
        "says": "f and g are wrong in a layer: x + g(tanh(f(x) A^T) B^T)",
        "runs": ["a layer"],
    },
}
# Calls in forward and in backward.
CALLS = {"f": (0, 1), "g": (1, 0), "f of other strides": (0, 1), "g of other strides": (1, 0)}
CALLS |= {"g twice": (2, 0), "other shapes": (1, 1), "no gradients": (1, 0), "a layer": (1, 1)}
TO_SUM, SUMMED, HAND_ON = "dist.all_reduce(total, group=group)", "return summed(", "return gradient\n"
CLONE, FIRST, VIEW = "x.clone(memory_format=torch.contiguous_format)", "    class Copy(", "return x.view_as(x)"
BACK, FORWARD, PAIR = f"{SUMMED}gradient)", f"{SUMMED}x)", "return Copy.apply, Reduce.apply"
SIZE = "dist.get_world_size(group)"
OF_JOB = "total = {0}.clone(memory_format=torch.contiguous_format); dist.all_reduce(total); return total"
PARTIAL = "each rank has only what went through its own part of the weights; f has to all-reduce it in backward"
EDITS = (
    Edit("f and g are swapped: f is first, and all-reduces in backward", {PAIR: "return Reduce.apply, Copy.apply"}),
    Edit("no gradient comes through g: its backward pass is missing",
         {PAIR: "return Copy.apply, lambda x: summed(x.detach())"}),
    Edit("no gradient comes through f: its backward pass is missing",
         {PAIR: "return lambda x: x.detach().clone(), Reduce.apply"}),
    Edit(f"f leaves the gradient as it is: {PARTIAL}", {BACK: HAND_ON}),
    Edit("g hands on what each rank has where no gradients are recorded (torch.no_grad): it has to add up there, too",
         {PAIR: "return Copy.apply, lambda x: Reduce.apply(x) if torch.is_grad_enabled() else x.clone()"}),
    Edit("g hands on what each rank has: it has to add up the ranks' tensors", {FORWARD: "return x.clone()"}),
    Edit("f and g all-reduce in forward and in backward: each does so in one of them only",
         {VIEW: FORWARD, HAND_ON: f"{BACK}\n"}),
    Edit("g all-reduces in backward too: every rank has the same gradient there already, and it becomes t times as "
         "large", {HAND_ON: f"{BACK}\n"}),
    Edit("f all-reduces in forward too: every rank has the same input there already, and it becomes t times as large",
         {VIEW: FORWARD}),
    Edit("f and g divide by the number of ranks: sums are expected", {"return total": f"return total / {SIZE}"}),
    Edit("f divides the gradient by the number of ranks: a sum is expected", {BACK: f"{BACK} / {SIZE}"}),
    Edit("g divides by the number of ranks: a sum is expected", {FORWARD: f"{FORWARD} / {SIZE}"}),
    Edit("g divides the gradient by the number of ranks: it is handed on as it is",
         {HAND_ON: f"return gradient / {SIZE}\n"}),
    Edit("what was given has changed, in forward (g) and in backward (f): dist.all_reduce works in place; give it a "
         "clone",
         {CLONE: "x"}),
    Edit("what was given in forward has changed: dist.all_reduce works in place; give it a clone",
         {FORWARD: "x.copy_(summed(x)); return x.view_as(x)"}),
    Edit("the gradient that was given in backward has changed: autograd may hand the same tensor to another branch, "
         "and dist.all_reduce works in place; give it a clone", {BACK: "return gradient.copy_(summed(gradient))"}),
    Edit("tensors may have other strides on each rank: clone() keeps them, and all_reduce adds up what lies at the "
         "same place in memory: clone(memory_format=torch.contiguous_format)", {CLONE: "x.clone()"}),
    Edit("numbers are rounded to 16 bits on the way (float16, bfloat16)",
         {CLONE: "x.bfloat16()", "return total": "return total.to(x.dtype)"}),
    Edit("numbers are rounded to float32 on the way", {CLONE: "x.float()", "return total": "return total.to(x.dtype)"}),
    Edit("f and g add up over all ranks of the job, not those of the group", {TO_SUM: "dist.all_reduce(total)"}),
    Edit("f adds up over all ranks of the job, not those of the group", {BACK: OF_JOB.format("gradient")}),
    Edit("g adds up over all ranks of the job, not those of the group", {FORWARD: OF_JOB.format("x")}),
    Edit("all pairs use the group of the pair that was made last: a group belongs to its pair, not to a class or "
         "module",
         {TO_SUM: "dist.all_reduce(total, group=f_and_g.last)", FIRST: f"    f_and_g.last = group\n\n{FIRST}"}),
    Edit("the second call of g changed what the first one had returned: each has to return a tensor of its own",
         {CLONE: "kept.setdefault((x.shape, x.dtype), torch.empty(x.shape, dtype=x.dtype)).copy_(x)",
          FIRST: f"    kept = {{}}\n\n{FIRST}"}),
    Edit("f adds up all of the gradient of its input, also what did not come through f, as a hook on the input itself "
         "does: hand on a tensor of its own, x.view_as(x)",
         {PAIR: "def f(x):\n        if x.requires_grad:\n            x.register_hook(summed)\n        return x\n\n"
                "    return f, Reduce.apply"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, n = case.generator(), case.world_size

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=g)

    given: Given = [{} for _ in range(n)]
    groups = groups_of(case)
    for group in groups:
        whole = {"runs": case.params["runs"], "h": random(2, 3), "dh": random(2, 3), "group": groups}
        whole["others"] = case.params.get("others", {}).get(n, [])
        for rank in group:
            own = {name: random(2, 3) for name in ("x", "dx", "dz")}
            given[rank] = {**own, **whole, "a": random(2, 3), "b": random(3, 2)}
    return given


def on_rank(
    answer: Any, runs: Any, x: Any, dx: Any, h: Any, dz: Any, dh: Any, a: Any, b: Any, group: Any, others: Any
) -> Any:
    from dtlearn.grading.on_rank.tools import own_group
    from dtlearn.runtime.recording.phases import phase

    f, g = answer(own_group(group))
    place = dist.get_rank(own_group(group))
    _ = answer(own_group(others)) if others else None

    def outputs_of(run: str, x: Any, h: Any, a: Any, b: Any) -> Any:
        """Outputs, what backward begins with, and where gradients are looked for."""
        if run in ("f", "g"):
            return [(f if run == "f" else g)(x)], [dx.clone()], [x]
        if run.endswith("of other strides"):  # on every other rank of the group they are contiguous
            kind = torch.preserve_format if place % 2 else torch.contiguous_format
            return [(f if run[0] == "f" else g)(x.mT.clone(memory_format=kind))], [dx.mT.clone(memory_format=kind)], [x]
        if run == "other shapes":
            gradients = [dx.clone().flatten(), dz.clone().reshape(3, 1, 2)]
            return [f(x.reshape(-1)), g(h.reshape(3, 1, 2))], gradients, [x, h]
        if run == "g twice":
            return [g(x), g(h)], [dx.clone(), dz.clone()], [x, h]
        if run == "no gradients":
            return [f(x), g(x)], [], []
        return [h + g(torch.tanh(f(h) @ a.T) @ b.T)], [dh.clone()], [h, a, b]

    facts: Any = {}
    for run in runs:
        leaves = [one.detach().clone().requires_grad_() for one in (x, h, a, b)]
        with phase(f"forward of {run}"), torch.set_grad_enabled(run != "no gradients"):
            outputs, gradients, places = outputs_of(run, *leaves)
        given, kept = [one.clone() for one in gradients], [one.detach().clone() for one in outputs]
        for output, gradient in [*zip(outputs, gradients, strict=False)][::-1]:
            _ = output.backward(gradient) if output.requires_grad else None
        unchanged = all(map(torch.equal, gradients, given))
        facts[run] = {"outputs": kept, "gradients": [one.grad for one in places]}
        facts[run]["gradients given are as before"] = unchanged
        facts[run]["inputs"] = [one.detach() for one in leaves[:2]]
    return facts


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = [{} for _ in given]
    for ranks in given[0]["group"]:
        total = {name: sum(given[r][name] for r in ranks) for name in ("x", "h", "dx", "dz")}
        h = given[ranks[0]]["h"].clone().requires_grad_()
        a, b = (torch.cat([given[r][name] for r in ranks], dim).requires_grad_() for dim, name in enumerate("ab"))
        y = h + torch.tanh(h @ a.T) @ b.T
        dh, da, db = torch.autograd.grad(y, (h, a, b), given[ranks[0]]["dh"])
        for place, rank in enumerate(ranks):
            x, dx, dz = (given[rank][name] for name in ("x", "dx", "dz"))
            parts = [dh, da.chunk(len(ranks))[place], db.chunk(len(ranks), 1)[place]]
            right = {
                "f": ([x], [total["dx"]]),
                "g": ([total["x"]], [dx]),
                "f of other strides": ([x.mT], [total["dx"]]),
                "g of other strides": ([total["x"].mT], [dx]),
                "other shapes": ([x.reshape(-1), total["h"].reshape(3, 1, 2)], [total["dx"], dz]),
                "g twice": ([total["x"], total["h"]], [dx, dz]),
                "no gradients": ([x, total["x"]], []),
                "a layer": ([y], parts),
            }
            rest = {"gradients given are as before": True, "inputs": [x, h]}
            results[rank] = {
                r: dict(zip(("outputs", "gradients"), right[r], strict=True)) | rest for r in given[rank]["runs"]
            }
    return results


def calls(case: Case, given: Given, record: Record) -> Finding | None:
    """The calls are those that the task names, and each has the bytes of one tensor."""
    for rank, own in enumerate(given):
        t = next(len(ranks) for ranks in own["group"] if rank in ranks)
        passes = {f"the forward pass of the run '{run}'": (f"forward of {run}", CALLS[run][0]) for run in own["runs"]}
        passes["the backward passes"] = "backward", sum(CALLS[run][1] for run in own["runs"])
        for at, (phase, wanted) in passes.items():
            events = record.select(rank=rank, phase=phase).events
            line = events[0].line or None if events else None
            made = ", ".join(f"{e.op} with {e.nbytes} bytes on line {e.line}" for e in events) or "none"
            text = f"{at} should make {wanted} call{'s' * (wanted != 1)} in {case.name!r}; "
            text += f"rank {rank} made {len(events)}: {made}"
            if len(events) > wanted or (len(events) < wanted and t > 1):
                return Finding("DTL-RULE-MESSAGES" if len(events) > wanted else "DTL-RULE-CALLS", text, rank, line)
            if any(e.nbytes != own["x"].nbytes for e in events):
                text = f"a call hands over the bytes of one tensor, {own['x'].nbytes} here; rank {rank} made {made}"
                return Finding("DTL-RULE-BYTES", text, rank, line)
    return None


def why(case: Case, given: Given, record: Record) -> str:
    return f"{MAY_HELP}a tensor of other strides is made contiguous by clone(memory_format=torch.contiguous_format)"


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    why=why,
    rules=[calls],
    reads=[no_stores],
    rtol=1e-9,
    atol=1e-9,
    stress=Stress(poison=True),
)
