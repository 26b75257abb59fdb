"""ch14.bug_hunt: a trainer on a mesh, each of its three bugs in a case that shows this one only."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import cross_entropy, embedding

from dtlearn.grading import Case, Check, Edit, Given
from dtlearn.runtime.record.record import Record

from ..own_work import forbids_torchs
from ..sent import no_silent_rank, no_stores
from . import MAY_HELP

# Per case: `mesh`, the sizes of (tp, pp, dp) for each number of ranks; `limit`, max_norm as a multiple of the first
# gradient's norm, if it clips; `partial`, if there are partial gradients; `head`, if it is not the embedding; `steps`:
# only what an optimizer keeps needs two.
TP, PP, DP = {2: (2, 1, 1), 4: (2, 1, 2)}, {2: (1, 2, 1), 4: (1, 2, 2)}, {2: (1, 1, 2), 4: (1, 1, 4)}
CASES: dict[str, dict[str, Any]] = {
    "replicas": {"mesh": DP, "limit": 0.5, "head": True, "steps": 2},
    "two stages": {"mesh": PP, "head": True,
        "says": "a batch is divided among the replicas: ranks of a pipeline, or of a tp group, have the same rows"},
    "a tied weight, clipped": {"mesh": PP, "limit": 0.5,
        "says": "each stage has its part of the norm; the two gradients of a weight that two stages have are added up, "
        "and their sum counts once"},
    "tensor parallelism": {"mesh": TP, "head": True,
        "says": "ranks of a tp group work on the same rows, and have whole gradients of all that is not partial"},
    "tensor parallelism, clipped": {"mesh": TP, "limit": 0.5,
        "says": "in the norm pieces are added up over tp, and what is whole on each rank counts once"},
    "partial gradients": {"mesh": TP, "partial": True,
        "says": "partial gradients are terms: their sum over tp is the gradient"},
    "partial gradients, clipped": {"mesh": TP, "partial": True, "limit": 0.5,
        "says": "a partial gradient that has been added up is whole: it counts once in the norm"},
    "tp and pp": {"mesh": {4: (2, 2, 1)}, "sizes": (4,), "partial": True, "limit": 0.5,
        "says": "with both axes the model is spread over both: so is its norm"},
}  # fmt: skip
# Parts of the solution; `as_found`, in the same file, has each of them otherwise.
ROWS = "replicas, replica = dist.get_world_size(dp), dist.get_rank(dp)"
REDUCE = """                dist.all_reduce(p.grad, group=tp)
            if name == tied:
                dist.all_reduce(p.grad, group=pp)
            dist.all_reduce(p.grad, group=dp)
            p.grad /= dist.get_world_size(dp)

        square"""
NORM = """            counts = name in split or dist.get_rank(tp) == 0
            if counts and (name != tied or place == 0):
                square += p.grad.square().sum()
        dist.all_reduce(square, group=tp)
        dist.all_reduce(square, group=pp)
        factor = min(1.0, max_norm / (square.sqrt().item() + 1e-6))
        for p in parameters.values():
            p.grad *= factor
        optimizer.step()
        optimizer.zero_grad()

        mean = loss.detach().clone()
        dist.all_reduce(mean, group=pp)
        dist.all_reduce(mean, group=dp)
        losses.append(mean.item() / dist.get_world_size(dp))
    return losses
    # END"""
OVER_TP, OVER_PP = (f"        dist.all_reduce(square, group={axis})\n" for axis in ("tp", "pp"))
TIED = "                dist.all_reduce(p.grad, group=pp)\n"
COUNTS, ONCE = "name in split or dist.get_rank(tp) == 0", "(name != tied or place == 0)"
BY_STAGE = "replicas = dist.get_world_size() // dist.get_world_size(tp)\n        replica = dist.get_rank() // "
BY_STAGE += "dist.get_world_size(tp)"


def of(text: str, changes: dict[str, str]) -> dict[str, str]:
    return {text: Edit(text, changes).applied_to(text)}


