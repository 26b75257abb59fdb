"""ch04.sparse_rows: rows that nobody shares first; then repeats, rows of several workers, several servers, a large
table."""

from __future__ import annotations

import math
from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Finding, Given
from dtlearn.grading.rules import bytes_of
from dtlearn.runtime.record.record import Record

from ..sent import no_stores
from . import MAY_HELP

WIDTH = 2
# Per case: `servers`; `rows` of the whole table; `ids`, of each worker's batch.
CASES: dict[str, dict[str, Any]] = {
    "each row once": {"ids": [[3, 0, 2], [5], [4, 1]]},
    "repeats in a batch": {
        "says": "the gradients of samples with the same row are added up before they are squared, and each sample has "
        "its row",
        "ids": [[3, 0, 3, 3, 0, 3], [5, 5, 5], [4, 1, 4]],
    },
    "rows of several workers": {
        "says": "a server adds up what all workers push for a row, and then updates it once; all pull it as it was "
        "before the step",
        "ids": [[3, 0], [0, 3, 5], [3]],
        "sizes": (3, 4),
    },
    "two servers": {
        "says": "row r of the table is row r // S of server r % S, and a batch has its rows in any order",
        "servers": 2,
        "ids": [[5, 2, 0, 3], [2, 1, 4]],
        "sizes": (3, 4),
    },
    "three servers": {
        "says": "`num_servers` is any number: row r is on server r % num_servers",
        "servers": 3,
        "ids": [[5, 2, 0, 3, 1]],
        "sizes": (4,),
    },
    "no row of a server": {
        "says": "a worker that needs no row of a server tells it so, or the server waits for it",
        "servers": 2,
        "ids": [[4, 0, 4], [3]],
        "sizes": (3, 4),
    },
    "a gradient of zero": {
        "says": "a row whose gradients were all zero has sums of 0: without the 1e-10 the update is 0 / 0, NaN",
        "ids": [[3, 0], [5], [4, 1]],
        "zero": True,
    },
    "a large table": {
        "says": "the work follows the batch, not the table",
        "rows": 2000,
        "ids": [[1990, 7, 7], [7], [0]],
    },
}
UNIQUE, ASK = "rows, where = ids.unique(return_inverse=True)", "(rows % num_servers == server)"
ADD = "gradient = torch.zeros_like(values).index_add_(0, where, gradient_of(values[where]))"
MERGE = "gradient = torch.zeros(len(rows), width).index_add_(0, where, torch.cat(pushed))"
SQUARE, STEP = "sums[rows] += gradient**2", "table[rows] -= lr * gradient / (sums[rows].sqrt() + 1e-10)"
TOGETHER = f"rows, where = torch.cat(asked).unique(return_inverse=True)\n    {MERGE}\n    {SQUARE}\n    {STEP}"
EACH = f"for rows, gradient in zip(asked, pushed, strict=True):\n        {SQUARE}\n        {STEP}"
EDITS = (
    Edit("of samples with the same row only one gradient counts: an assignment with repeated indices keeps one of them",
         {ADD: "gradient = torch.zeros_like(values)\n        gradient[where] = gradient_of(values[where])"}),
    Edit("the gradients of samples with the same row are averaged: add them up",
         {ADD: f"{ADD}\n        gradient /= where.bincount()[:, None]"}),
    Edit("of a row that several workers push only one gradient counts: an assignment with repeated indices keeps one",
         {MERGE: "gradient = torch.zeros(len(rows), width)\n    gradient[where] = torch.cat(pushed)"}),
    Edit("the gradients that workers push for a row are averaged: add them up",
         {MERGE: f"{MERGE}\n    gradient /= where.bincount()[:, None]"}),
    Edit("the gradients are divided by the number of workers: add them up", {MERGE: f"{MERGE} / len(workers)"}),
    Edit("a row that several workers push is updated once for each of them: add up, then update", {TOGETHER: EACH}),
    Edit("the workers' gradients are squared, and then added up: the square of their sum belongs to `sums`",
         {SQUARE: "sums[rows] += torch.zeros_like(gradient).index_add_(0, where, torch.cat(pushed) ** 2)"}),
    Edit("`sums` has the squares of this step only: they are added to those of earlier steps",
         {SQUARE: "sums[rows] = gradient**2"}),
    Edit("the rows are divided by the sums as they were before the step: add the squares first",
         {f"{SQUARE}\n    {STEP}": f"{STEP}\n    {SQUARE}"}),
    Edit("`sums` stays as it was", {f"{SQUARE}\n    {STEP}": STEP.replace("sums[rows]", "(sums[rows] + gradient**2)")}),
    Edit("the gradient is added to the rows: it points uphill", {"table[rows] -=": "table[rows] +="}),
    Edit("the root is missing: a row is divided by the root of its sum", {"sums[rows].sqrt()": "sums[rows]"}),
    Edit("row r is asked of another server than r % S", {ASK: "((rows + 1) % num_servers == server)"}),
    Edit("rows go to servers by their place among the batch's rows, not by their number",
         {ASK: "(torch.arange(len(rows)) % num_servers == server)"}),
    Edit("only two of the servers are asked", {ASK: "(rows % min(num_servers, 2) == server)"}),
    Edit("the 1e-10 is missing: where the sum is 0 the update is 0 / 0, NaN",
         {"(sums[rows].sqrt() + 1e-10)": "sums[rows].sqrt()"}),
    Edit("`table` and `sums` are as they were: change the given tensors in place, not copies of them",
         {f"{SQUARE}\n    {STEP}": f"table, sums = table.clone(), sums.clone()\n    {SQUARE}\n    {STEP}"}),
    Edit("the model gets each pulled row once: it needs the row of each sample, with repeats, in the order of `ids`",
         {ADD: ADD.replace("gradient_of(values[where])", "gradient_of(values)[where]")}),
    Edit("the model gets the rows in ascending order, not in that of `ids`",
         {ADD: ADD.replace("values[where]", "values[where.sort().values]")}),
    Edit("gradient_of is called twice: it is the model's whole forward and backward",
         {ADD: f"gradient_of(values[where])\n        {ADD}"}),
)  # fmt: skip


