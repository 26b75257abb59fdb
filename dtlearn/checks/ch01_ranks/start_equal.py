"""ch01.start_equal: the state of rank 0's model, parameters and buffers, in place on every rank.

One buffer is not in the model's `state_dict()`, as that of a cache or a mask: on the ranks it is made from "table". And
one parameter is frozen, as in fine-tuning.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, Mistake
from dtlearn.grading.judging.compare import compare
from dtlearn.runtime.record.record import Record
from dtlearn.runtime.words import ranks_text

# A small network: weight and bias of a layer, a BatchNorm's parameters and buffers, a last weight.
_SHAPES = {
    "0.weight": (5, 3),
    "0.bias": (5,),
    "1.weight": (5,),
    "1.bias": (5,),
    "1.running_mean": (5,),
    "1.running_var": (5,),
    "2.weight": (2, 5),
    "2.bias": (2,),
}
_TABLE = "2.table"  # a buffer with persistent=False
_COUNTER = "1.num_batches_tracked"
_FROZEN = "2.bias"
_KEPT = {"same parameters": True, "same buffers": True, "gradients": "as before"}
_BUFFERS = ("1.running_mean", "1.running_var", _COUNTER, _TABLE)


def inputs(case: Case) -> Given:
    given = []
    for rank in range(case.world_size):
        g = case.generator(rank)
        # Of some tensors rank 0 has the smallest numbers, of others the largest.
        shifts = {name: rank * (-1) ** number for number, name in enumerate(_SHAPES)}
        state = {name: torch.rand(shape, generator=g) + shifts[name] for name, shape in _SHAPES.items()}
        given.append({"state": {**state, _COUNTER: torch.tensor(10 * rank + 7), _TABLE: torch.rand(3, generator=g)}})
    return given


def on_rank(answer: Any, state: Any) -> Any:
    import torch.distributed as dist

    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 2))
    model[2].register_buffer("table", state["2.table"].clone(), persistent=False)
    model.load_state_dict({name: tensor for name, tensor in state.items() if name != "2.table"})
    model[2].bias.requires_grad_(False)
    parameters, buffers = list(map(id, model.parameters())), list(map(id, model.buffers()))
    before = [parameter.requires_grad for parameter in model.parameters()]
    answer(model)
    after = [parameter.requires_grad for parameter in model.parameters()]
    result = {**model.state_dict(), "2.table": model[2].table}
    if dist.get_world_size() == 1 and not all(torch.equal(result[name], tensor) for name, tensor in state.items()):
        return "other numbers"
    return {
        "same parameters": parameters == list(map(id, model.parameters())),
        "same buffers": buffers == list(map(id, model.buffers())),
        "gradients": "as before" if after == before else "on" if all(after) else "off",
        "state": result,
    }


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    return [{**_KEPT, "state": given[0]["state"]}] * case.world_size


def mistakes(case: Case, given: Given) -> list[Mistake]:
    n, first, states = case.world_size, given[0]["state"], [i["state"] for i in given]
    if n == 1:
        text = (
            "the numbers of the model changed, although there is one rank only: they are to be rank 0's, not new ones"
        )
        return [Mistake("DTL-VALUE-INVENTED", text, ["other numbers"]), *_replaced(given)]

    def mean(names: tuple[str, ...]) -> dict[str, Any]:
        average = {k: torch.stack([s[k].float() for s in states]).mean(0) for k in names}
        return {k: average[k].to(first[k].dtype) if k in names else first[k] for k in first}

    def everywhere(code: str, text: str, state: dict[str, Any]) -> list[Mistake]:
        """The same state on every rank: all of it, and all but the buffer that state_dict() leaves out."""
        rest = [{**_KEPT, "state": {**state, _TABLE: s[_TABLE]}} for s in states]
        text = f"the models are equal, but they are {text}"
        return [Mistake(code, text, [{**_KEPT, "state": state}] * n), Mistake(code, text, rest)]

    parameters = tuple(k for k in first if k not in _BUFFERS)
    summed = {k: torch.stack([s[k] for s in states]).sum(0) for k in first}
    smallest = {k: torch.stack([s[k] for s in states]).amin(0) for k in first}
    averaged = "the mean of all ranks' models and not that of rank 0"
    own = f"the models are equal, but they are {averaged}; the buffers are each rank's own"
    return [
        *everywhere("DTL-VALUE-AVERAGED", averaged, mean(tuple(first))),
        Mistake(
            "DTL-VALUE-AVERAGED",
            own,
            [{**_KEPT, "state": {**mean(parameters), **{k: s[k] for k in _BUFFERS}}} for s in states],
        ),
        *everywhere("DTL-VALUE-SOURCE", f"that of rank {n - 1}, not of rank 0", states[-1]),
        Mistake(
            "DTL-VALUE-STALE",
            "every rank still has its own model: nothing reached it",
            [{**_KEPT, "state": s} for s in states],
        ),
        Mistake(
            "DTL-VALUE-ONE-RANK",
            f"only rank 1 was given rank 0's model; {ranks_text(list(range(min(2, n - 1), n)))}: still their own",
            [{**_KEPT, "state": s if rank > 1 else first} for rank, s in enumerate(states)],
        ),
        *everywhere("DTL-VALUE-SUMMED", "the sum of all ranks' models and not that of rank 0", summed),
        *everywhere("DTL-VALUE-SMALLEST", "number by number the smallest of all ranks, not that of rank 0", smallest),
        *_replaced(given),
        *_forgotten(given),
    ]


def _replaced(given: Given) -> list[Mistake]:
    """Right numbers, in new tensors or with other flags."""
    found = []
    for parameters, buffers, gradients in product((True, False), (True, False), ("as before", "on", "off")):
        kept = {"same parameters": parameters, "same buffers": buffers, "gradients": gradients}
        code, text = "DTL-VALUE-REPLACED", "the buffers are new tensors: they are to be changed in place"
        if not parameters:
            text = "in new tensors: an optimizer made before would go on with the old ones"
        elif buffers:
            code, text = "DTL-VALUE-FROZEN", "the parameters no longer require gradients: the model cannot be trained"
            if gradients == "on":
                text = "a parameter that was frozen (requires_grad=False) now requires gradients"
        if kept != _KEPT:
            values = [{**kept, "state": given[0]["state"]}] * len(given)
            found.append(Mistake(code, f"the numbers are right, but {text}", values))
    return found


def _forgotten(given: Given) -> list[Mistake]:
    """Some tensors are each rank's own, the others those of rank 0."""
    first, found = given[0]["state"], []
    special = {
        _BUFFERS: (
            "DTL-VALUE-BUFFERS",
            "the parameters are equal, but every rank still has its own buffers (running_mean, running_var, ...)",
        ),
        (_COUNTER,): (
            "DTL-VALUE-BUFFERS",
            f"every rank still has its own {_COUNTER}, a buffer of whole numbers; all else is that of rank 0",
        ),
        (_TABLE,): (
            "DTL-VALUE-NOT-PERSISTENT",
            "a buffer is each rank's own that state_dict() leaves out: it was registered with persistent=False; "
            "model.buffers() has all of them",
        ),
        (_FROZEN,): (
            "DTL-VALUE-FORGOTTEN",
            f"every rank still has its own {_FROZEN}, a frozen parameter (requires_grad=False): it is not trained, but "
            "the model computes with it",
        ),
    }
    for number in range(1, len(first)):
        for names in combinations(first, number):
            text = f"every rank still has its own {', '.join(names)}; all else is that of rank 0"
            code, text = special.get(names, ("DTL-VALUE-FORGOTTEN", text))
            values = [{**_KEPT, "state": {**first, **{k: i["state"][k] for k in names}}} for i in given]
            found.append(Mistake(code, text, values))
    return found


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Compares. Of tensors that are each rank's own, the record may show that their numbers did arrive."""
    found = compare(_VALUES, case, given, expected(case, given), got)
    if found is None or found.code not in ("DTL-VALUE-FORGOTTEN", "DTL-VALUE-STALE", "DTL-VALUE-BUFFERS"):
        return found
    first, state = given[0]["state"], got[-1]["state"]
    own = [tensor for name, tensor in first.items() if not torch.equal(tensor, state[name])]
    flat, shapes = (sum(tensor.numel() for tensor in own),), [tensor.shape for tensor in first.values()]
    call = next((e for e in record if e.op == "broadcast" and e.shape == flat and flat not in shapes), None)
    if call is None:
        return found
    text = (
        f"{found.text}. Line {call.line} broadcasts one tensor of {flat[0]} numbers, as many as these have together: "
    )
    return replace(found, text=f"{text}they were never copied back into the model", line=call.line or None)


_VALUES = Check(on_rank, inputs, expected, mistakes=mistakes)
CHECK = replace(_VALUES, expected=None, verify=verify)
