"""ch08.activation_bytes: blocks of random sizes; what the package's table of a block adds up to."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.memory import ActivationSizes, BlockKind, block_activations

PARTS = ["norms", "feed_forward", "attention"]
BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
DTYPES = ("bfloat16", "float32", "float16", "float32")
# Per case: `options`, those of the four ranks, "grouped" being a number of kv_heads; `look`, what is compared.
CASES: dict[str, dict[str, Any]] = {
    "norms": {"options": [{}] * 4, "look": PARTS[:1]},
    "feed-forward network": {
        "says": "the feed-forward network keeps the input of each operation: h, 4h and 4h features, and a mask of one "
        "byte per element",
        "options": [{}] * 4,
        "look": PARTS[1:2],
    },
    "attention": {
        "says": "attention keeps four tensors of sbh elements and two like the scores, which have s times s for each "
        "head, and key; and two masks of one byte per element. What two operations keep is in memory once",
        "options": [{}, {"dropout": True}, {"keep_scores": True}, {"kv_heads": None}],
        "look": PARTS[2:],
    },
    "no dropout": {
        "says": "with dropout=False there are no masks, and the softmax's output is itself the factor: one tensor",
        "options": [{"dropout": False}] * 4,
    },
    "scores computed again": {
        "says": "with keep_scores=False all that has s times s elements per head goes, and nothing else",
        "options": [{"keep_scores": False}] * 4,
    },
    "scores computed again, no dropout": {
        "says": "with keep_scores=False all that has s times s elements per head goes: without dropout that is one "
        "tensor and no mask",
        "options": [{"keep_scores": False, "dropout": False}] * 4,
    },
    "grouped queries": {
        "says": "key and value have kv_heads heads; the query and the scores have all heads",
        "options": [{"kv_heads": "grouped"}, {"kv_heads": 1}, {"kv_heads": "grouped"}, {"kv_heads": 1}],
    },
    "other dtypes": {
        "says": "all tensors but masks have dtype: dtype.itemsize is the bytes of an element",
        "options": [{"dtype": name} for name in DTYPES],
    },
}
SBH, SCORES = "sbh = batch * length * hidden", "batch * heads * length**2 if keep_scores else 0"
KEY, HEADS = "2 * key", "heads if kv_heads is None else kv_heads"
MASK, COPIES = "mask = 1 if dropout else 0", "copies_of_scores = 2 if dropout else 1"
NORMS, OF_ATTENTION, MASKS = "2 * sbh * dtype.itemsize", "3 * sbh + 2 * key", "mask * (scores + sbh)"
INNER, LAST = "(sbh + 4 * sbh + 4 * sbh) * dtype.itemsize", "mask * sbh,"
TWICE = "one tensor of sbh elements too many is counted, or two: query, key and value are made of one input, which is "
TWICE += "kept once"
ALL = "+ copies_of_scores * scores) * dtype.itemsize"


def bytes_of(item: str) -> dict[str, str]:
    """An edit in which each tensor but the masks has so many bytes per element."""
    return {text: text.replace("dtype.itemsize", item) for text in (NORMS, ALL, INNER)}


EDITS = (
    Edit("these are numbers of elements, not of bytes: times dtype.itemsize, but for masks", bytes_of("1")),
    Edit("an element has 2 bytes here whatever dtype is; dtype.itemsize says how many", bytes_of("2")),
    Edit("an element has 4 bytes here whatever dtype is; dtype.itemsize says how many", bytes_of("4")),
    Edit("these are the bytes of one sequence: batch is missing",
         {SBH: "sbh = length * hidden", SCORES: SCORES.replace("batch * ", "")}),
    Edit("norms: one is counted, and the block has two", {NORMS: "sbh * dtype.itemsize"}),
    Edit("norms: the output of each norm is counted with it; a norm keeps its input only",
         {NORMS: "4 * sbh * dtype.itemsize"}),
    Edit("a mask has the bytes of dtype here: it has 1 byte per element",
         {MASK: "mask = dtype.itemsize if dropout else 0"}),
    Edit("a mask has 1 bit per element here: it has 1 byte", {MASK: "mask = 1 / 8 if dropout else 0"}),
    Edit("the masks of dropout are left out", {MASK: "mask = 0"}),
    Edit("masks are counted with dropout=False, where there are none", {MASK: "mask = 1"}),
    Edit("this is the block with dropout, also where dropout=False",
         {MASK: "mask = 1", COPIES: "copies_of_scores = 2"}),
    Edit("feed_forward: it has 4h features inside, not h", {INNER: "(3 * sbh) * dtype.itemsize"}),
    Edit("feed_forward: one tensor of 4h features is left out, GELU's input or its output",
         {INNER: "(sbh + 4 * sbh) * dtype.itemsize"}),
    Edit("feed_forward: one tensor of 4h features too many is counted; GELU's output is kept once",
         {INNER: "(sbh + 4 * sbh + 4 * sbh + 4 * sbh) * dtype.itemsize"}),
    Edit("feed_forward: the input of the first linear layer is left out",
         {INNER: "(4 * sbh + 4 * sbh) * dtype.itemsize"}),
    Edit("feed_forward: one tensor of sbh elements too many is counted; additions keep nothing",
         {INNER: "(2 * sbh + 4 * sbh + 4 * sbh) * dtype.itemsize"}),
    Edit("feed_forward: the mask of the dropout with h features is left out", {LAST: "0,"}),
    Edit("attention: the mask of the dropout with h features is left out", {MASKS: "mask * scores"}),
    Edit("attention: the mask of the dropout of the softmax is left out", {MASKS: "mask * sbh"}),
    Edit("attention: one tensor like the scores is counted where there are two, the softmax's output and what dropout "
         "makes of it", {COPIES: "copies_of_scores = 1"}),
    Edit("attention: two tensors like the scores are counted with dropout=False; the softmax's output is itself the "
         "factor "
         "then", {COPIES: "copies_of_scores = 2"}),
    Edit("attention: one tensor like the scores is counted too many; the scores before the softmax are not kept",
         {COPIES: "copies_of_scores = 3 if dropout else 2"}),
    Edit("attention: the scores have length * length elements for each head; heads is missing",
         {SCORES: "batch * length**2 if keep_scores else 0"}),
    Edit("attention: the scores are counted for each head of the key; each query head has its own",
         {SCORES: f"batch * ({HEADS}) * length**2 if keep_scores else 0".replace("kv_heads is None", "not kv_heads"),
          f"({HEADS})": f"({HEADS})"}),
    Edit("attention: the scores have length elements for each token of each head; length counts twice",
         {SCORES: SCORES.replace("**2", "")}),
    Edit("attention: the scores do not grow with hidden; they are a number for each pair of tokens",
         {SCORES: "batch * length**2 * hidden if keep_scores else 0"}),
    Edit("attention: nothing of length * length elements is counted", {SCORES: "0"}),
    Edit("attention: the scores are those of one sequence; batch is missing", {SCORES: SCORES.replace("batch * ", "")}),
    Edit("attention: keep_scores=False is ignored; the scores are counted", {SCORES: "batch * heads * length**2"}),
    Edit("attention: with keep_scores=False only the softmax's output goes; what dropout makes of it and its mask "
         "have s "
         "times s elements per head, too", {SCORES: "batch * heads * length**2", COPIES:
         "copies_of_scores = (2 if dropout else 1) - (not keep_scores)"}),
    Edit("attention: the mask of the softmax's dropout is counted with keep_scores=False; it has s times s elements "
         "per "
         "head, too", {MASKS: "mask * (batch * heads * length**2 + sbh)"}),
    Edit("attention: two tensors like the scores and a mask are subtracted for keep_scores=False; with dropout=False "
         "there is one tensor, and no mask",
         {SCORES: "batch * heads * length**2",
          COPIES: "copies_of_scores = (2 if dropout else 1) - 2 * (not keep_scores)",
          MASKS: "mask * (scores + sbh) - scores * (not keep_scores)"}),
    Edit("with keep_scores=False the masks with h features are left out; only what has s times s elements per head "
         "goes",
         {MASK: "mask = 1 if dropout and keep_scores else 0"}),
    Edit("attention: query and key are left out with keep_scores=False; the scores are computed again from them",
         {OF_ATTENTION: "(3 if keep_scores else 2) * sbh + (2 if keep_scores else 1) * key"}),
    Edit("attention: the query has kv_heads here; it has all heads", {OF_ATTENTION: "2 * sbh + 3 * key"}),
    Edit("attention: kv_heads is ignored; key and value have as many features as the query", {HEADS: "heads"}),
    Edit("attention: kv_heads counts for key and for value; one of them has all heads here",
         {OF_ATTENTION: "4 * sbh + key"}),
    Edit("attention: one of query, key and value is left out; all three are kept", {OF_ATTENTION: "3 * sbh + key"}),
    Edit(f"attention: {TWICE}", {OF_ATTENTION: "5 * sbh + 2 * key"}),
    Edit(f"attention: {TWICE}", {OF_ATTENTION: "4 * sbh + 2 * key"}),
    Edit("attention: an input of a linear layer is left out; that of query, key and value is kept, and that of the "
         "last",
         {OF_ATTENTION: "2 * sbh + 2 * key"}),
    Edit("attention: the inputs of the linear layers are left out", {OF_ATTENTION: "sbh + 2 * key"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, given = case.generator(), list[dict[str, Any]]()

    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=g))

    for options in case.params["options"][: case.world_size]:
        kv_heads, shared = number(2, 4), number(2, 4)
        heads = kv_heads * shared
        sizes = {"batch": number(2, 6), "length": 2 * number(4, 12) + 1, "hidden": heads * (2 * number(2, 9) + 1)}
        named = {name: kv_heads if value == "grouped" else value for name, value in options.items()}
        given.append({**sizes, "heads": heads, "options": named, "look": case.params.get("look", PARTS)})
    return given


def on_rank(answer: Any, batch: int, length: int, hidden: int, heads: int, options: Any, look: Any) -> Any:
    if "dtype" in options:
        options = {**options, "dtype": getattr(torch, options["dtype"])}
    counted = answer(batch, length, hidden, heads, **options)
    names = "norms", "attention", "feed_forward"
    if isinstance(counted, dict) and {*counted} != {*names}:
        raise ValueError(
            f"asked is a dict of {', '.join(names)}; this one has {', '.join(map(str, counted)) or 'nothing'}"
        )
    return {name: counted[name] for name in look} if isinstance(counted, dict) else counted


def expected(case: Case, given: Given) -> list[dict[str, int]]:
    results = []
    for own in given:
        options, made = own["options"], dict.fromkeys(PARTS, 0)
        sizes = ActivationSizes(own["batch"], own["length"], own["hidden"], own["heads"], options.get("kv_heads") or 0)
        kind = BlockKind(dropout=options.get("dropout", True), element_bytes=BYTES[options.get("dtype", "float16")])
        for row in block_activations(sizes, kind):
            part = row.module.partition(".")[0]
            is_kept = options.get("keep_scores", True) or "abs" not in row.formula
            if row.formula != "4sb" and is_kept:  # those are mean and variance
                made["norms" if part.endswith("norm") else part] += row.bytes
        results.append({name: made[name] for name in own["look"]})
    return results


def task_text(case: Case, given: Given, rank: int) -> str:
    own = given[rank]
    named = [f"{name}={f'torch.{v}' if name == 'dtype' else v}" for name, v in own["options"].items()]
    return ", ".join([*(f"{name}={own[name]}" for name in ("batch", "length", "hidden", "heads")), *named])


SIZES = {"batch": 1, "length": 2, "hidden": 4, "heads": 2, "look": PARTS}
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{**SIZES, "options": {"dropout": dropout}} for dropout in (True, False)],
    task_text=task_text,
    rules=[rules.most_messages("0")],
    rtol=0.0,
    atol=0.0,
)