def servers_of(case: Case) -> int:
    return int(case.params.get("servers", 1))


def inputs(case: Case) -> Given:
    g, p, num_servers = case.generator(), case.params, servers_of(case)
    whole = torch.randn(p.get("rows", 6), WIDTH, generator=g)
    squares = torch.rand(whole.shape, generator=g) + 0.2  # of earlier steps
    given: Given = []
    for rank in range(case.world_size):
        own: dict[str, Any] = {"num_servers": num_servers, "width": WIDTH, "lr": 0.5, "table": None, "sums": None}
        own |= {"ids": None, "gradient_of": None}
        if rank < num_servers:
            own |= {"table": whole[rank::num_servers].clone(), "sums": squares[rank::num_servers].clone()}
        else:
            ids = torch.tensor(p["ids"][rank - num_servers])
            slope, offset = torch.randn(2, len(ids), WIDTH, generator=g) + 0.5
            if "zero" in p and rank == num_servers:  # its first sample, of a row that nobody else has
                slope[0], offset[0] = 0, 0
                given[ids[0] % num_servers]["sums"][ids[0] // num_servers] = 0
            own |= {"ids": ids, "gradient_of": {"slope": slope, "offset": offset}}
        given.append(own)
    return given


def on_rank(
    answer: Any, num_servers: Any, width: Any, lr: Any, table: Any, sums: Any, ids: Any, gradient_of: Any
) -> Any:
    seen: list[Any] = []

    def model(values: Any) -> Any:
        """The rows times a slope, plus an offset. With too few rows: what it gets is compared."""
        seen.append(values.clone())
        return gradient_of["slope"][: len(values)] * values + gradient_of["offset"][: len(values)]

    if table is not None:
        answer(num_servers, width, lr, table, sums, None, None)
        return {"table": table, "sums": sums}
    answer(num_servers, width, lr, None, None, ids, model)
    return {"what gradient_of gets": seen[0] if seen else None, "calls of gradient_of": len(seen)}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """The whole table on one process, in float64."""
    num_servers = servers_of(case)
    size = sum(len(own["table"]) for own in given[:num_servers])
    table, sums, gradient = (torch.zeros(size, WIDTH).double() for _ in range(3))
    for server in range(num_servers):
        table[server::num_servers] = given[server]["table"].double()
        sums[server::num_servers] = given[server]["sums"].double()
    results: list[dict[str, Any]] = []
    for own in given[num_servers:]:
        values = table[own["ids"]]
        gradient.index_add_(0, own["ids"], own["gradient_of"]["slope"] * values + own["gradient_of"]["offset"])
        results.append({"what gradient_of gets": values.float(), "calls of gradient_of": 1})
    sums += gradient.square()
    table -= given[0]["lr"] * gradient / (sums.sqrt() + 1e-10)
    parts = [slice(server, None, num_servers) for server in range(num_servers)]
    return [{"table": table[part].float(), "sums": sums[part].float()} for part in parts] + results


def follows_the_batch(case: Case, given: Given, record: Record) -> Finding | None:
    """A rule: each row of a batch travels once in each direction."""
    num_servers = servers_of(case)
    rows = [len(own["ids"].unique()) for own in given[num_servers:]]
    most = sum(rows) * (16 + 8 * WIDTH) + 32 * len(rows) * num_servers
    sent = sum(bytes_of(record, rank) for rank in range(case.world_size))
    if sent <= most:
        return None
    text = f"all ranks together send {sent:,} bytes. The batches need {sum(rows)} rows, each worker's counted once: "
    text += f"that makes {most:,} bytes at most. Pull each row once, not the table, and add up the gradients of a row "
    return Finding("DTL-RULE-BYTES", f"{text}before the push, so that it travels once in each direction")


def memory(case: Case, given: Given) -> float:
    """A rank may hold half of a large table; a small one is not limited."""
    return case.params["rows"] * WIDTH * 4 / 2 if "rows" in case.params else math.inf


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised or waits: the number of servers, and the ids of each worker."""
    num_servers = servers_of(case)
    ids = ", ".join(str(own["ids"].tolist()) for own in given[num_servers:])
    servers = "is 1 server" if num_servers == 1 else f"are {num_servers} servers"
    text = f"{MAY_HELP}there {servers}, and the workers' ids are {ids}"
    return f"{text}; {case.says}" if case.says else text


def example() -> Given:
    server = {"table": torch.tensor([[2.0], [4.0], [6.0]]), "sums": torch.zeros(3, 1), "ids": None, "gradient_of": None}
    model = {"slope": torch.ones(3, 1), "offset": torch.zeros(3, 1)}
    worker = {"table": None, "sums": None, "ids": torch.tensor([1, 0, 1]), "gradient_of": model}
    return [{"num_servers": 1, "width": 1, "lr": 0.5, **own} for own in (server, worker)]


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=example(),
    rules=[follows_the_batch],
    memory=memory,
    why=why,
    reads=[no_stores],
    may_change_inputs=True,
    rtol=2e-5,
    atol=2e-6,
)
