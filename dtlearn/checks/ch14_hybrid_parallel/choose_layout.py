"""ch14.choose_layout: a cluster where all divides and fits, then what is not allowed, and what is equally fast."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Finding, Given, Mistake, rules
from dtlearn.runtime.record.record import Record

from ..sent import no_stores
from . import MAY_HELP

# Each case has some clusters: one alone has too few layouts to tell mistakes apart by the best. A cluster has layers,
# heads and sequences; GPUs, those of a node, and the bytes of one; and what `on_rank` computes the costs from.
JOB = ("layers", "heads", "batch", "num_gpus", "node", "capacity")
COSTS = ("state", "kept", "work", "link", "launch", "reduce")


def costs_of(*values: int) -> dict[str, Any]:
    return dict(zip((*JOB, *COSTS), values, strict=True))


CASES: dict[str, dict[str, Any]] = {
    "everything fits": {"jobs": [  # the best have tp 8, pp 8, dp 8; dp 1; fewer micro-batches than stages; one of 32
        costs_of(8, 16, 8, 16, 2, 100000, 40, 4, 24, 8, 5, 100),
        costs_of(16, 16, 16, 64, 8, 100000, 80, 4, 240, 2, 160, 400),
        costs_of(4, 16, 16, 4, 2, 100000, 40, 2, 96, 40, 40, 9000),
        costs_of(8, 16, 128, 32, 8, 100000, 30, 2, 48, 40, 0, 30000),
        costs_of(16, 8, 128, 4, 4, 100000, 40, 4, 96, 40, 2000, 30000)]},
    "no powers of two": {"says": "a divisor need not be a power of two", "jobs": [
        costs_of(12, 12, 36, 36, 3, 100000, 40, 1, 48, 1, 40, 800),
        costs_of(12, 12, 72, 72, 6, 100000, 40, 1, 120, 8, 40, 800)]},
    "little memory": {"says": "a layout that needs more than capacity is not allowed",
        "jobs": [costs_of(16, 16, 64, 64, 4, 60, 80, 1, 240, 8, 160, 200)]},
    "a layout that fills the memory": {"says": "a layout that needs exactly the capacity is allowed",
        "jobs": [costs_of(8, 8, 16, 16, 4, 384, 80, 8, 240, 8, 40, 100)]},
    "heads that not every tp divides": {"says": "tp has to divide the heads",
        "jobs": [costs_of(8, 20, 32, 32, 8, 10000, 40, 1, 480, 0, 5, 100)]},
    "small nodes": {"says": "a tensor-parallel group has to lie in one node",
        "jobs": [costs_of(8, 16, 32, 16, 2, 10000, 80, 1, 48, 1, 80, 200)]},
    "nodes that not every tp divides": {"says": "tp has to divide node, or some groups lie in two nodes",
        "jobs": [costs_of(8, 16, 48, 24, 12, 10000, 40, 4, 240, 0, 5, 200)]},
    "layers that not every pp divides": {"says": "pp has to divide the layers",
        "jobs": [costs_of(12, 16, 32, 32, 4, 10000, 80, 4, 480, 1, 160, 3200)]},
    "GPUs that not every tp x pp divides": {"says": "tp x pp x dp has to be all GPUs",
        "jobs": [costs_of(8, 8, 80, 40, 4, 40, 20, 8, 48, 1, 80, 1600)]},
    "a batch that not every dp divides": {"says": "dp x microbatch has to divide the batch",
        "jobs": [costs_of(8, 8, 40, 32, 4, 10000, 60, 3, 480, 0, 10, 400)]},
    "equally fast: tp": {"says": "of equally fast layouts the one with the smallest tp is first", "jobs": [
        costs_of(4, 16, 12, 16, 4, 10000, 40, 1, 24, 16, 80, 416),
        costs_of(8, 16, 12, 8, 8, 10000, 80, 4, 60, 8, 0, 200),
        costs_of(12, 4, 12, 12, 8, 10000, 80, 4, 24, 2, 160, 432)]},
    "equally fast: pp": {"says": "with the same tp, the one with the smallest pp is first", "jobs": [
        costs_of(8, 8, 16, 4, 2, 10000, 20, 1, 60, 8, 10, 110),
        costs_of(16, 4, 8, 16, 4, 10000, 80, 1, 24, 8, 160, 80)]},
    "equally fast: micro-batch": {"says": "with the same tp and pp, the one with the smallest micro-batch is first",
        "jobs": [costs_of(8, 16, 8, 8, 8, 10000, 20, 1, 60, 4, 0, 20)]},
    "nothing fits": {"says": "where no layout is allowed the result is None",
        "jobs": [costs_of(16, 16, 64, 64, 4, 20, 80, 1, 240, 8, 160, 200)]},
}  # fmt: skip
ALL_TP, ALL_PP = (
    "(n for n in range(1, node + 1) if node % n == 0 and heads % n == 0)",
    "(n for n in range(1, layers + 1) if layers % n == 0 and num_gpus % (tp * n) == 0)",
)
ALL_B, M = (
    "(n for n in range(1, batch // dp + 1) if batch % (dp * n) == 0)",
    "m = batch // (dp * microbatch)",
)
FITS, TURNS, REDUCE = "memory(*layout) <= capacity", "(m + pp - 1) *", " + reduce_time(*layout)"
KEY, STEP = "(steps[layout], layout)", "steps[layout] = (m + pp - 1) * stage_time(*layout) + reduce_time(*layout)"
EDITS = (
    Edit("the layout with the shortest stage_time is taken: a step has several turns of a stage",
         {STEP: "steps[layout] = m * 0 + stage_time(*layout)"}),
    Edit("the layout with the least memory is taken: whatever fits is fine, and the fastest is wanted",
         {STEP: "steps[layout] = m * 0 + memory(*layout)"}),
    Edit("the layout with the most replicas is taken, as if they exchanged nothing: reduce_time is a part of the step",
         {REDUCE: ""}),
    Edit("reduce_time is counted for every micro-batch: gradients are exchanged once a step",
         {STEP: "steps[layout] = (m + pp - 1) * (stage_time(*layout) + reduce_time(*layout))"}),
    Edit("only micro-batches of 1 are tried", {ALL_B: "(n for n in [1] if batch % dp == 0)"}),
    Edit("the largest micro-batch is taken: it need not be the fastest",
         {ALL_B: f"sorted{ALL_B}[-1:]"}),
    Edit("m is batch / microbatch: each replica has only its part of the batch", {M: "m = batch // microbatch"}),
    Edit("the bubble is missing: a step has m + pp - 1 turns", {TURNS: "m *"}),
    Edit("a step has m + pp turns: one less", {TURNS: "(m + pp) *"}),
    Edit("the bubble has pp - 1 turns for every micro-batch: it is there once a step", {TURNS: "m * pp *"}),
    Edit("layouts that do not fit are taken", {FITS: "memory(*layout)"}),
    Edit("a layout that needs exactly the capacity is left out: it fits (<=, not <)", {FITS: FITS.replace("<=", "<")}),
    Edit("tp need not divide the heads", {ALL_TP: ALL_TP.replace(" and heads % n == 0", "")}),
    Edit("tensor-parallel groups of several nodes are taken: tp is a node at most",
         {ALL_TP: "(n for n in range(1, num_gpus + 1) if heads % n == 0 and (node % n == 0 or n % node == 0))"}),
    Edit("tp is no larger than a node, but need not divide it: some groups then lie in two nodes",
         {ALL_TP: ALL_TP.replace("node % n == 0 and ", "")}),
    Edit("pp need not divide the layers", {ALL_PP: ALL_PP.replace("layers % n == 0 and ", "")}),
    Edit("tp x pp need not divide the number of GPUs: some are left idle",
         {ALL_PP: ALL_PP.replace("num_gpus % (tp * n) == 0", "num_gpus >= tp * n")}),
    Edit("dp need not divide the batch", {ALL_B: "(n for n in range(1, batch // dp + 1) if batch // dp % n == 0)"}),
    Edit("the micro-batch need not divide a replica's part of the batch",
         {ALL_B: ALL_B.replace("(dp * n)", "dp")}),
    Edit("of equally fast layouts the one with the largest tp is taken", {KEY: "(steps[layout], -layout[0], layout)"}),
    Edit("of equally fast layouts the one with the smallest pp is taken: first comes tp",
         {KEY: "(steps[layout], layout[1], layout)"}),
    Edit("of equally fast layouts the one with the smallest micro-batch is taken: first come tp and pp",
         {KEY: "(steps[layout], layout[3], layout)"}),
    Edit("of equally fast layouts the one with the smallest dp is taken", {KEY: "(steps[layout], layout[2], layout)"}),
    Edit("of equally fast layouts the one with the largest dp is taken", {KEY: "(steps[layout], -layout[2], layout)"}),
    Edit("of equally fast layouts the one with the least memory is taken",
         {KEY: "(steps[layout], memory(*layout), layout)"}),
    Edit("of equally fast layouts with one tp the smallest micro-batch is taken: first comes pp",
         {KEY: "(steps[layout], layout[0], layout[3], layout)"}),
    Edit("of equally fast layouts the one with the largest pp is taken",
         {KEY: "(steps[layout], layout[0], -layout[1], layout)"}),
    Edit("of equally fast layouts the one with the largest micro-batch is taken",
         {KEY: "(steps[layout], layout[:2], -layout[3])"}),
    Edit("the tuple ends with dp: the micro-batch is the last one",
         {"return min(steps": "best = min(steps", "default=None)\n": "default=None)\n    "
                              "return best and (*best[:2], best[3], best[2])\n"}),
    Edit("where no layout is allowed one is returned all the same: return None",
         {"default=None)": "default=(1, 1, num_gpus, 1))"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    return [{"jobs": case.params["jobs"]}] * case.world_size


def on_rank(answer: Any, jobs: Any) -> Any:
    def best_of(
        layers: int, batch: int, state: int, kept: int, work: int, link: int, launch: int, reduce: int, **job: Any
    ) -> Any:
        def memory(tp: int, pp: int, dp: int, microbatch: int) -> int:
            in_flight = min(pp, batch // (dp * microbatch))
            return layers * (state + kept * microbatch * in_flight) // (tp * pp)

        def stage_time(tp: int, pp: int, dp: int, microbatch: int) -> int:
            return layers * (microbatch * (work // tp + link * (tp - 1)) + launch) // pp

        def reduce_time(tp: int, pp: int, dp: int, microbatch: int) -> int:
            return reduce * layers * (dp - 1) // (tp * pp * dp)

        costs = {"memory": memory, "stage_time": stage_time, "reduce_time": reduce_time}
        return answer(layers=layers, batch=batch, **job, **costs)

    names = ("layers", "heads", "batch", "num_gpus", "node", "capacity")
    return {", ".join(f"{name} {job[name]}" for name in names): best_of(**job) for job in jobs}


def expected(case: Case, given: Given) -> list[Any]:
    """Every tuple of four numbers is checked; the allowed ones stand in one sorted list."""
    return [on_rank(first_of_all, **given[0])] * case.world_size


def first_of_all(
    *, layers: int, heads: int, batch: int, num_gpus: int, node: int, capacity: int, memory: Any, stage_time: Any,
    reduce_time: Any,
) -> Any:  # fmt: skip
    sizes = torch.cartesian_prod(*(torch.arange(1, n + 1) for n in (num_gpus, layers, batch)))
    rows = []
    for tp, pp, microbatch in sizes[num_gpus % (sizes[:, 0] * sizes[:, 1]) == 0].tolist():
        dp = num_gpus // (tp * pp)
        remainders = (heads % tp, node % tp, layers % pp, batch % dp, batch // dp % microbatch)
        if any(remainders) or microbatch * dp > batch or memory(tp, pp, dp, microbatch) > capacity:
            continue
        turn = stage_time(tp, pp, dp, microbatch)
        ends = [turn * (stage + 1) for stage in range(pp)]  # of the first micro-batch, stage by stage
        for _ in range(batch // dp // microbatch - 1):
            ends = [end + turn for end in ends]
        rows.append((ends[-1] + reduce_time(tp, pp, dp, microbatch), tp, pp, microbatch, dp))
    _, tp, pp, microbatch, dp = min(rows, default=(0,) * 5)
    return (tp, pp, dp, microbatch) if rows else None


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised: the arguments of the calls."""
    jobs = [", ".join(f"{name} = {job[name]}" for name in JOB) for job in given[0]["jobs"]]
    return f"{MAY_HELP}it was called with {', then with '.join(jobs)}"


def mistakes(case: Case, given: Given) -> list[Mistake]:
    """What the grader, to which a tuple is a list, would describe wrongly."""
    right = expected(case, given)
    empty = [{job: layout or [] for job, layout in one.items()} for one in right]
    return [Mistake("DTL-MISTAKE", "it is an empty tuple, or list", empty)] if empty != right else []


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """A number of ranks must be a whole number: 4.0 is none."""
    for job, layout in got[0].items():
        if any(isinstance(size, float) for size in layout or ()):
            text = f"{job}: the layout is right, but has floats. Sizes are whole numbers: divide with //"
            return Finding("DTL-VALUE-TYPE", text)
    return None


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"jobs": [costs_of(2, 2, 2, 2, 2, 12, 6, 2, 30, 5, 10, 0)]}],
    mistakes=mistakes,
    verify=verify,
    why=why,
    rules=[rules.most_messages("0")],
    reads=[no_stores],
)
