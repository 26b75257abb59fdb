"""ch08.checkpoint: a chain of functions, each in a checkpoint, beside the same chain without.

The functions are the check's own: they note when they run and what they draw. The gradient of `again`, which is 0 and
changes nothing, tells of which run backward gets what was saved. All is float64, and no sum over ranks is in it, so the
results are the same to some 1e-15 at any seed; with several ranks each function waits for the others in an all_reduce.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist

from dtlearn.grading import Case, Check, Edit, Finding, Given
from dtlearn.memory.ledger.storage_ledger import StorageLedger
from dtlearn.memory.recomputation.checkpoint import checkpoint
from dtlearn.runtime.record.record import Record

from ..own_work import find_forbidden

SEGMENTS, ROWS, WIDTH, HIDDEN = 3, 128, 8, 64
VALUES = [
    "requires a gradient",
    "an answer of your own runs the function",
    "the result",
    "gradients",
    "runs in forward",
    "runs in backward",
]
# Per case: `leaf`, whether x requires a gradient; `others`, the other inputs, and which of them require one; what
# else the function does; `look`, what else is compared.
CASES: dict[str, dict[str, Any]] = {
    "a chain of functions": {},
    "no input requires a gradient": {
        "says": "no input of a function may require a gradient: its parameters do, and need theirs all the same",
        "leaf": False,
        "look": ["requires_grad of the inputs"],
    },
    "numbers and None among the inputs": {
        "says": "an input may be a tensor of any dtype, with or without a gradient, a number or None",
        "others": ["index", "a half", "nothing", "table"],
        "look": ["requires_grad of the inputs"],
    },
    "several inputs require a gradient": {
        "says": "each input that is a tensor may require a gradient, not only the first",
        "others": ["table", "trained table"],
    },
    "several results": {
        "says": "of several results some may not be used in the loss, and some may be integers",
        "several": True,
    },
    "random numbers": {
        "says": "the first run draws the random numbers of a run without a checkpoint, the second the same ones again, "
        "and whoever draws afterwards gets those of a run without a checkpoint",
        "dropout": True,
        "look": ["random numbers"],
    },
    "under torch.no_grad()": {
        "says": "under torch.no_grad() the result requires no gradient, and nothing is computed again",
        "frozen": True,
    },
    "memory between forward and backward": {
        "says": "the function runs again in backward, and its activations are kept all the same: run it without a "
        "graph in forward",
        "look": ["activations are kept"],
    },
    "the run that backward goes through": {
        "says": "the function runs again, and backward uses what the first run kept, in whatever memory: NumPy's and "
        "that of other threads count too. Use the second run's",
        "look": ["backward uses the second run"],
    },
    "memory after backward": {
        "says": "after backward there is still something in memory that is no gradient",
        "look": ["activations are kept after backward"],
    },
}
SET_OLD, SET_NOW = "torch.set_rng_state(ctx.random_state)", "torch.set_rng_state(now)"
STATE = "ctx.random_state = torch.get_rng_state()"
GRAPH, BACKWARD = "with torch.enable_grad():", "torch.autograd.backward(*zip(*needed, strict=True))"
OF_INPUTS = "[x.grad if isinstance(x, torch.Tensor) else None for x in inputs]"
APPLY, ANCHOR = "return Recompute.apply(function, anchor, *inputs)", "anchor = torch.empty(0, requires_grad=True)"
FIRST, TUPLE = "return function(*inputs)  # in here", "results = results if isinstance(results, tuple) else (results,)"
EDITS = (
    Edit("the second run has no graph, and nothing gets a gradient: in a backward pass autograd records nothing, "
         "unless torch.enable_grad() says so",
         {GRAPH: "with torch.no_grad():", BACKWARD: "[r.sum() for r, _ in needed]"}),
    Edit("the parameters get no gradients: the function uses them, and they are not among its inputs. "
         "torch.autograd.backward() reaches them, torch.autograd.grad() of the inputs does not",
         {BACKWARD: "asked = [x for x in inputs if isinstance(x, torch.Tensor) and x.requires_grad]\n"
                    "        made = "
                    "torch.autograd.grad([r for r, _ in needed], asked, [g for _, g in needed]) if asked else ()\n"
                    "        for x, gradient in zip(asked, made, strict=True):\n            x.grad = gradient"}),
    Edit("the gradients of the inputs do not reach what comes before: the second run's inputs require a gradient where "
         "the first run's did, and backward returns what they get, in the inputs' places",
         {OF_INPUTS: "[None for x in inputs]"}),
    Edit("only the first input's gradient is returned: each input that is a tensor may require one",
         {OF_INPUTS: "[inputs[0].grad, *(None for _ in inputs[1:])]"}),
    Edit("the gradients are twice what they should be: backward goes through the second run twice",
         {BACKWARD: f"{BACKWARD[:-1]}, retain_graph=True); {BACKWARD}"}),
    Edit("nothing is computed again: the function runs in forward only, and its activations are kept",
         {APPLY: "return function(*inputs)"}),
    Edit("the result requires no gradient, so backward never comes to the checkpoint: where no input requires one, "
         "autograd does not see that the parameters do, as they are not among the inputs",
         {APPLY: "return Recompute.apply(function, *inputs)", "inputs = inputs[1:]": "pass",
          "return None, None, *of_inputs": "return None, *of_inputs"}),
    Edit("the requires_grad of an input was changed: set it on a detached copy",
         {ANCHOR: "anchor = [x.requires_grad_() for x in inputs if isinstance(x, torch.Tensor) and "
                  "x.is_floating_point()][0]"}),
    Edit("backward begins at the first result only: it has to begin at each that requires a gradient",
         {BACKWARD: "needed[0][0].backward(needed[0][1])"}),
    Edit("the second run draws other random numbers than the first: dropout drops other elements, and the gradients "
         "belong to another loss", {SET_OLD: "pass"}),
    Edit("the second run draws other random numbers than the first, so the gradients belong to another loss; and "
         "whoever draws after backward gets other numbers than without a checkpoint",
         {SET_OLD: "pass", SET_NOW: "pass"}),
    Edit("after backward the random generator is not where it was before: the state of the first run is still set, "
         "and numbers are drawn a second time", {SET_NOW: "pass"}),
    Edit("a seed is set in forward: the first run draws other random numbers than a run without a checkpoint",
         {STATE: f"torch.manual_seed(0); {STATE}"}),
    Edit("under torch.no_grad() the result requires a gradient",
         {APPLY: f"with torch.enable_grad():\n        {APPLY}"}),
    Edit("the first run makes a graph, which keeps the activations until backward: run the function under "
         "torch.no_grad(), as Function.forward does by itself",
         {FIRST: "with torch.enable_grad():\n            ctx.results = function(*inputs)\n        is_one = "
                 "isinstance(ctx.results, torch.Tensor)\n        return ctx.results.detach() if is_one else "
                 "tuple(r.detach() for r in ctx.results)  # in here"}),
    Edit("after backward the second run's results are still in memory: a list outside of the function keeps them",
         {TUPLE: f"{TUPLE}\n        Recompute.kept = [*getattr(Recompute, 'kept', []), results]"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    given, p = list[dict[str, Any]](), case.params
    for rank in range(case.world_size):
        g = case.generator(rank)

        def random(*shape: int, g: torch.Generator = g) -> torch.Tensor:
            return torch.randn(shape, generator=g, dtype=torch.float64)

        index = torch.randint(ROWS, (ROWS,), generator=g)
        kinds = {
            "index": index,
            "a half": 0.5,
            "nothing": None,
            "table": random(HIDDEN),
            "trained table": random(HIDDEN),
        }
        own = {
            "x": random(ROWS, WIDTH),
            "down": [random(WIDTH, HIDDEN) / 3 for _ in range(SEGMENTS)],
            "up": [random(HIDDEN, WIDTH) / 8 for _ in range(SEGMENTS)],
            "others": [kinds[name] for name in p.get("others", [])],
            "trained": [name.startswith("trained") for name in p.get("others", [])],
            "seed": int(torch.randint(10**6, (), generator=g)),
        }
        given.append({**own, "leaf": p.get("leaf", True), "look": p.get("look", []) + VALUES})
        given[-1] |= {name: p.get(name, False) for name in ("several", "dropout", "frozen")}
    return given


def on_rank(
    answer: Any, x: Any, down: Any, up: Any, others: Any, trained: Any, seed: int, leaf: bool, several: bool,
    dropout: bool, frozen: bool, look: Any,
) -> Any:  # fmt: skip
    import gc
    import time
    import traceback

    from dtlearn.memory.ledger.storage_ledger import StorageLedger

    x, again, late, n = x.clone().requires_grad_(leaf), torch.zeros((), dtype=x.dtype, requires_grad=True), [0], len(up)
    down, up = ([w.clone().requires_grad_() for w in weights] for weights in (down, up))
    others = [o.clone().requires_grad_(t) if torch.is_tensor(o) else o for o, t in zip(others, trained, strict=True)]
    given, names = [x, *filter(torch.is_tensor, others)], set[str]()
    before, runs, drawn = [one.requires_grad for one in given], [[0] * n, [0] * n], [[0.0] * n, [0.0] * n]

    def segment(i: int) -> Any:
        def run(x: Any, *others: Any) -> Any:
            names.update(str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_stack(None))
            runs[late[0]][i] += 1
            h = torch.nn.functional.gelu(x @ down[i]) + again * torch.full((), late[0], dtype=x.dtype)
            for one in others:
                h = h if one is None else h[one] if torch.is_tensor(one) and one.dtype == torch.int64 else h * one
            if dropout:
                mask = (torch.rand(h.shape) < 0.7).to(h.dtype)
                drawn[late[0]][i] = float(mask.flatten() @ torch.arange(mask.numel(), dtype=h.dtype))
                h = h * mask
            _ = dist.all_reduce(torch.ones(1)) if dist.is_initialized() else None  # the other ranks run it, too
            y = x + h @ up[i]
            return (y, h.sum(1), y.argmax(1)) if several else y

        return run

    torch.manual_seed(seed)
    with StorageLedger() as ledger, torch.set_grad_enabled(not frozen):
        y, beside = x, []  # type: Any, list[Any]
        for i in range(n):
            y = answer(segment(i), y, *others)
            if type(y) is not (tuple if several else torch.Tensor):
                return {"the type of the result": type(y).__name__}
            y, *beside = (y[0], *beside, *y[1:]) if several else (y,)
        held, between, result = ledger.now, torch.rand(3), [y.detach().clone(), *(one.clone() for one in beside[1::2])]
        facts = {"requires a gradient": y.requires_grad, "the result": result}
        loss, late[0] = y.square().mean() + (beside[0].mean() if several else 0), 1
        del y, beside
        loss = loss.backward() if loss.requires_grad else None
        known = [t for t in (*(p.grad for p in (*down, *up, *given)), between, *result) if t is not None]
        inside = x.shape[0] * down[0].shape[1] * x.element_size()  # of one function, which makes several such tensors
        for pause in (0.0, 0.02, 0.2):  # another thread may hold a frame a little longer
            if (left := ledger.now - sum(t.nbytes for t in known)) > inside // 4:
                gc.collect()
                time.sleep(pause)
    of_inputs = [one.grad for one in given]
    facts["gradients"] = {"of the parameters": [one.grad for one in (*down, *up)], "of the inputs": of_inputs}
    facts |= {"runs in forward": runs[0], "runs in backward": runs[1]}
    drew = {"of the first run": drawn[0], "of the second run": drawn[1]}
    facts["random numbers"] = {**drew, "after forward": between, "after backward": torch.rand(3)}
    facts["an answer of your own runs the function"] = "torch.utils.checkpoint" not in names
    facts["requires_grad of the inputs"] = "as before" if before == [one.requires_grad for one in given] else "changed"
    facts["activations are kept"] = held > n * (x.nbytes + 6_000 + inside // 4)  # a generator's state has 5 kB
    facts["activations are kept after backward"] = left > inside // 4
    facts["backward uses the second run"] = again.grad is not None and bool(again.grad)
    return {name: facts[name] for name in look}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """The results of the same chain without a checkpoint, changed where a checkpoint behaves differently."""
    results = []
    for own in given:
        with torch.random.fork_rng():
            plain = on_rank(lambda function, *inputs: function(*inputs), **own)
        again = {"runs in backward": [int(not own["frozen"])] * SEGMENTS, "backward uses the second run": True}
        if "random numbers" in plain:
            drawn = plain["random numbers"]
            again["random numbers"] = {**drawn, "of the second run": drawn["of the first run"]}
        changed = again | {"activations are kept": False, "activations are kept after backward": False}
        results.append(plain | {name: value for name, value in changed.items() if name in plain})
    return results


PEAKS: dict[str, int] = {}  # by case, whose sizes are always the same


def payload(case: Case, given: Given) -> int:
    """The peak of a good answer: the package's, on one rank of the judge; the ledger's own sizes are the same there."""
    if case.name not in PEAKS:
        with torch.random.fork_rng(), StorageLedger() as ledger:
            on_rank(checkpoint, **given[0])
        PEAKS[case.name] = ledger.peak
    return PEAKS[case.name]


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised: what is special about its case."""
    texts = {
        "numbers and None among the inputs": "the inputs are a float tensor, an integer one, 0.5, None, and a float "
        "tensor without a gradient",
        "several results": "the function returns three tensors; one is not used in the loss, one is of integers",
    }
    chain = "the functions are a chain: each takes the result of the one before, and has a backward of its own"
    return texts.get(case.name, chain)


def without_torchs(source: str) -> Finding | None:
    """A rule on the text: no checkpoint of torch."""
    places = ("utils.checkpoint", "distributed.algorithms._checkpoint", "distributed._composable")
    torchs = "it is torch's answer. Write your own here"
    return find_forbidden(source, {f"torch.{place}": torchs for place in places})


LAYER = torch.eye(2, dtype=torch.float64)
EXAMPLE = {"x": LAYER[:1], "down": [LAYER, LAYER], "up": [LAYER, LAYER], "others": [], "trained": [], "seed": 0}
EXAMPLE |= {"leaf": True, "several": False, "dropout": False, "frozen": False, "look": VALUES[2:]}
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[EXAMPLE],
    why=why,
    payload=payload,
    memory=lambda case, given: 1.6 * payload(case, given) if "kept" in str(case.params.get("look")) else math.inf,
    reads=[without_torchs],
    rtol=1e-9,
    atol=1e-12,
    seconds=15.0,
)
