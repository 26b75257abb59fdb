"""ch09.gather_and_free: steps of a chain of units and a pass without gradients; what is held, sent and computed.

In the third step the shards are doubled between forward and backward. An answer that gathers again has other gradients
then; one that kept the weights, where the ledger does not look, has the same.
"""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, Mistake, Stress, compare, difference, rules
from dtlearn.runtime.record.record import Record

from ..marks import steps_of
from ..rounded import rounded_in_messages
from ..sent import no_stores
from ..traffic import most_sent
from . import MAY_HELP

_WIDTH, _ROWS, _RATE = 32, 2, 0.02
_UNUSED = (7, 40, 1, 90, 25, 64)  # elements of each unit that are not used: no two units have as many
_UNITS = len(_UNUSED)
_PASSES = ("the first step", "the second step", "the third step", "the pass under no_grad")
_STEPS = _PASSES[:3]


def _num_ranks(world_size: int) -> int:
    """N: at 4 ranks the groups are 0, 2 and 1, 3."""
    return 2 if world_size == 4 else world_size


def _lengths(n: int) -> list[int]:
    """Elements of a shard of each unit."""
    return [-(-(_WIDTH * _WIDTH + _WIDTH + unused) // n) for unused in _UNUSED]


def inputs(case: Case) -> Given:
    g, n = case.generator(), _num_ranks(case.world_size)
    weights = [torch.randn(n, length, generator=g) / 5 for length in _lengths(n)]
    given: Given = []
    for rank in range(case.world_size):
        x = torch.randn(len(_PASSES), _ROWS, _WIDTH, generator=g) + rank
        place = rank // 2 if case.world_size == 4 else rank
        given.append({"shards": [unit[place].clone() for unit in weights], "x": x, "pairs": case.world_size == 4})
    return given


def on_rank(answer: Any, shards: Any, x: Any, pairs: bool) -> Any:
    import gc
    import time

    from dtlearn.memory.ledger.storage_ledger import StorageLedger
    from dtlearn.runtime.rank.task import mark

    group = None
    for members in ([0, 2], [1, 3]) if pairs else ():
        made = dist.new_group(members)  # type: ignore[name-defined] # noqa: F821
        group = made if rank in members else group  # type: ignore[name-defined] # noqa: F821
    width = x.shape[-1]

    def compute(weights: Any, x: Any) -> Any:
        w, b, _ = weights.split([width * width, width, len(weights) - width * width - width])
        return torch.tanh(x @ w.view(width, width) + b)

    def held(most: int) -> int:
        for tried in range(6):  # the backend lets go of a tensor a little after its call
            if ledger.now <= most:
                break
            if tried == 0:
                gc.collect()
            time.sleep(0.01)
        return int(ledger.now)

    own = [torch.nn.Parameter(shard.clone()) for shard in shards]
    whole = max(shard.nbytes for shard in own) * dist.get_world_size(group)  # type: ignore[name-defined] # noqa: F821
    notes: list[Any] = []
    for number, rows in enumerate(x):
        for shard in own:
            shard.grad = None
        with StorageLedger() as ledger, torch.set_grad_enabled(number < 3):
            leaf = rows.clone().requires_grad_(number == 1)
            y = leaf
            mark("forward")
            of_last: list[int] = []  # the peak when the last unit's backward pass is over
            for shard in own:
                if shard is own[-1] and y.requires_grad:
                    y.register_hook(lambda _: of_last.append(ledger.peak))  # noqa: B023
                y = answer(compute, shard, y, group=group)
            note: dict[str, Any] = {"y": y.detach().clone(), "between": held(whole // 2 + 3 * len(own) * rows.nbytes)}
            mark("backward")
            note["needs"] = bool(y.requires_grad)
            for shard in own if number == 2 else ():
                shard.data.mul_(2)
            if number < 3 and y.requires_grad:
                y.square().sum().backward()
            gradients = [None if s.grad is None else s.grad.clone() for s in own] if number < 3 else []
            del y
            note |= {"after": held(whole // 2 + 3 * whole * len(own) // dist.get_world_size(group))}  # type: ignore[name-defined] # noqa: F821
        mark("done")
        note |= {"peak": ledger.peak, "last": max(of_last, default=0), "gradients": gradients}
        note["x"] = None if leaf.grad is None else leaf.grad.clone()
        notes.append(note)
        with torch.no_grad():
            for shard, gradient in zip(own, gradients):  # noqa: B905
                if number == 2:
                    shard.div_(2)
                elif gradient is not None and gradient.shape == shard.shape:
                    shard.sub_(0.02 * gradient)
    return notes


def _play(
    given: Given, divisor: int | None = None, alone: bool = False, stale: bool = False, tampered: bool = False
) -> list[dict[str, Any]]:
    """By rank, what each pass leads to, as messages name it; `tampered`: and the third step's gradients."""
    world = len(given)
    n = _num_ranks(world)
    found: list[dict[str, Any]] = [{} for _ in given]
    for members in [[0, 2], [1, 3]] if world == 4 else [list(range(world))]:
        weights = [torch.cat([given[r]["shards"][u] for r in members]).double() for u in range(_UNITS)]
        begin = weights
        for number, title in enumerate(_PASSES):
            grads, used = [], begin if stale else weights
            for rank in members:
                leaves = [unit.clone().requires_grad_() for unit in used]
                x = given[rank]["x"][number].double().requires_grad_()
                y = x
                for unit in leaves:
                    w, b = unit[: _WIDTH * _WIDTH].view(_WIDTH, _WIDTH), unit[_WIDTH * _WIDTH :][:_WIDTH]
                    y = torch.tanh(y @ w + b)
                *g, gx = torch.autograd.grad(y.square().sum(), (*leaves, x))
                grads.append(g)
                found[rank][title] = {"y": y.detach().float(), "x.grad": gx.float() if number == 1 else None}
            total = [torch.stack(of_unit).sum(0) / (divisor or n) for of_unit in zip(*grads, strict=True)]
            for place, rank in enumerate(members):
                whole = grads[place] if alone else total
                shards = [unit.view(n, -1)[place].float() for unit in whole]
                named = {f"shard.grad of unit {u}": s for u, s in enumerate(shards)}
                found[rank][title] |= named if number < (3 if tampered else 2) else {}
            rate = _RATE * (number < 2)
            weights = [unit - rate * gradient for unit, gradient in zip(weights, total, strict=True)]
    return found


def _right(case: Case, given: Given) -> list[Any]:
    return _play(given)


def _mistakes(case: Case, given: Given) -> list[Mistake]:
    n, world = _num_ranks(case.world_size), case.world_size
    ways: list[tuple[str, str, dict[str, Any]]] = [
        ("NOT-MEAN", "the gradients are added up over the ranks, and not divided by N", {"divisor": 1}),
        ("NOT-MEAN", "the gradients are divided by N twice", {"divisor": n * n}),
        ("STALE", "from the second step on the weights are those of the first: gather in each call", {"stale": True}),
    ]
    if n != world:
        text = "the sum over the group is divided by the number of all ranks, not of those in group"
        ways.insert(0, ("NOT-MEAN", text, {"divisor": world}))
    return [Mistake(f"DTL-VALUE-{code}", text, _play(given, **way)) for code, text, way in ways]


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """The outputs and gradients, then what was held, then where the weights of backward came from."""
    if found := _ONLY(case, given, record):
        return found
    if case.world_size == 4 and (all_ranks := next((e for e in record if e.group == "world"), None)):
        text = f"line {all_ranks.line} of rank {all_ranks.rank} calls {all_ranks.op} for all ranks: with `group`, the "
        return Finding("DTL-VALUE-GROUP-IGNORED", f"{text}shards and N are those of its ranks", all_ranks.rank)
    for rank, notes in enumerate(got):
        for title, note in zip(_STEPS, notes, strict=False):
            if not note["needs"] or all(g is None for g in note["gradients"]):
                what = "the output does not require a gradient" if not note["needs"] else "no shard has a gradient"
                text = f"rank {rank}, {title}: {what}: backward() from the output is to set shard.grad"
                return Finding("DTL-VALUE-NO-GRADIENTS", text, rank)
            there = [g is not None and bool(g.any()) for g in note["gradients"]]
            if there[-1] and not any(there[:-1]):
                is_none = all(g is None for g in note["gradients"][:-1])
                text = f"rank {rank}, {title}: the last unit has its shard.grad, and that of each unit before it is "
                text += (
                    f"{None if is_none else 0}: x, the output of the unit before, gets no gradient from your function"
                )
                return Finding("DTL-VALUE-NO-GRADIENTS", text, rank)
    named = []
    for notes in got:
        own: dict[str, Any] = {}
        for title, note in zip(_PASSES, notes, strict=True):
            gradients = {f"shard.grad of unit {u}": g for u, g in enumerate(note["gradients"])}
            own[title] = {"y": note["y"], "x.grad": note["x"], **(gradients if title != _STEPS[2] else {})}
        named.append(own)
    if found := compare(_VALUES, case, given, _right(case, given), named):
        first = [{_PASSES[0]: one[_PASSES[0]]} for one in _play(given, alone=True)]
        if not any(difference(a, {_PASSES[0]: b[_PASSES[0]]}, 1e-3, 1e-4) for a, b in zip(first, named, strict=True)):
            text = "shard.grad is of each rank's own gradient: the gradients of other ranks are missing in it"
            return Finding("DTL-VALUE-OWN-GRADIENT", text, 0)
        return rounded_in_messages(found, _right(case, given), named, record)
    return _memory(case, got) or _regathered(case, given, got, record)


def _memory(case: Case, got: list[Any]) -> Finding | None:
    n = _num_ranks(case.world_size)
    whole = 4 * n * max(_lengths(n))
    activations = 4 * 3 * _UNITS * _ROWS * _WIDTH
    for rank, notes in enumerate(got):
        for title, note in zip(_PASSES, notes, strict=True):
            where = f"rank {rank}, {title}"
            if note["between"] > whole // 2 + activations:
                text = (
                    f"{where}: after forward {note['between']:,} bytes are held. The weights of a unit are {whole:,}, "
                )
                text += f"the activations of all {_UNITS} at most {activations:,}: autograd or a list still has weights"
                return Finding("DTL-RULE-GATHERED-KEPT", text, rank)
            grads = 2 * whole * _UNITS // n if title in _STEPS else 0  # and the check's own copies of them
            if note["after"] > whole // 2 + grads + activations:
                text = f"{where}: at its end {note['after']:,} bytes are held, and the gradients of the shards are "
                text += (
                    f"{grads // 2:,} of them: full weights or full gradients, {whole:,} for each unit, are still there"
                )
                return Finding("DTL-RULE-GATHERED-KEPT", text, rank)
            if note["last"] > 5 * whole + activations:
                text = (
                    f"{where}: until the backward pass of the last unit is over up to {note['last']:,} bytes are held, "
                )
                text += f"and {whole:,} are the weights of a unit: those of others are gathered before they are needed"
                return Finding("DTL-RULE-GATHERED-KEPT", text, rank)
            if note["peak"] > 5 * whole + grads + activations:
                text = (
                    f"{where}: up to {note['peak']:,} bytes are held at once; {whole:,} are the weights of a unit. In "
                )
                text += "backward each unit's weights and full gradient are freed before the next unit begins"
                return Finding("DTL-RULE-GATHERED-KEPT", text, rank)
    return None


def _regathered(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Weights that come from somewhere else in backward, where the ledger does not look."""
    marked = steps_of(record, "forward backward done", [len(notes) for notes in got])
    if isinstance(marked, Finding):
        return marked
    for rank, steps in enumerate(marked):
        gathers = [e for e in record.select(rank=rank) if e.op.startswith("all_gather")]
        for title, marks in zip(_STEPS, steps, strict=False):
            begun, turned, done = (mark.came_ns for mark in marks)
            forward = sum(begun <= e.start_ns < turned for e in gathers)
            backward = sum(turned <= e.start_ns < done for e in gathers)
            needed = _UNITS - (title != _PASSES[1])  # x needs no gradient there: the first unit's weights are not read
            if forward < _UNITS or backward < needed:
                text = (
                    f"rank {rank}, {title}: {forward} all-gathers in forward and {backward} in backward, for {_UNITS} "
                )
                text += "units: the weights were kept somewhere, if not in tensors. Gather each unit in both"
                return Finding("DTL-RULE-NOT-REGATHERED", text, rank)
    for rank, (kept, notes) in enumerate(zip(_play(given, tampered=True), got, strict=True)):
        right = [kept[_STEPS[2]][f"shard.grad of unit {u}"] for u in range(_UNITS)]
        if not difference(right, notes[2]["gradients"], 1e-3, 1e-4):
            text = f"rank {rank}, {_STEPS[2]}: the shards had changed after forward, and backward computed with the "
            text += (
                "weights of before, which were kept somewhere, if not in tensors: what was gathered again is not used"
            )
            return Finding("DTL-RULE-NOT-REGATHERED", text, rank)
    return None


def why(case: Case, given: Given, record: Record) -> str:
    """Of a run that raised: what is special in it."""
    return f"{MAY_HELP}units follow one another, then comes backward(); the last pass is under torch.no_grad()"


def _sent(case: Case, given: Given) -> float:
    n = _num_ranks(case.world_size)
    return 10.0 * 4 * sum(_lengths(n)) * (n - 1)  # 3 in each step, 1 under no_grad


_ONLY = rules.only("all_gather", "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor")
_STRESS = Stress(poison=True)
_VALUES = Check(on_rank, inputs, _right, mistakes=_mistakes, rtol=1e-3, atol=1e-4, stress=_STRESS)
CHECK = Check(
    on_rank,
    inputs,
    None,
    verify=verify,
    why=why,
    rules=[most_sent(_sent, "two all-gathers and a reduce-scatter of each unit in a step, and one all-gather without")],
    reads=[no_stores],
    stress=_STRESS,
)
