"""ch12.sequence_parallel_norms: marked norms, then marks elsewhere, norms without one, ties, None, dtypes, groups."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, Stress
from dtlearn.runtime.record.record import Record

from ..sent import no_silent_rank, no_stores
from . import MAY_HELP, SOME, at_least_one_call, groups_of

SHAPES = {"norm.weight": (2,), "norm.bias": (2,), "up.weight": (3, 2), "up.bias": (3,), "final_norm.weight": (2,)}
USUAL = ["norm.weight", "norm.bias", "final_norm.weight"]
BLOCK = {"blocks.0.norm.weight": (2,), "blocks.0.norm.bias": (2,)}
MARK = "a norm's or not, the mark counts"
# Per case: `more`, further parameters, with their shapes; `marked`.
CASES: dict[str, dict[str, Any]] = {
    "marked norms": {},
    "a norm without the mark": {"says": f"a norm without the mark has its whole gradient: {MARK}", "marked": USUAL[:2]},
    "a marked bias of a linear layer": {
        "says": f"the gradient of a linear layer's marked bias is still of the rank's own tokens: {MARK}",
        "marked": [*USUAL, "up.bias"],
    },
    "a mark that is False": {"says": "a mark that is False is none: its value counts", "unmarked": ["up.bias"]},
    "a marked matrix": {
        "says": "marked matrices are added up too: the mark counts, not the shape",
        "marked": [*USUAL, "up.weight"],
    },
    "a marked norm in a module of a module": {
        "says": "modules have modules: model.parameters() has all parameters",
        "more": BLOCK,
        "marked": [*USUAL, *BLOCK],
    },
    "a marked parameter of the model itself": {
        "says": "the model has a parameter that is in none of its modules: model.parameters() has all",
        "more": {"position": (2,)},
        "marked": [*USUAL, "position"],
    },
    "a norm used in two places": {
        "says": "a parameter that is used in two places is one: it is added up once",
        "tied": True,
    },
    "gradients that are None": {
        "says": "what has no gradient keeps None: an optimizer leaves out what has None, and decays what has zeros",
        "none": ["norm.bias"],
    },
    "two dtypes": {"says": "gradients of one model may have two dtypes, and keep theirs", "float32": ["norm.weight"]},
    "nothing is marked": {"says": "a model may have nothing that is marked: then nothing is added up", "marked": []},
    "groups of fewer ranks": {"says": "the group's ranks are added up: other groups have other models", "groups": SOME},
}
MARKED = 'marked = [p for p in model.parameters() if getattr(p, "sequence_parallel", False)]'
ALL_REDUCE, LOOP = (
    "dist.all_reduce(flat, group=group)",
    "for dtype in dict.fromkeys(gradient.dtype for gradient in gradients):",
)
GRADIENTS, FLATTEN = "gradients = [p.grad for p in marked if p.grad is not None]", "gradient.flatten()"


def marked(which: str) -> dict[str, str]:
    """An edit that takes other parameters, each once."""
    return {MARKED: f"marked = [*dict.fromkeys({which})]"}


def one_by_one(recurse: bool) -> dict[str, str]:
    """An edit that reduces each parameter of each module by itself."""
    each = f"for m in model.modules() for p in m.parameters(recurse={recurse})"
    return {LOOP: f"for p in [p {each} if getattr(p, 'sequence_parallel', False) and p.grad is not None]:\n"
                  "        dist.all_reduce(p.grad, group=group)\n    for dtype in ():"}  # fmt: skip


IS, OF_NORMS = (
    "if getattr(p, 'sequence_parallel', False)",
    "p for m in model.modules() if 'Norm' in type(m).__name__ for p in m.parameters()",
)
OF_LAYER_NORMS = "p for m in model.modules() if isinstance(m, torch.nn.LayerNorm) for p in m.parameters()"
BY_KIND = "what is a norm is added up, not what is marked: the gradients of unmarked norms are complete, those of a "
EDITS = (
    Edit("the marked gradients are still those of each rank's own tokens: nothing is added up", {ALL_REDUCE: "pass"}),
    Edit("the marked gradients are averaged: each is a part of the sum over all tokens",
         {ALL_REDUCE: f"{ALL_REDUCE}; flat /= dist.get_world_size(group)"}),
    Edit("all gradients are added up: those of divided weights, and of what meets the whole sequence, are complete",
         marked("model.parameters()")),
    Edit("all gradients are averaged, as in data parallelism: only the marked ones are parts of a sum",
         {**marked("model.parameters()"), ALL_REDUCE: f"{ALL_REDUCE}; flat /= dist.get_world_size(group)"}),
    Edit("the gradients of marked matrices are still those of the rank's own tokens: the mark counts, not the shape",
         marked(f"p for p in model.parameters() {IS} and p.dim() == 1")),
    Edit("a marked parameter of the model itself, which is in none of its modules, still has the gradient of the "
         "rank's own tokens: model.parameters() has all",
         marked(f"p for m in model.children() for p in m.parameters() {IS}")),
    Edit(f"the gradients of what is marked and no norm's are of the rank's own tokens: {MARK}",
         marked(f"{OF_NORMS} {IS}")),
    Edit(f"{BY_KIND}marked bias of a linear layer are not", marked(OF_NORMS)),
    Edit("only the marked gradients of LayerNorms are added up: in a norm of another class, a linear layer or "
         "elsewhere the mark counts too", marked(f"{OF_LAYER_NORMS} {IS}")),
    Edit("what is a LayerNorm's is added up, not what is marked: the gradients of unmarked norms are complete, those "
         "of marked parameters of other modules are not", marked(OF_LAYER_NORMS)),
    Edit("gradients of parameters with sequence_parallel = False are added up too: its value counts",
         marked("p for p in model.parameters() if hasattr(p, 'sequence_parallel')")),
    Edit("all norms and biases, which are all vectors, are added up: those without the mark are complete",
         marked("p for p in model.parameters() if p.dim() == 1")),
    Edit("the gradients of biases are still those of the rank's own tokens: they are partial as those of weights are",
         marked(f"p for n, p in model.named_parameters() {IS} and not n.endswith('bias')")),
    Edit("marked parameters of modules within modules still have the gradients of the rank's own tokens: "
         "model.parameters() has all",
         marked(f"p for m in model.children() for p in m.parameters(recurse=False) {IS}")),
    Edit("the gradient of a norm that is used in two places is added up twice: it is one parameter", one_by_one(False)),
    Edit("the marked gradients are added up once for each module that they are in: model.modules() has the modules "
         "within modules too, and parameters() of each has all within it. model.parameters() has each parameter once",
         one_by_one(True)),
    Edit("the marked gradients are added up twice: the second time they are sums already",
         {ALL_REDUCE: f"{ALL_REDUCE}; {ALL_REDUCE}"}),
    Edit("the largest of the ranks' values is taken, where their sum is expected",
         {ALL_REDUCE: "dist.all_reduce(flat, dist.ReduceOp.MAX, group=group)"}),
    Edit("all ranks have the marked gradients of the first rank of the group, not their sum",
         {ALL_REDUCE: "dist.broadcast(flat, group=group, group_src=0)"}),
    Edit("the parameters are added up, not their gradients: p.grad",
         {ALL_REDUCE: "[dist.all_reduce(p.data, group=group) for p in marked]"}),
    Edit("a parameter has a .grad now that had None: the optimizer would leave it out, and now moves it by weight "
         "decay or momentum",
         {GRADIENTS: "for p in marked:\n        p.grad = torch.zeros_like(p) if p.grad is None else p.grad\n"
                     "    gradients = [p.grad for p in marked]"}),
    Edit("numbers are rounded to float32 on the way: keep the dtype of the gradients", {FLATTEN: f"{FLATTEN}.float()"}),
    Edit("numbers are rounded to 16 bits on the way: keep the dtype of the gradients",
         {FLATTEN: f"{FLATTEN}.bfloat16()"}),
    Edit("all ranks are added up, not those of the group: other groups have other models",
         {ALL_REDUCE: "dist.all_reduce(flat)"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, p = case.generator(), case.params
    given: Given = [{} for _ in range(case.world_size)]
    for own in given:
        shapes = SHAPES | p.get("more", {})
        own["gradients"] = {n: torch.randn(s, generator=g, dtype=torch.float64) for n, s in shapes.items()}
        for name in p.get("float32", ()):
            own["gradients"][name] = (own["gradients"][name] * 8).round().float()  # their sum is exact
        own["gradients"] |= dict.fromkeys(p.get("none", ()))
        own |= {"shapes": shapes, "marked": p.get("marked", USUAL), "unmarked": p.get("unmarked", [])}
        own |= {"tied": p.get("tied", False), "group": groups_of(case) if "groups" in p else []}
    return given


def on_rank(
    answer: Any, gradients: Any, marked: Any, shapes: Any, unmarked: Any = (), tied: Any = False, group: Any = ()
) -> Any:
    from dtlearn.grading.on_rank.tools import own_group

    nn: Any = torch.nn
    model: Any = nn.Module()
    model.norm, model.up, model.final_norm = nn.LayerNorm(2), nn.Linear(2, 3), nn.RMSNorm(2)
    if "position" in shapes:
        model.position = nn.Parameter(torch.ones(2))
    if "blocks.0.norm.weight" in shapes:
        model.blocks = nn.ModuleList([nn.Module()])
        model.blocks[0].norm = nn.LayerNorm(2)
    if tied:
        model.second_use = nn.RMSNorm(2)
        model.second_use.weight = model.final_norm.weight
    parameters: Any = dict(model.named_parameters())
    for name, parameter in parameters.items():
        gradient = gradients[name]
        parameter.data = parameter.data.to(torch.float64 if gradient is None else gradient.dtype)
        parameter.grad = None if gradient is None else gradient.clone()
        if name in (*marked, *unmarked):
            parameter.sequence_parallel = name in marked
    before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    answer(model, own_group(group))
    now = dict(model.named_parameters())
    same = list(now) == list(before) and all(torch.equal(now[name], before[name]) for name in before)
    is_marked = [name for name in parameters if getattr(parameters[name], "sequence_parallel", False)]
    made = {name: parameter.grad for name, parameter in parameters.items()}
    return {"gradients": made, "parameters as before": same, "marks as before": sorted(is_marked) == sorted(marked)}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = [{} for _ in given]
    for ranks in groups_of(case):
        for rank in ranks:
            made = dict(given[rank]["gradients"])
            for name in given[rank]["marked"]:
                if made[name] is not None:
                    made[name] = torch.stack([given[r]["gradients"][name] for r in ranks]).sum(0)
            results[rank] = {"gradients": made, "parameters as before": True, "marks as before": True}
    return results


def why(case: Case, given: Given, record: Record) -> str:
    text = (
        "a parameter's .grad may be None; most parameters have no attribute sequence_parallel; gradients of one model "
    )
    return f"{MAY_HELP}{text}may have two dtypes and several shapes, and a model may have nothing that is marked"


def messages(case: Case) -> int:
    return 2 if "float32" in case.params else 1  # one for each dtype


def payload(case: Case, given: Given) -> int:
    own = given[0]
    sizes = [own["gradients"][name].nbytes for name in own["marked"] if own["gradients"][name] is not None]
    return int(sum(sizes)) // messages(case)


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    why=why,
    calls=messages,
    payload=payload,
    rules=[no_silent_rank(least_calls=lambda case, given: at_least_one_call(case, given) and bool(given[0]["marked"]))],
    reads=[no_stores],
    rtol=1e-9,
    atol=1e-9,
    stress=Stress(poison=True),
)
