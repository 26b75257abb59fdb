"""ch09.zero1_step: several steps of several optimizers; with the world as the group, and with pairs of ranks.

The optimizer class that an answer is given notes what it is built over. What a wrong answer leads to is computed with
torch's optimizers on whole vectors.
"""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, Mistake, Stress, compare
from dtlearn.runtime.record.record import Record

from ..rounded import rounded_in_messages
from ..sent import no_silent_rank, no_stores
from ..traffic import most_sent
from . import MAY_HELP
from ._wrong_steps import RIGHT, WAYS, play

_STEPS = 3
_STATE = {"SGD": 1, "Adam": 2, "AdamW": 2}  # tensors of state for each parameter; SGD has momentum here


def inputs(case: Case) -> Given:
    g, n = case.generator(), case.world_size
    jobs: list[list[dict[str, Any]]] = [[] for _ in range(n)]
    options: dict[str, list[dict[str, Any]]] = {
        "SGD": [{"lr": 0.5, "momentum": 0.9}, {"lr": 0.05, "momentum": 0.5, "weight_decay": 0.1}],
        "Adam": [{"lr": 0.1}, {"lr": 0.02, "betas": (0.5, 0.9)}, {"lr": 0.3, "weight_decay": 0.2}],
        "AdamW": [{"lr": 0.2, "weight_decay": 0.3}, {"lr": 0.03}],
    }
    pairs = [[0, 2], [1, 3]]
    kinds: list[tuple[str, list[list[int]]]] = [("SGD", []), ("Adam", [])]
    if n == 4:
        kinds = [("Adam", []), ("AdamW", pairs), ("SGD", pairs)]
    for name, members in [*kinds, ("Adam", [])]:
        size = len(members[0]) if members else n
        tiny = len(jobs[0]) == len(kinds)  # n + 1 parameters, so that the last shard is padding only
        length = n * (20 + int(torch.randint(9, (), generator=g)))  # so that it can be cut for all ranks, too
        padding = 0 if members and name == "SGD" else 1 + int(torch.randint(size - 1, (), generator=g))
        cuts = [0, int(torch.randint(5, 15, (), generator=g)), length // 2 + 3][: len(options[name])]
        length, padding, cuts = (2 * n, n - 1, [0, 1, 3]) if tiny else (length, padding, cuts)
        stops = [*cuts[1:], length - padding]
        groups = [{"start": a, "stop": b, **o} for a, b, o in zip(cuts, stops, options[name], strict=True)]
        flat = torch.randn(length, generator=g)
        flat[length - padding :] = 0
        for rank in range(n):
            gradients = [torch.randn(length, generator=g) * (1 + rank) for _ in range(_STEPS)]
            for gradient in gradients:
                gradient[length - padding :] = 0
            job = {"flat": flat, "groups": groups, "gradients": gradients, "optimizer": name, "members": members}
            job["most"] = (_STATE[name] + 2) * 4 * (length // size) + 64  # bytes between the steps, beside flat
            jobs[rank].append(job)
    return [{"jobs": own} for own in jobs]


def on_rank(answer: Any, jobs: Any) -> Any:
    import gc
    import time
    import weakref

    from dtlearn.memory.ledger.outside_torch import names_of_module, outside_torch
    from dtlearn.memory.ledger.storage_ledger import StorageLedger

    notes: list[Any] = []
    for job in jobs:
        group = None
        for members in job["members"]:
            made = dist.new_group(members)  # type: ignore[name-defined] # noqa: F821
            group = made if rank in members else group  # type: ignore[name-defined] # noqa: F821
        built: list[Any] = []
        base: Any = getattr(torch.optim, job["optimizer"])

        class Noted(base):
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)
                built.append(self)  # noqa: B023

        after: list[Any] = []
        with StorageLedger() as ledger:
            flat = job["flat"].clone()
            known = flat.nbytes
            step = answer(flat, [dict(one) for one in job["groups"]], Noted, group=group)
            for gradient in job["gradients"]:
                lent = gradient.clone()  # freed here, unless the answer keeps it; what it changes is changed above
                step(lent)
                gradient.copy_(lent)
                memory = weakref.ref(lent.untyped_storage())
                del lent
                after.append(flat.clone())
                known += flat.nbytes
            for tried in range(8):  # an asynchronous call lets go of its tensors a little later
                held = ledger.now - known
                if held <= job["most"]:
                    break
                if tried == 0:
                    gc.collect()
                time.sleep(0.02)
        states = [t for one in built for s in one.state.values() for t in s.values() if isinstance(t, torch.Tensor)]
        over = [sum(p.numel() for own in one.param_groups for p in own["params"]) for one in built]
        state = sum(t.numel() for t in states if t.dim())
        place = dist.get_rank(group)  # type: ignore[name-defined] # noqa: F821
        own_notes = {"flat": after, "over": over, "state": state, "held": held, "lent": memory() is not None}
        notes.append({**own_notes, "outside": [*outside_torch(step, *names_of_module("exercise"))], "place": place})
    return notes


def _shard(job: dict[str, Any], world_size: int) -> tuple[int, int]:
    """N and the elements of a shard."""
    size = len(job["members"][0]) if job["members"] else world_size
    return size, len(job["flat"]) // size


def _title(job: dict[str, Any], world_size: int) -> str:
    where = " in pairs of ranks" if job["members"] else ""
    where += "" if job["groups"][-1]["stop"] < len(job["flat"]) else ", without padding"
    where += ", and a shard that is padding only" if len(job["flat"]) == 2 * world_size else ""
    return f"{job['optimizer']} with {len(job['groups'])} groups{where}"


def _named(given: Given, world_size: int, flats: list[list[list[torch.Tensor]]]) -> list[dict[str, Any]]:
    """By rank: of each job, `flat` after each step."""
    titles = [_title(job, world_size) for job in given[0]["jobs"]]
    return [
        {
            title: {f"flat after step {k + 1}": f for k, f in enumerate(steps)}
            for title, steps in zip(titles, own, strict=True)
        }
        for own in flats
    ]


def expected(case: Case, given: Given) -> list[Any]:
    return _named(given, case.world_size, play(given, RIGHT))


def mistakes(case: Case, given: Given) -> list[Mistake]:
    return [
        Mistake(f"DTL-VALUE-{code}", text, _named(given, case.world_size, play(given, way))) for code, text, way in WAYS
    ]


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """What the optimizer was built over, the values, and what is held between the steps."""
    for rank, (i, notes) in enumerate(zip(given, got, strict=True)):
        for job, note in zip(i["jobs"], notes, strict=True):
            if wrong := _optimizer(_title(job, case.world_size), job, note, _shard(job, case.world_size)[1]):
                return Finding(*wrong, rank)
    named = _named(given, case.world_size, [[note["flat"] for note in notes] for notes in got])
    right = expected(case, given)
    if found := compare(_VALUES, case, given, right, named):
        return rounded_in_messages(found, right, named, record)
    for rank, (i, notes) in enumerate(zip(given, got, strict=True)):
        for job, note in zip(i["jobs"], notes, strict=True):
            title, elements = _title(job, case.world_size), _shard(job, case.world_size)[1]
            if few := _too_few(title, job, note, elements):
                return Finding(*few, rank)
            if len(job["flat"]) == 2 * case.world_size:  # of so few elements more may be kept
                continue
            sizes, kind, floats = note["outside"]
            if max(sizes[0], floats) >= 0.75 * len(job["flat"]):
                kept = f"an object of type {kind} with" if sizes[0] >= floats else "in several objects outside torch"
                text = f"{title}: between the steps rank {rank} keeps {kept} as many numbers as flat, "
                return Finding("DTL-RULE-WHOLE-KEPT", f"{text}{len(job['flat'])}: a shard has {elements}", rank)
            shard = 4 * elements
            if note["held"] > job["most"]:
                text = f"{title}: between the steps rank {rank} holds {note['held']:,} bytes "
                text += f"besides flat, which has {4 * len(job['flat']):,}; state and gradient of its shard are "
                text += f"{(_STATE[job['optimizer']] + 1) * shard:,}: "
                text += "the gradient that it was given" if note["lent"] else "something of full length"
                text += " is kept"
                return Finding("DTL-RULE-WHOLE-KEPT", text, rank)
    return None


def _optimizer(title: str, job: dict[str, Any], note: dict[str, Any], shard: int) -> tuple[str, str] | None:
    """What is wrong with the optimizers that were built: a code and what to say."""
    whole = len(job["flat"])
    if not note["over"] and _trained(job, note, shard) <= 0:
        return None  # there is nothing to update
    if not note["over"]:
        return "DTL-RULE-OPTIMIZER", f"{title}: optimizer_class was never called: it makes the optimizer"
    if len(note["over"]) > 1:
        text = f"{title}: {len(note['over'])} optimizers were built; one is, before the first step: a new one has lost "
        return "DTL-RULE-OPTIMIZER", f"{text}the momentum and the moments of the one before"
    if note["over"][0] > shard:
        text = f"{title}: the optimizer was built over {note['over'][0]} elements, and the shard has {shard} of "
        return "DTL-RULE-WHOLE-STATE", f"{text}{whole}: so its state is not divided"
    if note["state"] > _STATE[job["optimizer"]] * shard:
        text = f"{title}: the optimizer's state has {note['state']} elements; that of a shard of {shard} has "
        return "DTL-RULE-WHOLE-STATE", f"{text}{_STATE[job['optimizer']] * shard}"
    return None


def _trained(job: dict[str, Any], note: dict[str, Any], shard: int) -> int:
    """How many elements of this rank's shard are trained; less than 1: none."""
    return int(min(job["groups"][-1]["stop"], shard * (note["place"] + 1)) - shard * note["place"])


def _too_few(title: str, job: dict[str, Any], note: dict[str, Any], shard: int) -> tuple[str, str] | None:
    """An optimizer that cannot have made the update, though the values are right."""
    trained = _trained(job, note, shard)
    if trained <= 0:
        return None
    if note["over"][0] < trained or note["state"] < _STATE[job["optimizer"]] * trained:
        text = f"{title}: the optimizer was built over {note['over'][0]} elements, and has {note['state']} elements of "
        text += (
            f"state; {trained} elements of the shard are trained, with {_STATE[job['optimizer']] * trained} of state"
        )
        return "DTL-RULE-OPTIMIZER", f"{text}: it does not make the whole update"
    return None


def why(case: Case, given: Given, record: Record) -> str:
    """Of a run that raised: what is special in it."""
    text = f"{MAY_HELP}a group may have no element in a rank's shard, and where a shard is padding only, no group has. "
    text += "An optimizer takes an empty tensor, and no empty list"
    return f"{text}; with `group`, ranks and N are those of the group" if case.world_size == 4 else text


def _most(case: Case, given: Given) -> float:
    """2n (N-1)/N in each step."""
    total = 0.0
    for job in given[0]["jobs"]:
        size, shard = _shard(job, case.world_size)
        total += _STEPS * 2 * 4 * shard * (size - 1)
    return total


def _calls(case: Case) -> int:
    return _STEPS * (3 if case.world_size % 2 else 4)


_VALUES = Check(on_rank, inputs, expected, mistakes=mistakes, rtol=1e-4, atol=1e-5, stress=Stress(poison=True))
CHECK = Check(
    on_rank,
    inputs,
    None,
    verify=verify,
    why=why,
    calls=_calls,
    rules=[
        no_silent_rank(least_calls=lambda case, given: _calls(case)),
        most_sent(_most, "a reduce-scatter of the gradients and an all-gather of the shards"),
    ],
    reads=[no_stores],
    stress=Stress(poison=True),
)
