"""ch05.compress_hook: one bucket by hand; then other scales, zeros, NaN, two buckets, a late rank, and two DDPs."""

from __future__ import annotations

import math
from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.runtime.record.record import Record

from ..sent import no_silent_rank, no_stores
from . import MAY_HELP, groups_of

SIZE = 6
# Per case: `scales`, whether ranks have unlike ones; `times`, how much larger each bucket is; `last`, what those of
# the last rank have in them; `unit`, in which results are compared; and `look`, what is looked at.
CASES: dict[str, dict[str, Any]] = {
    "one bucket": {},
    "another scale on each rank": {
        "says": "each rank's codes are to be multiplied with that rank's scale, the largest of its own elements / 127",
        "scales": True,
        "sizes": (2, 4),
    },
    "zeros on a rank": {"says": "a buffer of zeros gives zeros: its scale is 0", "last": [0.0]},
    "small gradients": {
        "says": "gradients may be as small as 1e-6: nothing is added to the scale, and it has no smallest value",
        "times": [1e-6],
        "unit": 1e-6,
    },
    "NaN and infinity": {
        "says": "what is not finite on one rank, NaN in one bucket and infinity in the other, has to be in the result, "
        "or a loss scaler does not see it",
        "last": [math.nan, math.inf],
        "look": "finite",
    },
    "two groups": {"says": "with `state`, ranks and mean are those of its group", "pairs": True, "sizes": (4,)},
    "one rank is late": {
        "says": "the hook does not return before all ranks have called it: backward stands still until then. Launch "
        "with async_op=True, and leave the rest to the callback",
        "look": "late",
        "sizes": (2, 4),
    },
    "several buckets at once": {
        "says": "the hook is called for the next bucket before the first is done: what a callback needs has to be of "
        "its own call, also the tensors that are gathered into",
        "times": [1.0, 3.3, 0.37, 7.1],
        "scales": True,
        "look": "late",
    },
    "under DDP": {
        "says": "PyTorch's DDP and the course's call it for bucket after bucket; after its first step PyTorch's makes "
        "other buckets, whose numbers and sizes are not those of before",
        "scales": True,
        "look": "ddp",
        "sizes": (2,),
    },
}
SCALE, CODES = "scale = buffer.abs().max().view(1) / 127", "codes = codes.round().to(torch.int8)"
MEAN, FIRST = "return (all_codes * scales).mean(0)", "buffer, num_ranks = bucket.buffer(), dist.get_world_size(state)"
RETURN = "return torch.futures.collect_all("
EDITS = (
    Edit("the result is the sum of the ranks' numbers: divide by the number of ranks",
         {MEAN: MEAN.replace("mean", "sum")}),
    Edit("the result is what this rank's own codes stand for: those of the other ranks are missing",
         {MEAN: "return codes * scale"}),
    Edit("the result is divided by the number of ranks twice", {MEAN: f"{MEAN} / num_ranks"}),
    Edit("codes are cut off towards 0, as .to(torch.int8) does: round to the nearest first",
         {CODES: CODES.replace(".round()", "")}),
    Edit("codes are rounded down: round to the nearest", {CODES: CODES.replace("round", "floor")}),
    Edit("the scale is the largest |x| / 128: int8 ends at 127, and 128 wraps around to -128",
         {SCALE: SCALE.replace("127", "128")}),
    Edit("the scale is the largest x / 127: where -x is larger the code is beyond -128, and wraps around",
         {SCALE: SCALE.replace(".abs()", "")}),
    Edit("the codes are averaged, and the scale is missing: they are numbers up to 127",
         {MEAN: "return all_codes.float().mean(0)"}),
    Edit("the codes are added up as int8, where sums beyond 127 wrap around: make numbers of them first",
         {MEAN: "return all_codes.sum(0, dtype=torch.int8) * scales.mean() / num_ranks"}),
    Edit("nothing is rounded: the gradients are sent as they are, with 4 bytes an element",
         {CODES: "codes = buffer", MEAN: "return all_codes.mean(0)"}),
    Edit("the gradients are rounded to float16, 2 bytes an element: send codes of one byte",
         {CODES: "codes = buffer.half()", MEAN: "return all_codes.float().mean(0)"}),
    Edit("the codes of all ranks are multiplied with this rank's scale: each rank's with that rank's",
         {MEAN: MEAN.replace("scales", "scale")}),
    Edit("the codes of all ranks are averaged, and so are the scales: multiply each rank's codes with its scale first",
         {MEAN: "return all_codes.float().mean(0) * scales.mean()"}),
    Edit("scales are rounded to 16 bits, as float16 has them: send them as float32",
         {SCALE: f"{SCALE}\n    scale = scale.half().float()"}),
    Edit("the scale has a smallest value, so that small gradients are rounded away: it has none",
         {SCALE: f"{SCALE}\n    scale = scale.clamp(min=1e-6)"}),
    Edit("a NaN is lost: it is not greater than 0, so its scale becomes 1, and its code is some whole number",
         {SCALE: f"{SCALE}\n    scale = torch.where(scale > 0, scale, 1.0)"}),
    Edit("NaN and infinity are replaced by numbers before they are sent: a loss scaler has to see them",
         {FIRST: f"{FIRST}\n    buffer = buffer.nan_to_num(0, 1.0, -1.0)"}),
    Edit("infinity is replaced by a number before it is sent: a loss scaler has to see it",
         {FIRST: f"{FIRST}\n    buffer = buffer.clamp(-1e30, 1e30)"}),
    Edit("all ranks of the job are gathered and averaged, not those of the group in `state`",
         {FIRST: f"state = None\n    {FIRST}"}),
    Edit("the sum over the group is divided by the number of all ranks, not of those in the group",
         {MEAN: MEAN.replace("mean(0)", "sum(0) / dist.get_world_size()")}),
    Edit("the hook waits for the gather, and backward stands still until all ranks have come: return the future at "
         "once, and leave the rest to its callback", {RETURN: f"second.wait()\n    {RETURN}"}),
    Edit("the hook waits for the bucket before, and backward stands still until all ranks have sent that: each bucket "
         "has a future of its own, which DDP waits for",
         {FIRST: f"{FIRST}\n    if hasattr(compress_hook, 'last'):\n        compress_hook.last.wait()",
          RETURN: RETURN.replace("return", "compress_hook.last ="),
          ".then(decode)": ".then(decode)\n    return compress_hook.last"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    p, given = case.params, [dict[str, Any]() for _ in range(case.world_size)]
    look, last = p.get("look", "values"), p.get("last", [])
    times = p.get("times", [1.0] * max(len(last), 1))
    for number, ranks in enumerate(groups_of(case)):
        g = case.generator(number)
        for place, rank in enumerate(ranks):
            largest, is_last = 2.11 + 3 * place if "scales" in p else 3.71, place == len(ranks) - 1
            buckets = [vector(g, largest * t, place) for t in times]
            for bucket, kind in zip(buckets, last if is_last else [], strict=False):
                bucket[2 if kind else slice(None)] = kind
            steps = [[vector(g, largest, place) for _ in range(4)] for _ in range(2)] if look == "ddp" else []
            given[rank] = {"bucket": [] if steps else buckets, "steps": steps, "look": look}
            given[rank] |= {"groups": groups_of(case) if "pairs" in p else [], "unit": p.get("unit", 1.0)}
    return given


def vector(g: torch.Generator, largest: float, place: int) -> torch.Tensor:
    """A vector, (SIZE,), whose codes are 0.2 to 0.4 from whole numbers: every way to compute them rounds alike."""
    off = (0.2 + 0.2 * torch.rand(SIZE, generator=g)) * torch.tensor([1, -1] * (SIZE // 2))
    codes = (torch.randint(20, 110, (SIZE,), generator=g) + off) * torch.tensor([1, 1, -1] * (SIZE // 3))
    codes[0] = 127.0 if place % 2 else -127.0
    return codes * largest / 127


def on_rank(answer: Any, bucket: Any, steps: Any, groups: Any, unit: Any, look: Any) -> Any:
    import time
    from datetime import timedelta

    from dtlearn.data_parallel import DistributedDataParallel
    from dtlearn.grading.on_rank.tools import own_group
    from dtlearn.sharing.comm_hooks import GradBucket

    facts: Any = {}
    own = own_group(groups)

    class Model(torch.nn.Module):
        """The gradient of each parameter is what forward is given for it."""

        def forward(self, gradients: Any) -> Any:
            return sum((w * g).sum() for w, g in zip(self.parameters(), gradients, strict=True))

    if look == "ddp":
        pytorchs: Any = torch.nn.parallel.DistributedDataParallel
        for name, wrap in (("PyTorch's DDP", pytorchs), ("the course's DDP", DistributedDataParallel)):
            bare = Model()
            bare.weights = torch.nn.ParameterList([torch.zeros(len(one)) for one in steps[0]])
            model = wrap(bare, bucket_cap_mb=8 * len(steps[0][0]) / 2**20)  # two parameters fill a bucket
            model.register_comm_hook(own, answer)
            for number, gradients in enumerate(steps, 1):
                model.zero_grad()
                model(gradients).backward()
                got = [p.grad if p.grad is None else p.grad.clone() for p in model.parameters()]
                facts[f"{name}, step {number}"] = got
        return facts
    made: list[Any] = [torch.nn.Parameter(buffer) for buffer in bucket]
    made = [GradBucket(n, p.detach().clone(), [p.data], [p], n == len(made) - 1) for n, p in enumerate(made)]
    last, store = world_size - 1, None  # type: ignore[name-defined]  # noqa: F821
    if look == "late":  # the last rank calls the hook when the others have come back from it, or have waited for long
        token = torch.randint(2**60, (1,))
        dist.broadcast(token, 0)  # type: ignore[name-defined]  # noqa: F821
        store = dist.PrefixStore(str(token.item()), dist.distributed_c10d._get_default_store())  # type: ignore[name-defined] # noqa: F821
        if rank == last:  # type: ignore[name-defined]  # noqa: F821
            store.wait([f"called {r}" for r in range(last)], timedelta(seconds=20))
            for _ in range(100):  # a second; longer on a machine so busy that the others take long, too
                if store.check([f"returned {r}" for r in range(last)]):
                    break
                time.sleep(0.01)
            store.set("last", "")
        else:
            store.set(f"called {rank}", "")  # type: ignore[name-defined]  # noqa: F821
    futures_class: Any = torch._C.Future
    then, pause = futures_class.then, time.sleep
    if len(made) > 1:  # callbacks come late: what the next call writes into the same tensors is there before
        futures_class.then = lambda self, f: then(self, lambda done: (pause(0.05), f(done))[1])
    futures = [answer(own, one) for one in made]
    if store is not None:
        facts["it returns before all have called it"] = rank == last or not store.check(["last"])  # type: ignore[name-defined]  # noqa: F821
        store.set(f"returned {rank}", "")  # type: ignore[name-defined]  # noqa: F821
    facts["it returns a future"] = all(hasattr(f, "wait") and not isinstance(f, torch.Tensor) for f in futures)
    values = [one.wait() for one in futures] if facts["it returns a future"] else []
    futures_class.then = then
    if look == "finite":
        return {**facts, "all elements are finite": [bool(torch.isfinite(value).all()) for value in values]}
    values = [value / unit if isinstance(value, torch.Tensor) else value for value in values]
    return {**facts, "result" if unit == 1 else f"result / {unit}": values}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """The results of all ranks, group by group, computed in one process in float64."""
    results: list[dict[str, Any]] = [{} for _ in given]
    for ranks in groups_of(case):
        for rank in ranks:
            own, facts, unit = given[rank], {"it returns a future": True}, given[rank]["unit"]
            means = [mean([given[r]["bucket"][n] for r in ranks]) / unit for n in range(len(own["bucket"]))]
            if own["look"] == "late":
                facts["it returns before all have called it"] = True
            results[rank] = {**facts, "result" if unit == 1 else f"result / {unit}": means}
            if own["look"] == "finite":
                results[rank] = {**facts, "all elements are finite": [False for _ in means]}
            if own["look"] == "ddp":
                steps = [[mean([given[r]["steps"][s][n] for r in ranks]) for n in range(4)] for s in range(2)]
                names = ("PyTorch's DDP", "the course's DDP")
                results[rank] = {f"{name}, step {s}": step for name in names for s, step in enumerate(steps, 1)}
    return results


def mean(vectors: list[torch.Tensor]) -> torch.Tensor:
    """The mean of what the codes of these vectors decode to."""
    scales = [v.double().abs().max() / 127 for v in vectors]
    decoded = [(v / s).nan_to_num(0).round() * s for v, s in zip(vectors, scales, strict=True)]
    return torch.stack(decoded).mean(0).float()


def most_bytes(case: Case, given: Given) -> int:
    """The bytes that a rank may send: one for each element, and 8 for each call of the hook."""
    own = given[0]
    return sum(len(v) + 8 for v in own["bucket"]) + 2 * sum(len(v) + 8 for step in own["steps"] for v in step)


def why(case: Case, given: Given, record: Record) -> str:
    says = case.says
    if not says and any(event.detail.get("dropped") for event in record):
        says = "the callback is for the end of both gathers, `torch.futures.collect_all([...]).then`; do not wait"
    return f"{MAY_HELP}{says}" if says else ""


def example() -> Given:
    buffers = [12.7, -6.33, 0.26], [-2.54, 0.0, 1.0]
    same: dict[str, Any] = {"steps": [], "groups": [], "unit": 1.0, "look": "values"}
    return [{"bucket": [torch.tensor(buffer)], **same} for buffer in buffers]


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=example(),
    rules=[rules.most_bytes(most_bytes), no_silent_rank(least_calls=lambda case, given: 1)],
    why=why,
    reads=[no_stores],
    seconds=30.0,
    rtol=1e-4,
    atol=1e-5,
)
