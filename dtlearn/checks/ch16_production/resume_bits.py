"""ch16.resume_bits: a job that is stopped after step 4 beside the same one that is not, part by part.

What is expected are no numbers of a reference but equality: each rank trains twice, and the two have the same bits; so
does the job that was saved, which trains on. `dtlearn.production.practice` has the job. It is loaded by a class that is
made anew from the answer's text, as in a new process.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from dtlearn.grading import Case, Check, Edit, Given
from dtlearn.runtime.record.record import Record

from . import MAY_HELP

PLAIN: dict[str, Any] = {"momentum": 0.0}
STOP, END = 4, 8  # steps: after which a job is saved, and after which it ends
# Per case: `options` of `PracticeJob`; `more`, steps that are made after `save` and before its files are written.
CASES: dict[str, dict[str, Any]] = {
    "plain SGD": {},
    "momentum": {
        "says": "SGD with momentum goes on with the mean of earlier gradients: the optimizer has a state",
        "options": {"momentum": 0.9},
    },
    "a schedule of the learning rate": {
        "says": "the scheduler counts steps: begun anew it lowers the learning rate at other ones",
        "options": {"decay": 0.5},
    },
    "a loss scale": {
        "says": "the scaler has found a scale: with its first one, steps are left out again after an overflow",
        "options": {"float16": True},
    },
    "shuffled samples": {
        "says": "the sampler is at a place in an epoch: begun anew it gives samples a second time",
        "options": {"batch": 4, "shuffle": True},
    },
    "dropout": {
        "says": "dropout goes on with other masks: each rank's generator of torch has a state of its own",
        "options": {"dropout": 0.5},
    },
    "random flips": {
        "says": "Python's random goes on with other numbers: each rank's has a state of its own",
        "options": {"flips": True},
    },
    "error feedback": {
        "says": "what a rank has not sent yet is lost, or another rank's: each has a residual of its own",
        "options": {"topk": 0.2},
    },
    "training goes on before the files are written": {
        "says": "what save() returned changes while training goes on: return copies, also of what is inside",
        **{"options": {"momentum": 0.9, "topk": 0.2}, "more": 2},
    },
}
ALIKE, COPY = '("model", "optimizer", "scheduler", "scaler", "sampler")', "return copy.deepcopy((shared, own))"
SAVED_STEP, STEP = '        shared["step"] = job.step\n', '        job.step = shared["step"]\n'
RESIDUAL, TORCH, PYTHON = (
    '        job.residual = own["residual"]\n',
    '        torch.set_rng_state(own["torch"])\n',
    '        random.setstate(own["python"])\n',
)
LOAD = "            getattr(job, name).load_state_dict(shared[name])\n"


def common(name: str) -> dict[str, str]:
    """What is each rank's own, saved once for all."""
    return {COPY: f'shared["{name}"] = own.pop("{name}")\n        {COPY}', f'own["{name}"]': f'shared["{name}"]'}