AVERAGED = {"group=tp)\n": "group=tp)\n                p.grad /= dist.get_world_size(tp)\n"}
EDITS = (
    Edit("the replicas take rows in turn: each one has one of n equal parts, in their order",
         {f"{ROWS}\n        x, y = inputs.chunk(replicas)[replica], classes.chunk(replicas)[replica]":
          f"{ROWS}\n        x, y = inputs[replica::replicas], classes[replica::replicas]"}),
    Edit("each stage takes rows of its own, and computes the loss of one's rows with the classes of another's",
         {ROWS: BY_STAGE}),
    Edit("each stage takes rows of its own, and that is not the only bug",
         {ROWS: BY_STAGE, **of(REDUCE, AVERAGED), **of(NORM, {COUNTS: "True"})}),
    Edit("every rank takes rows of its own: only replicas do",
         {ROWS: "replicas, replica = dist.get_world_size(), dist.get_rank()"}),
    Edit("ranks of a tp group take rows of their own: they compute the same layers' pieces of the same rows",
         {ROWS: "replicas = dist.get_world_size(dp) * dist.get_world_size(tp)\n        "
                "replica = dist.get_rank(dp) * dist.get_world_size(tp) + dist.get_rank(tp)"}),
    Edit("every replica takes all rows: a batch is divided among them", {ROWS: "replicas, replica = 1, 0"}),
    Edit("what is whole on each tp rank is counted once on each of them in the norm: it counts once",
         of(NORM, {COUNTS: "True"})),
    Edit("what is whole on each tp rank is missing in the norm: it counts once", of(NORM, {COUNTS: "name in split"})),
    Edit("what is whole is counted by rank 0 only: each stage and each replica has a rank of its own that counts it",
         of(NORM, {COUNTS: "name in split or dist.get_rank() == 0"})),
    Edit("partial gradients are averaged over tp: they are terms of a sum", of(REDUCE, AVERAGED)),
    Edit("partial gradients are left as they are: each tp rank has one term of the sum, and the whole parameters drift "
         "apart", of(REDUCE, {"dist.all_reduce(p.grad, group=tp)": "pass"})),
    Edit("all whole parameters' gradients are added up over tp: only partial ones are terms of a sum",
         {f"if name in partial:\n{REDUCE}": f"if name not in split:\n{REDUCE}"}),
    Edit("partial gradients are counted on each tp rank in the norm: added up they are whole, and count once",
         of(NORM, {COUNTS: f"name in partial or {COUNTS}"})),
    Edit("the tied weight's two gradients are not added up: the embedding and the head drift apart",
         of(REDUCE, {TIED: "                pass\n"})),
    Edit("the tied weight's two gradients are averaged over pp: they are terms of a sum",
         of(REDUCE, {TIED: f"{TIED}                p.grad /= dist.get_world_size(pp)\n"})),
    Edit("the tied weight is counted in the norm by both stages", of(NORM, {ONCE: "True"})),
    Edit("the tied weight is missing in the norm", of(NORM, {ONCE: "name != tied"})),
    Edit("the norm is that of one stage: squares are added up over pp, too", of(NORM, {OVER_PP: ""})),
    Edit("the norm is that of one tp rank: squares are added up over tp, too", of(NORM, {OVER_TP: ""})),
    Edit("squares are added up over dp: replicas have copies of one gradient",
         of(NORM, {OVER_PP: f"{OVER_PP}{OVER_PP.replace('pp', 'dp')}"})),
    Edit("squares are added up along one axis: tp, or pp if there is no tp",
         of(NORM, {OVER_PP: f"        if dist.get_world_size(tp) == 1:\n    {OVER_PP}"})),
    Edit("gradients are not clipped", of(NORM, {"factor = min(1.0,": "factor = max(1.0,"})),
    Edit("gradients of replicas are added up: with the means of their rows the mean is wanted",
         of(REDUCE, {"            p.grad /= dist.get_world_size(dp)\n": ""})),
    Edit("the loss is that of a replica's rows: the mean over all is wanted",
         of(NORM, {"dist.all_reduce(mean, group=dp)": "mean *= dist.get_world_size(dp)"})),
    Edit("the loss is known to the last stage only", of(NORM, {"dist.all_reduce(mean, group=pp)": "pass"})),
    Edit("the momentum is gone after each step: it stays in the optimizer's state",
         of(NORM, {"optimizer.zero_grad()": "optimizer.zero_grad()\n        optimizer.state.clear()"})),
)  # fmt: skip
SHAPES = {"gain": (4,), "up": (4, 4), "scale": (2,), "down": (4, 4)}  # of a block, the third if there are partial ones
CUT = {"up": 0, "down": 1}  # the dimension along which tp divides it


def model_of(case: Case) -> dict[str, torch.Tensor]:
    """All parameters, whole."""
    g, p = case.generator(), case.params
    shapes: dict[str, tuple[int, ...]] = {"embedding": (5, 4), **({"head": (5, 4)} if p.get("head") else {})}
    for number in range(2):
        shapes |= {f"{name}_{number}": shape for name, shape in SHAPES.items() if name != "scale" or p.get("partial")}
    return {name: 0.8 * torch.randn(shape, generator=g) for name, shape in shapes.items()}


def inputs(case: Case) -> Given:
    g, p = case.generator(1), case.params
    sizes, limit = p["mesh"][case.world_size], p.get("limit")
    batches = [[torch.randint(5, (8,), generator=g) for _ in range(2)] for _ in range(p.get("steps", 1))]
    whole = model_of(case)
    model = {name: tensor.double().requires_grad_() for name, tensor in whole.items()}
    loss_of(model, *batches[0]).backward()
    norm = float(torch.nn.utils.get_total_norm([tensor.grad for tensor in model.values() if tensor.grad is not None]))
    same = {"sizes": list(sizes), "batches": batches, "lr": 0.2, "max_norm": norm * limit if limit else 1e6}
    tied = None if "head" in whole else "embedding"
    return [{"own": cut(whole, sizes, rank), "tied": tied, **same} for rank in range(case.world_size)]


