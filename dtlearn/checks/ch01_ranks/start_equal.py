"""ch01.start_equal: the state of rank 0's model, in place on every rank: parameters, then each kind of buffer.

The whole numbers are beyond what a float can hold. The table is left out of the model's `state_dict()`, as a cache or a
mask may be.
"""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given

# What the model has beside the parameters of two layers.
CASES: dict[str, dict[str, Any]] = {
    "parameters alone": {"says": "on every rank the numbers are expected that rank 0's model had before the call"},
    "a frozen parameter": {
        "says": "a frozen parameter (requires_grad=False) is computed with, too: rank 0's is expected",
        "frozen": ["1.bias"],
    },
    "a buffer": {
        "says": "buffers are state, too: the running mean of a BatchNorm is computed with, and has no gradient",
        "buffers": ["running_mean"],
    },
    "a buffer of whole numbers": {
        "says": "whole numbers are sent as what they are: a float32 holds them up to 2**24 only, a float64 to 2**53",
        "buffers": ["counter"],
    },
    "a buffer that state_dict() leaves out": {
        "says": "a buffer may be registered with persistent=False: state_dict() leaves it out, model.buffers() has it",
        "buffers": ["table"],
    },
}
PARAMETER, PARAMETERS = "dist.broadcast(parameter.detach(), src=0)", "for parameter in model.parameters():"
BUFFER, BUFFERS = "dist.broadcast(buffer, src=0)", "    for buffer in model.buffers():"
FROM_LAST, LISTED = "src=dist.get_world_size() - 1", "[b for n, b in model.named_buffers() if n in model.state_dict()]"
MEAN = "mean = {0}.detach().double(); dist.all_reduce(mean); {0}.detach().copy_(mean / dist.get_world_size())"
COPY = "dist.broadcast({}.detach().clone(), src=0)"
EDITS = (
    Edit("a buffer of whole numbers was sent as floats: 2**60 + 7 comes back as 2**60",
         {BUFFER: "sent = buffer.float(); dist.broadcast(sent, src=0); buffer.copy_(sent)"}),
    Edit("every rank still has its own model: what rank 0 sends arrives in copies",
         {PARAMETER: COPY.format("parameter"), BUFFER: COPY.format("buffer")}),
    Edit("every rank still has its own parameters: what arrives in a copy, or in one flat tensor, has to be copied "
         "back into the model", {PARAMETER: COPY.format("parameter")}),
    Edit("the models are equal, but they are that of the last rank, not of rank 0",
         {PARAMETER: PARAMETER.replace("src=0", FROM_LAST), BUFFER: BUFFER.replace("src=0", FROM_LAST)}),
    Edit("the models are equal, but they are the mean of all ranks' models and not that of rank 0",
         {PARAMETER: MEAN.format("parameter"), BUFFER: MEAN.format("buffer")}),
    Edit("the models are equal, but they are the sum of all ranks' models and not that of rank 0",
         {PARAMETER: "dist.all_reduce(parameter.detach())", BUFFER: "dist.all_reduce(buffer)"}),
    Edit("every rank still has its own biases: only the weights are sent",
         {PARAMETERS: "for name, parameter in model.named_parameters():",
          PARAMETER: f'_ = {PARAMETER} if "weight" in name else None'}),
    Edit("only the first layer of the model is sent: the others have parameters, too",
         {PARAMETERS: "for parameter in model[0].parameters():"}),
    Edit("the numbers are right, but in new parameters: an optimizer made before would go on with the old ones",
         {BUFFERS: "    fresh = {n: p.detach().clone() for n, p in model.named_parameters()}\n"
                   f"    model.load_state_dict(fresh, strict=False, assign=True)\n{BUFFERS}"}),
    Edit("the parameters no longer require gradients: the model cannot be trained",
         {PARAMETER: f"parameter.requires_grad_(False); {PARAMETER}"}),
    Edit("every rank still has its own frozen parameter (requires_grad=False): it is not trained, but the model "
         "computes with it", {PARAMETER: f"_ = {PARAMETER} if parameter.requires_grad else None"}),
    Edit("a parameter that was frozen (requires_grad=False) now requires gradients",
         {PARAMETER: f"parameter.requires_grad_(True); {PARAMETER}"}),
    Edit("the numbers are right, but the buffers are new tensors: they are to be changed in place",
         {BUFFER: "new = buffer.clone(); dist.broadcast(new, src=0); [m._buffers.update({n: new}) "
                  "for m in model.modules() for n, b in m._buffers.items() if b is buffer]"}),
    Edit("every rank still has its own buffers of whole numbers: only floating-point numbers are sent",
         {BUFFER: f"_ = {BUFFER} if buffer.is_floating_point() else None"}),
    Edit("a buffer is each rank's own that state_dict() leaves out: it was registered with persistent=False; "
         "model.buffers() has all of them",
         {BUFFERS: BUFFERS.replace("model.buffers()", LISTED)}),
    Edit("the parameters are equal, but every rank still has its own buffers (running_mean, running_var, ...)",
         {BUFFER: "pass"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    given = []
    for rank in range(case.world_size):
        g, state = case.generator(rank), dict[str, torch.Tensor]()
        for name, shape in {"0.weight": (2, 1), "0.bias": (2,), "1.weight": (1, 2), "1.bias": (1,)}.items():
            state[name] = torch.rand(shape, generator=g) + rank
        for name in case.params.get("buffers", ()):
            whole = torch.tensor(2**60 + 7 + 10 * rank)
            state[f"1.{name}"] = whole if name == "counter" else torch.rand(2, generator=g) + rank
        given.append({"state": state, "frozen": case.params.get("frozen", [])})
    return given


def on_rank(answer: Any, state: Any, frozen: Any) -> Any:
    model = torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.Linear(2, 1))
    for name in [name for name in state if name not in dict(model.named_parameters())]:
        model[1].register_buffer(name[2:], state[name].clone(), persistent=name != "1.table")
    for name, parameter in model.named_parameters():
        parameter.data.copy_(state[name])
        parameter.requires_grad_(name not in frozen)
    before = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    answer(model)
    after = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    kept = {name: tensor is before[name] for name, tensor in after.items()}
    return {
        "state": {name: tensor.detach() for name, tensor in after.items()},
        "requires_grad": {name: parameter.requires_grad for name, parameter in model.named_parameters()},
        "the tensors that it had": kept,
    }


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    state, frozen = given[0]["state"], given[0]["frozen"]
    trained = {name: name not in frozen for name in ("0.weight", "0.bias", "1.weight", "1.bias")}
    kept = dict.fromkeys(state, True)
    return [{"state": state, "requires_grad": trained, "the tensors that it had": kept}] * case.world_size


CHECK = Check(on_rank, inputs, expected, cases=CASES, edits=EDITS)