EDITS = (
    Edit("the model is not saved: the new job begins with weights of its own", {ALIKE: ALIKE.replace('"model", ', "")}),
    Edit("the parameters come back, and the buffers of the model do not: model.state_dict() has both",
         {LOAD: LOAD.replace("(shared[name])", '({**shared[name], "average": job.model.average} '
                                               'if name == "model" else shared[name])')}),
    Edit("the number of steps is not restored: the new job makes them once more", {STEP: ""}),
    Edit("save() changes the job, which trains on",
         {COPY: "both = copy.deepcopy((shared, own))\n        job.residual.zero_()\n        "
                "job.optimizer.state.clear()\n        return both"}),
    Edit("save() draws from a generator, or seeds it: the job that trains on draws other masks",
         {COPY: f"own['order'] = torch.rand(2)\n        {COPY}"}),
    Edit("`own` has what all ranks have alike: 1000 ranks would write it 1000 times",
         {COPY: 'own["shared"] = shared\n        return copy.deepcopy(({}, own))',
          '        """Make a new job what the saved one was."""\n': '        shared = own["shared"]\n'}),
    Edit("the optimizer is not saved: its momentum begins with 0", {ALIKE: ALIKE.replace('"optimizer", ', "")}),
    Edit("the scheduler is not saved: it begins to count anew", {ALIKE: ALIKE.replace('"scheduler", ', "")}),
    Edit("the loss scale is not saved: it begins with its first value", {ALIKE: ALIKE.replace('"scaler", ', "")}),
    Edit("the sampler is not saved: the epoch begins anew", {ALIKE: ALIKE.replace(', "sampler"', "")}),
    Edit("of the sampler the epoch is saved, and not the place in it",
         {LOAD: LOAD.replace("(shared[name])", '({**shared[name], "position": 0} '
                                               'if name == "sampler" else shared[name])')}),
    Edit("the state of torch's generator is not restored: dropout draws other masks", {TORCH: ""}),
    Edit("torch's generator is restored on all ranks from rank 0: all of them draw the same masks", common("torch")),
    Edit("the generator is seeded with the step: that gives masks, but not those that would have come",
         {TORCH: TORCH.replace('set_rng_state(own["torch"])', "manual_seed(job.step)")}),
    Edit("the state of Python's generator is not restored", {PYTHON: ""}),
    Edit("Python's generator is restored on all ranks from rank 0: all of them draw the same flips", common("python")),
    Edit("the residual is not restored: what was not sent yet is lost", {RESIDUAL: ""}),
    Edit("rank 0's residual is given to all ranks: each has its own", common("residual")),
    Edit("what is returned are the job's own tensors, which training changes: copy them",
         {COPY: "return shared, own"}),
    Edit("the dicts are copied, and the tensors inside are not: copy.deepcopy, or clone() of each",
         {COPY: "return {**shared}, {**own, 'residual': job.residual.clone()}"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, p = case.generator(), case.params
    options, more = p.get("options", PLAIN), p.get("more", 0)
    truth = torch.randn(3, generator=g)
    given = []
    for rank in range(case.world_size):
        x = torch.randn(14, 3, generator=g)
        y = x @ truth + torch.randn(14, generator=g)
        given.append({"x": x, "y": y, "options": options, "stop": STOP, "more": more, "end": END, "seed": 10 + rank})
    return given


def on_rank(answer: Any, x: Any, y: Any, options: Any, stop: int, more: int, end: int, seed: int) -> Any:
    import io
    import pickle
    import random

    from dtlearn.production.practice.job import PracticeJob, PracticeOptions
    from dtlearn.production.practice.saved import alike_and_changed, defined_anew

    def begin(parameters: int, generators: int) -> Any:  # a new process
        torch.manual_seed(generators)
        random.seed(generators)
        return PracticeJob(x, y, PracticeOptions(**options), parameters)

    def through_a_file(state: Any, writer: Any = None) -> Any:
        file = io.BytesIO()
        torch.save(state, file)
        data = [file.getvalue()]
        if writer is not None:
            dist.broadcast_object_list(data, src=writer)
        try:
            return torch.load(io.BytesIO(data[0]), weights_only=True)
        except pickle.UnpicklingError:
            plain = "numbers, texts, tensors, and dicts, lists and tuples of these"
            raise TypeError(f"save() returned more than {plain}: torch.load(weights_only=True) refuses it") from None

    whole = begin(0, seed)
    losses = whole.train(end)
    stopped = begin(0, seed)
    if (first := answer().save(stopped)) is None:
        return None
    first = through_a_file(first[1])
    stopped.train(stop)
    shared, own = answer().save(stopped)
    on = stopped.train(stop + more)
    shared, own = through_a_file(shared, 0), through_a_file(own)
    on += stopped.train(end)
    resumed = begin(1, seed + 100)
    defined_anew(answer)().load(resumed, shared, own)
    again = resumed.train(end)
    print(f"losses without a stop {[round(loss, 4) for loss in losses]}")
    print(f"after the stop        {' ' * 8 * stop}{[round(loss, 4) for loss in again]}")
    parameters = [torch.nn.utils.parameters_to_vector(job.model.parameters()).detach() for job in (whole, resumed)]
    return {
        "steps after the stop": len(again),
        "losses, less those without a stop": [b - a for a, b in zip(losses[stop:], again, strict=False)],
        "largest difference of a parameter": float((parameters[0] - parameters[1]).abs().max()),
        "largest difference in the average": float((whole.model.average - resumed.model.average).abs().max()),
        "losses of the saved job, less those without a stop": [b - a for a, b in zip(losses[stop:], on, strict=True)],
        "own has, alike on all ranks": ", ".join(alike_and_changed(first, own)) or "nothing",
    }


def expected(case: Case, given: Given) -> list[Any]:
    right = {
        "steps after the stop": END - STOP,
        "losses, less those without a stop": [0.0] * (END - STOP),
        "largest difference of a parameter": 0.0,
        "largest difference in the average": 0.0,
        "losses of the saved job, less those without a stop": [0.0] * (END - STOP),
        "own has, alike on all ranks": "nothing",
    }
    return [right] * case.world_size


def why(case: Case, given: Given, record: Record) -> str:
    return f"{MAY_HELP}{case.says}" if case.says else ""


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    edits_at_once=3,
    why=why,
    rtol=0.0,
    atol=0.0,
    seconds=20.0,
)
