"""ch08.find_the_leak: what a loop computes; then, one kind in each case, what stays from step to step.

A ledger sees tensors. Graphs of autograd are counted by a token that each forward pass leaves in its graph, outputs by
weak references.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import mse_loss

from dtlearn.grading import Case, Check, Edit, Given

VALUES, CALLED, NOTHING = "values", "batches that the model was called with", "nothing"
STEPS, LR, INPUTS, HIDDEN, OUTPUTS = 6, 0.04, 2, 4, 3
# Per case: `look`, what is compared; `rows`, of a batch.
CASES: dict[str, dict[str, Any]] = {
    "what is computed": {"look": VALUES},
    "graphs of autograd": {
        "says": "the graph of each pass stays, with all that it keeps: a tensor with a grad_fn is in a list or in a "
        "sum that outlives the step. Take item(), or detach(), or work in torch.no_grad()",
        "look": "graphs that stay",
    },
    "gradients that were sent": {
        "says": "gradients that were sent stay in memory: the work of an asynchronous call holds its tensor as long as "
        "something holds the work, after wait() too",
        "look": "sent gradients that stay",
    },
    "outputs of the model": {
        "says": "the outputs of each batch stay in memory: a view such as a row keeps the memory of the whole tensor, "
        "clone() makes one with its own",
        "look": "outputs that stay",
    },
    "other tensors": {
        "says": "more bytes of tensors stay in each step than 64 and a row of samples: keep no tensors of a step but "
        "this row. A row of a copy is a view too, and keeps the whole copy",
        "look": "other tensors that stay",
    },
    "Python objects and NumPy arrays": {
        "says": "at most 3,000 bytes of Python objects and NumPy arrays may stay in each step: keep a copy of the "
        "first row of a batch's outputs. In NumPy, too, a row is a view of the whole array",
        "look": "Python objects and NumPy arrays that stay",
        "rows": 400,
    },
}
# `as_found` has most lines, too: each text has something that only the solution has.
EMPTY, WORK = "losses, smoothed, samples = [], [], []", "work = dist.all_reduce(flat, async_op=True)"
RATE, MEAN = f"lr=lr, momentum=0.9)\n    {EMPTY}", f" / dist.get_world_size()\n        {WORK}"
CALL = f"{EMPTY}\n    average = 0.0\n    for x, y in batches:\n        optimizer.zero_grad()\n        out = model"
ROW, STACKED = "samples.append(out.detach()[0].clone())", "torch.stack(samples)}\n    # END"
LOSS, SMOOTHED = f"losses.append(loss.item())\n        {ROW}", "smoothed.append(average)"
NO_GRAD = "with torch.no_grad():  # no backward pass frees what this would keep"
VALIDATION = "squared_error(model(validation[0]), validation[1]).item()"
AVERAGE = f"0.9 * average + 0.1 * {VALIDATION}"
STEP = f"optimizer.step()\n        {NO_GRAD}\n            average = {AVERAGE}\n"
EDITS = (
    Edit("every rank trains with the gradients of its own batches: the mean over the ranks is missing",
         {MEAN: f"\n        {WORK.replace('flat', 'flat.clone()')}"}),
    Edit("the gradients are divided by the number of ranks, but not added up over them",
         {WORK: WORK.replace("flat", "flat.clone()")}),
    Edit("the gradients are added up over the ranks, and not divided by their number", {MEAN: f"\n        {WORK}"}),
    Edit("the model is not trained: its parameters stay what they were",
         {STEP: STEP.removeprefix("optimizer.step()\n        ")}),
    Edit("the optimizer has lost its momentum", {RATE: RATE.replace(", momentum=0.9", "")}),
    *(Edit("the learning rate is a fixed number, whatever lr is", {RATE: RATE.replace("=lr", f"={rate}")})
      for rate in (0.1, 0.01)),
    Edit("the gradients of the step before are still in: a backward pass adds to p.grad",
         {CALL: CALL.replace("optimizer.zero_grad()", "pass")}),
    Edit("the validation loss is that of the model before the step; it belongs after it",
         {STEP: STEP.removeprefix("optimizer.step()\n        ") + "        optimizer.step()\n"}),
    Edit("smoothed has the validation losses themselves, not their moving average", {AVERAGE: VALIDATION}),
    Edit("the moving average begins at the first validation loss; it begins at 0",
         {AVERAGE: AVERAGE.replace("average", f"(average if smoothed else {VALIDATION})")}),
    Edit("the moving average takes 0.9 of the new loss and 0.1 of the average: it is the other way round",
         {AVERAGE: f"0.1 * average + 0.9 * {VALIDATION}"}),
    Edit("smoothed has the moving average of the training losses",
         {AVERAGE: AVERAGE.replace(VALIDATION, "loss.item()")}),
    Edit("losses has the loss of each batch after the step; it belongs before it",
         {LOSS: ROW, SMOOTHED: f"{SMOOTHED}\n        losses.append(squared_error(model(x), y).item())"}),
    Edit("samples has the last row of each batch's output; the first one is expected",
         {ROW: ROW.replace("[0]", "[-1]")}),
    Edit("samples has the output of the last step in every row",
         {STACKED: STACKED.replace("samples", "samples[-1:] * len(samples)")}),
    Edit("samples has the mean of each batch's outputs; its first row is expected",
         {ROW: ROW.replace("[0].clone()", ".mean(0)")}),
    Edit("samples has the outputs of the model after the step, not those of the step",
         {ROW: "pass", SMOOTHED: f"{SMOOTHED}\n        samples.append(model(x).detach()[0].clone())"}),
    Edit("the model itself is not called with each batch's x: call model(x), not model.forward(x) or its layers. What "
         "stays in memory is measured at these calls", {CALL: f"{CALL}.forward"}),
    Edit("the graph of each training pass stays, with all that it keeps: a tensor with a grad_fn is in a list or in a "
         "sum that outlives the step. Take item(), or detach()",
         {LOSS: f"losses.append(loss)\n        {ROW}",
          f'{{"losses": losses, "smoothed": smoothed, "samples": {STACKED}':
          f'{{"losses": [x.item() for x in losses], "smoothed": smoothed, "samples": {STACKED}'}),
    Edit("the graph of each validation pass stays, with all that it keeps: a tensor with a grad_fn is in a list or in "
         "a sum that outlives the step. Take item(), or detach(), or work in torch.no_grad()",
         {NO_GRAD: "if True:", AVERAGE: AVERAGE.removesuffix(".item()"), SMOOTHED: "smoothed.append(average.item())"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, given = case.generator(), list[dict[str, Any]]()
    shapes = {"0.weight": (HIDDEN, INPUTS), "0.bias": (HIDDEN,), "2.weight": (OUTPUTS, HIDDEN), "2.bias": (OUTPUTS,)}
    weights = {name: 0.3 * torch.randn(shape, generator=g) for name, shape in shapes.items()}
    for _ in range(case.world_size):
        pairs = [
            [torch.randn(rows, INPUTS, generator=g), torch.randn(rows, OUTPUTS, generator=g)]
            for rows in (*[case.params.get("rows", 16)] * STEPS, 8)
        ]
        own = {"weights": weights, "batches": pairs[:-1], "validation": pairs[-1]}
        given.append({**own, "lr": LR, "look": case.params["look"]})
    return given


def on_rank(answer: Any, weights: Any, batches: Any, validation: Any, lr: float, look: str) -> Any:
    import contextlib
    import gc
    import sys
    import time
    import weakref
    from collections import Counter

    from dtlearn.memory.ledger.ledger import MemoryLedger
    from dtlearn.memory.ledger.outside_torch import bytes_by_variable

    class Token:
        """An object that a graph holds, and that is freed with it."""

    class Mark(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.token = Token()
            passes.append([*calls[-1], weakref.ref(ctx.token), weakref.ref(x.untyped_storage())])
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient

    layers = [torch.nn.Linear(*weights[name].shape[::-1]) for name in ("0.weight", "2.weight")]
    model = torch.nn.Sequential(layers[0], torch.nn.Tanh(), layers[1])
    model.load_state_dict(weights)
    own, steps, most = sys.modules["exercise"].__file__, len(batches), 64 + weights["2.bias"].nbytes
    sent, kind = "sent gradients", look.removesuffix(" that stay")
    places = {x.data_ptr(): step for step, (x, _) in enumerate(batches)}
    calls, passes, seen = [], [], {}  # type: list[Any], list[Any], dict[int, Counter[tuple[str, str]]]

    def tensors() -> Counter[tuple[str, str]]:
        sizes, record = Counter[tuple[str, str]](), ledger and ledger.record()
        for one in record.at(record.clock) if record else ():
            of = sent if one.category in ("communication", "gradients") else "other tensors"
            sizes[of, f"made in line {one.line.rpartition(':')[2] or '?'}"] += one.bytes
        for step, line, token, storage in passes:
            if token() is not None:
                sizes["graphs", f"those of {'training' if step >= 0 else 'validation'} passes"] += 1
            elif storage() is not None and storage().nbytes() > most:
                sizes["outputs", f"made in line {line}"] += storage().nbytes()
                sizes["other tensors", f"made in line {line}"] -= storage().nbytes()
        return sizes

    def before(module: Any, args: Any) -> None:
        frame, step = sys._getframe(1), places.get(args[0].data_ptr(), -1)
        while frame.f_back and frame.f_code.co_filename != own:
            frame = frame.f_back
        calls.append((step, frame.f_lineno))
        if step in (2, steps - 1) and step not in seen and look != "values":
            gc.collect()
            seen[step] = tensors()
            for pause in (0.02, 0.1, 0.3):  # a thread of gloo lets go of what was sent when it gets a processor
                if sum((seen[step] - seen.get(2, seen[step]))[key] for key in seen[step] if key[0] == sent) <= most:
                    break
                time.sleep(pause)
                seen[step] = tensors()
            if look.startswith("Python"):
                held = bytes_by_variable(frame, "exercise")
                seen[step].update({(kind, f"in {name}"): size for name, size in held.items()})

    model.register_forward_pre_hook(before)
    model.register_forward_hook(lambda module, args, out: Mark.apply(out))
    gc.freeze()  # so to collect garbage takes no time
    is_heavy = kind in (sent, "other tensors")  # a ledger slows every operation
    with MemoryLedger(model, inputs=(batches, validation)) if is_heavy else contextlib.nullcontext() as ledger:
        result = answer(model, [tuple(pair) for pair in batches], tuple(validation), lr)
    gc.unfreeze()
    if look == "values":
        if not isinstance(result, dict):
            return result
        result = {name: one.detach() if isinstance(one, torch.Tensor) else one for name, one in result.items()}
        called = len({step for step, _ in calls if step >= 0})
        parameters = [p.detach() for p in model.parameters()]
        return {**result, "parameters": parameters, "batches that the model was called with": called}
    if len(seen) < 2:
        return {look: "not known: the model is not called with each batch's x"}
    first, last = seen[2], seen[steps - 1]
    grown = {key: (last[key] - first[key]) / (steps - 3) for key in {*first, *last}}
    graphs = [place for (of, place), more in grown.items() if of == "graphs" and more > 0]
    if kind == "graphs" or (kind == "other tensors" and graphs):  # what a graph keeps is no leak of its own
        return {look: " and ".join(sorted(graphs)) if kind == "graphs" and graphs else "nothing"}
    total = sum(more for key, more in grown.items() if key[0] == kind)
    where = " and ".join(place for (of, place), more in grown.items() if of == kind and more > total / 10)
    is_leak = total > (3_000 if kind.startswith("Python") else most)
    return {look: f"{total:,.0f} bytes a step, {where}" if is_leak else "nothing"}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """The results of one process in float64, with the batches of all ranks."""
    if case.params["look"] != VALUES:
        return [{case.params["look"]: NOTHING}] * case.world_size
    layers = torch.nn.Linear(INPUTS, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, OUTPUTS)
    model = torch.nn.Sequential(*layers).double()
    model.load_state_dict(given[0]["weights"])
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)
    results: list[dict[str, Any]] = [{"losses": [], "smoothed": [], "samples": []} for _ in given]
    for step in range(STEPS):
        optimizer.zero_grad()
        for own, one in zip(given, results, strict=True):
            x, y = (tensor.double() for tensor in own["batches"][step])
            out = model(x)
            loss = mse_loss(out, y)
            (loss / case.world_size).backward()
            one["losses"].append(loss.item())
            one["samples"].append(out[0].detach().float())
        optimizer.step()
        for own, one in zip(given, results, strict=True):
            x, y = (tensor.double() for tensor in own["validation"])
            last = one["smoothed"][-1] if one["smoothed"] else 0.0
            one["smoothed"].append(0.9 * last + 0.1 * mse_loss(model(x), y).item())
    parameters = [p.detach().float() for p in model.parameters()]
    return [{**one, "samples": torch.stack(one["samples"]), "parameters": parameters, CALLED: STEPS} for one in results]


ONE, ZERO = torch.ones(1, 1), torch.zeros(1)
WEIGHTS = {"0.weight": ONE, "0.bias": ZERO, "2.weight": ONE, "2.bias": ZERO}
EXAMPLE = {"weights": WEIGHTS, "batches": [[ONE, ONE], [-ONE, ONE]], "validation": [ONE, ONE], "lr": 0.1}
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{**EXAMPLE, "look": VALUES}],
    rtol=1e-3,
    atol=1e-4,
)