def cut(whole: dict[str, torch.Tensor], sizes: Any, rank: int) -> dict[str, torch.Tensor]:
    """A rank's parameters: those of its stage, and its piece of each that tp divides."""
    tp, stage, own = rank % sizes[0], rank // sizes[0] % sizes[1], dict[str, torch.Tensor]()
    for name, tensor in whole.items():
        kind, _, number = name.partition("_")
        stages = {int(number)} if number else {1} if name == "head" else {0} if "head" in whole else {0, 1}
        if stage in stages or sizes[1] == 1:
            own[name] = tensor.chunk(sizes[0], CUT[kind])[tp].clone() if kind in CUT else tensor.clone()
    return own


def on_rank(answer: Any, own: Any, sizes: Any, batches: Any, lr: float, max_norm: float, tied: Any) -> Any:
    from dtlearn.grading.on_rank.tools import own_group, summed_over

    mesh, axes = torch.arange(world_size).view(sizes[::-1]), ("tp", "pp", "dp")  # type: ignore[name-defined]  # noqa: F821
    lists = [mesh.movedim(2 - i, 2).reshape(-1, size).tolist() for i, size in enumerate(sizes)]
    groups: Any = {axis: own_group(lists[i]) for i, axis in enumerate(axes)}
    is_first = dist.get_rank(groups["pp"]) == 0  # type: ignore[name-defined]  # noqa: F821
    is_last = dist.get_rank(groups["pp"]) == sizes[1] - 1  # type: ignore[name-defined]  # noqa: F821

    class Stage(torch.nn.Module):
        width = 4

        def __init__(self) -> None:
            super().__init__()
            self.rows: list[int] = []
            for name, tensor in own.items():
                self.register_parameter(name, torch.nn.Parameter(tensor.clone()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            p = dict(self.named_parameters())
            self.rows += x.tolist() if is_first else [0] * len(x)
            x = torch.nn.functional.embedding(x, p["embedding"]) if is_first else x
            for number in sorted(name[-1] for name in p if name.startswith("up")):
                h = summed_over(x * p[f"gain_{number}"], groups["tp"], in_forward=False) @ p[f"up_{number}"].T
                if f"scale_{number}" in p:
                    h = (h.unflatten(-1, (-1, 2)) * p[f"scale_{number}"]).flatten(-2)
                x = x + summed_over(torch.tanh(h) @ p[f"down_{number}"].T, groups["tp"], in_forward=True)
            return x @ p[tied or "head"].T if is_last else x

    stage = Stage()
    split = {name for name in own if name[:2] in ("up", "do")}
    partial = {name for name in own if name.startswith("scale")}
    losses = answer(stage, groups, split, partial, tied, [tuple(b) for b in batches], lr=lr, max_norm=max_norm)
    own = {name: p.detach() for name, p in stage.named_parameters()}
    n = 8 // sizes[2]  # rows of a replica; which they are is seen in the first stage
    by_step = [sorted(stage.rows[at : at + n]) for at in range(0, len(stage.rows), n)]
    seen = by_step if is_first else len(stage.rows)
    return {"losses": losses, "rows that went through the stage": seen, "parameters": own}


def loss_of(model: dict[str, torch.Tensor], inputs: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    x = embedding(inputs, model["embedding"])
    for n in "01":
        h = (x * model[f"gain_{n}"]) @ model[f"up_{n}"].T
        h = h * model[f"scale_{n}"].repeat(2) if f"scale_{n}" in model else h
        x = x + torch.tanh(h) @ model[f"down_{n}"].T
    return cross_entropy(x @ model["head" if "head" in model else "embedding"].T, classes)


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """One process with the whole model and the global batch, in float64, clipped by torch."""
    first, losses = given[0], list[float]()
    model = {name: tensor.double().requires_grad_() for name, tensor in model_of(case).items()}
    optimizer = torch.optim.SGD(model.values(), lr=first["lr"], momentum=0.9)
    for batch in first["batches"]:
        optimizer.zero_grad()
        loss = loss_of(model, *batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.values(), first["max_norm"])
        optimizer.step()
        losses.append(loss.item())
    after = {name: tensor.detach().float() for name, tensor in model.items()}
    (tp, pp, dp), results = first["sizes"], list[dict[str, Any]]()
    for rank in range(case.world_size):
        seen: Any = [sorted(batch[0].chunk(dp)[rank // (tp * pp)].tolist()) for batch in first["batches"]]
        seen = seen if rank // tp % pp == 0 else sum(map(len, seen))
        facts = {"losses": losses, "rows that went through the stage": seen}
        results.append({**facts, "parameters": cut(after, first["sizes"], rank)})
    return results


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised or waits."""
    _, pp, _ = case.params["mesh"][case.world_size]
    order = "the second stage first receives, and after its backward pass sends; the first one does the opposite"
    return f"{MAY_HELP}{order if pp > 1 else case.says or 'a group of one rank is a group, too'}"


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    why=why,
    rules=[no_silent_rank(least_calls=lambda case, given: 1)],
    reads=[no_stores, forbids_torchs("torch.nn.parallel", "torch.distributed.fsdp", "torch.distributed.pipelining")],
    rtol=2e-4,
    atol=2e-5,
)
