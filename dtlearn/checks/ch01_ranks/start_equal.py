"""ch01.start_equal: the state of rank 0's model, parameters and buffers, in place on every rank.

One buffer is not in the model's `state_dict()`, as that of a cache or a mask: on the ranks it is made from "table".
"""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Given, Mistake

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
_KEPT = {"same parameters": True, "same buffers": True, "trainable": True}
_BUFFERS = ("1.running_mean", "1.running_var", _COUNTER, _TABLE)


def inputs(case: Case) -> Given:
    given = []
    for rank in range(case.world_size):
        g = case.generator(rank)
        state = {name: torch.rand(shape, generator=g) + rank for name, shape in _SHAPES.items()}
        given.append({"state": {**state, _COUNTER: torch.tensor(10 * rank + 7), _TABLE: torch.rand(3, generator=g)}})
    return given


def on_rank(answer: Any, state: Any) -> Any:
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 2))
    model[2].register_buffer("table", state["2.table"].clone(), persistent=False)
    model.load_state_dict({name: tensor for name, tensor in state.items() if name != "2.table"})
    parameters, buffers = list(map(id, model.parameters())), list(map(id, model.buffers()))
    answer(model)
    return {
        "same parameters": parameters == list(map(id, model.parameters())),
        "same buffers": buffers == list(map(id, model.buffers())),
        "trainable": all(parameter.requires_grad for parameter in model.parameters()),
        "state": {**model.state_dict(), "2.table": model[2].table},
    }


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    return [{**_KEPT, "state": given[0]["state"]}] * case.world_size


def mistakes(case: Case, given: Given) -> list[Mistake]:
    first, states = given[0]["state"], [i["state"] for i in given]
    optimizer = "the numbers are right, but in new tensors: an optimizer made before would go on with the old ones"
    new_buffers = "the numbers are right, but the buffers are new tensors: they are to be changed in place"
    frozen = "the numbers are right, but the parameters no longer require gradients: the model cannot be trained"
    replaced = [
        Mistake(code, text, [{**_KEPT, **change, "state": first}] * case.world_size)
        for code, text, change in (
            ("DTL-VALUE-REPLACED", optimizer, {"same parameters": False}),
            ("DTL-VALUE-REPLACED", optimizer, {"same parameters": False, "same buffers": False}),
            ("DTL-VALUE-REPLACED", optimizer, {"same parameters": False, "same buffers": False, "trainable": False}),
            ("DTL-VALUE-REPLACED", new_buffers, {"same buffers": False}),
            ("DTL-VALUE-FROZEN", frozen, {"trainable": False}),
        )
    ]
    if case.world_size == 1:
        return replaced

    def mixed(take_own: tuple[str, ...]) -> list[dict[str, Any]]:
        return [{**_KEPT, "state": {k: s[k] if k in take_own else first[k] for k in first}} for s in states]

    def mean(names: tuple[str, ...]) -> dict[str, Any]:
        average = {k: torch.stack([s[k].float() for s in states]).mean(0) for k in names}
        return {k: average[k].to(first[k].dtype) if k in names else first[k] for k in first}

    def everywhere(code: str, text: str, state: dict[str, Any]) -> list[Mistake]:
        """The same state on every rank: all of it, and all but the buffer that state_dict() leaves out."""
        rest = [{**_KEPT, "state": {**state, _TABLE: s[_TABLE]}} for s in states]
        return [Mistake(code, text, [{**_KEPT, "state": state}] * case.world_size), Mistake(code, text, rest)]

    own = "the parameters are equal, but every rank still has its own buffers (running_mean, running_var, ...)"
    averaged = "the models are equal, but they are the mean of all ranks' models and not that of rank 0"
    parameters = tuple(k for k in first if k not in _BUFFERS)
    summed = {k: torch.stack([s[k] for s in states]).sum(0) for k in first}
    return [
        Mistake("DTL-VALUE-BUFFERS", own, mixed(_BUFFERS)),
        Mistake("DTL-VALUE-BUFFERS", own.replace("(", "but the counter ("), mixed((_COUNTER,))),
        Mistake(
            "DTL-VALUE-NOT-PERSISTENT",
            "a buffer is each rank's own that state_dict() leaves out: it was registered with persistent=False; "
            "model.buffers() has all of them",
            mixed((_TABLE,)),
        ),
        *everywhere("DTL-VALUE-AVERAGED", averaged, mean(tuple(first))),
        Mistake(
            "DTL-VALUE-AVERAGED",
            f"{averaged}; the buffers are each rank's own",
            [{**_KEPT, "state": {**mean(parameters), **{k: s[k] for k in _BUFFERS}}} for s in states],
        ),
        *everywhere(
            "DTL-VALUE-SOURCE",
            f"the models are equal, but they are that of rank {case.world_size - 1}, not of rank 0",
            states[-1],
        ),
        Mistake(
            "DTL-VALUE-STALE",
            "every rank still has its own model: nothing reached it",
            [{**_KEPT, "state": s} for s in states],
        ),
        *everywhere(
            "DTL-VALUE-SUMMED",
            "the models are equal, but they are the sum of all ranks' models and not that of rank 0",
            summed,
        ),
        *replaced,
    ]


CHECK = Check(on_rank, inputs, expected, mistakes=mistakes)
