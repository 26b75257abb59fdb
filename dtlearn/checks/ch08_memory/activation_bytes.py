"""ch08.activation_bytes: blocks of random sizes; each part is explained by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from dtlearn.grading import Case, Check, Given, rules

from ._counts import Counts, verified

# One entry per rank: the options that are given; "grouped" is a number of kv_heads.
_CASES: dict[str, dict[str, Any]] = {
    "float16 with dropout": {"options": [{}, {"dropout": True}, {"keep_scores": True}, {"dtype": "float16"}]},
    "without dropout": {"options": [{"dropout": False}] * 4},
    "scores computed again": {"options": [{"keep_scores": False}, {"keep_scores": False, "dropout": True}] * 2},
    "other dtypes": {
        "options": [{"dtype": "float32"}, {"dtype": "bfloat16"}, {"dtype": "float64"}, {"dtype": "float32"}]
    },
    "grouped queries": {"options": [{"kv_heads": "grouped"}, {"kv_heads": 1}, {"kv_heads": "grouped"}, {}]},
    "all together": {
        "options": [
            {"kv_heads": "grouped", "dropout": False, "dtype": "float32"},
            {"kv_heads": 1, "keep_scores": False, "dtype": "float64"},
            {"kv_heads": "grouped", "dropout": True, "keep_scores": True, "dtype": "float32"},
            {"kv_heads": None, "dropout": False, "keep_scores": False, "dtype": "bfloat16"},
        ]
    },
}
_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}

_ONE_INPUT = "query, key and value are made of one input, which is kept once"
SAYS: dict[str, tuple[str, str]] = {
    "masks in dtype": ("DTL-VALUE-MASK", "a mask has the bytes of dtype here: it has 1 byte per element"),
    "masks of bits": ("DTL-VALUE-MASK", "a mask has 1 bit per element here: it has 1 byte"),
    "all masks gone": (
        "DTL-VALUE-KEEP-SCORES",
        "the mask with h features is left out with keep_scores=False: only what has s times s elements per head is",
    ),
    "no dropout by default": ("DTL-VALUE-DEFAULT", "where dropout is left out, it is True"),
    "no masks": ("DTL-VALUE-MASK", "the masks of dropout are left out"),
    "no mask of scores": ("DTL-VALUE-MASK", "the mask of the dropout of the softmax is left out"),
    "no mask at the end": ("DTL-VALUE-MASK", "the mask of the dropout with h features is left out"),
    "masks without dropout": ("DTL-VALUE-DROPOUT", "masks are counted with dropout=False, where there are none"),
    "always with dropout": ("DTL-VALUE-DROPOUT", "this is the block with dropout, also where dropout=False"),
    "scores twice without dropout": (
        "DTL-VALUE-DROPOUT",
        "two tensors like the scores are counted with dropout=False: the softmax's output is itself the factor then",
    ),
    "scores once": (
        "DTL-VALUE-SCORES",
        "one tensor like the scores is counted where there are two: softmax's output, and what dropout makes of it",
    ),
    "scores three times": (
        "DTL-VALUE-SCORES",
        "one tensor like the scores is counted too many: the scores before softmax are not kept, nor anything else",
    ),
    "no heads": ("DTL-VALUE-HEADS", "the scores have length * length elements for each head: heads is missing"),
    "scores per kv head": (
        "DTL-VALUE-HEADS",
        "scores are counted for each head of the key: each query head has its own",
    ),
    "length once": ("DTL-VALUE-SCORES", "the scores have length elements for each token of each head: length squared"),
    "scores of hidden": ("DTL-VALUE-SCORES", "the scores do not grow with hidden: a number for each pair of tokens"),
    "no scores": ("DTL-VALUE-SCORES", "nothing of length * length elements is counted"),
    "scores without batch": ("DTL-VALUE-SCORES", "the scores are those of one sequence: batch is missing"),
    "scores kept anyway": ("DTL-VALUE-KEEP-SCORES", "keep_scores=False is ignored: the scores are counted"),
    "mask kept": (
        "DTL-VALUE-KEEP-SCORES",
        "the mask of the softmax's dropout is counted with keep_scores=False: it has s times s elements per head, too",
    ),
    "scores subtracted": (
        "DTL-VALUE-KEEP-SCORES",
        "two tensors like the scores and a mask are subtracted for keep_scores=False: with dropout=False there is one "
        "tensor, and no mask",
    ),
    "query and key gone": (
        "DTL-VALUE-KEEP-SCORES",
        "query and key are left out with keep_scores=False: the scores are computed again from them",
    ),
    "query is grouped": ("DTL-VALUE-KV-HEADS", "the query has kv_heads here: it has all heads"),
    "kv_heads ignored": ("DTL-VALUE-KV-HEADS", "kv_heads is ignored: key and value have as many features as query"),
    "only key is grouped": (
        "DTL-VALUE-KV-HEADS",
        "kv_heads counts for key and for value; one of them has all heads here",
    ),
    "one value": ("DTL-VALUE-KEPT-LEFT-OUT", "one of query, key and value is left out: all three are kept"),
    "three inputs": (
        "DTL-VALUE-COUNTED-TWICE",
        f"one tensor of sbh elements too many is counted, or two: {_ONE_INPUT}",
    ),
    "two inputs": ("DTL-VALUE-COUNTED-TWICE", f"one tensor of sbh elements too many is counted, or two: {_ONE_INPUT}"),
    "no input": ("DTL-VALUE-KEPT-LEFT-OUT", "an input of a linear layer is left out: each keeps its own"),
    "no inputs": ("DTL-VALUE-KEPT-LEFT-OUT", "the inputs of the linear layers are left out"),
    "no input of down": (
        "DTL-VALUE-KEPT-LEFT-OUT",
        "one tensor of 4h features is left out: GELU's input or its output",
    ),
    "h in place of 4h": ("DTL-VALUE-WIDTH", "the feed-forward network has 4h features inside, not h"),
    "GELU's output twice": (
        "DTL-VALUE-COUNTED-TWICE",
        "one tensor of 4h features too many: GELU's output is kept once",
    ),
    "one norm": ("DTL-VALUE-KEPT-LEFT-OUT", "one norm is counted: the block has two"),
    "norms keep both": ("DTL-VALUE-COUNTED-TWICE", "a norm's output is counted with it: a norm keeps its input only"),
    "one addition": ("DTL-VALUE-COUNTED-TWICE", "one tensor too many: additions keep nothing, and no mask stands here"),
    "4 bytes": ("DTL-VALUE-ARGUMENT-IGNORED", "an element has 4 bytes here whatever dtype is; dtype.itemsize says it"),
    "2 bytes": ("DTL-VALUE-ARGUMENT-IGNORED", "an element has 2 bytes here whatever dtype is; dtype.itemsize says it"),
    "half": ("DTL-VALUE-ELEMENTS", "this is a number of elements, not of bytes: times dtype.itemsize, but for masks"),
    "no batch": ("DTL-VALUE-ONE-SAMPLE", "these are the bytes of one sequence: batch is missing"),
    "total": ("DTL-VALUE-TOTAL", "this is the sum of all three parts"),
}


def inputs(case: Case) -> Given:
    g = case.generator()

    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=g))

    given: Given = []
    for options in case.params["options"]:
        kv_heads, shared = number(2, 5), number(2, 5)
        heads = kv_heads * shared
        sizes = [number(2, 9), 2 * number(4, 40) + 1, heads * (2 * number(2, 30) + 1), heads]
        options = {name: kv_heads if value == "grouped" else value for name, value in options.items()}
        given.append({"sizes": sizes, "options": options})
    return given[: case.world_size]


def on_rank(answer: Any, sizes: Any, options: Any) -> Any:
    if "dtype" in options:
        options = {**options, "dtype": getattr(torch, options["dtype"])}
    return answer(*sizes, **options)


def count(i: dict[str, Any], mistakes: frozenset[str] = frozenset()) -> Counts:
    """The bytes of each part, with these mistakes of `SAYS`."""
    (batch, length, hidden, heads), options, is_wrong = i["sizes"], i["options"], mistakes.__contains__
    item = _BYTES[options.get("dtype", "float16")]
    item = 4 if is_wrong("4 bytes") else 2 if is_wrong("2 bytes") else 1 if is_wrong("half") else item
    kept = options.get("keep_scores", True) or is_wrong("scores kept anyway")
    dropout = options.get("dropout", not is_wrong("no dropout by default")) or is_wrong("always with dropout")
    kv_heads = heads if is_wrong("kv_heads ignored") else options.get("kv_heads") or heads
    batch = 1 if is_wrong("no batch") else batch
    sbh, feature = batch * length * hidden, batch * length * hidden // heads
    scored = 1 if is_wrong("no heads") else kv_heads if is_wrong("scores per kv head") else heads
    scored *= 1 if is_wrong("scores without batch") else batch
    scores = scored * length * (1 if is_wrong("length once") else hidden if is_wrong("scores of hidden") else length)
    # How many tensors like the scores, and whether they have a mask.
    copies = 2 if dropout or is_wrong("scores twice without dropout") else 1
    copies += is_wrong("scores three times") - (is_wrong("scores once") and copies == 2)
    copies = copies if kept and not is_wrong("no scores") else 0
    # 5as/h of the formula goes, where as much was never counted.
    too_few = is_wrong("scores subtracted") and not kept and not dropout
    masked = dropout or is_wrong("masks without dropout")
    mask = item if is_wrong("masks in dtype") else 1 / 8 if is_wrong("masks of bits") else 1
    mask *= masked and not is_wrong("no masks")
    score_mask = mask * (
        (kept or is_wrong("mask kept")) and not is_wrong("no mask of scores") and not is_wrong("no scores")
    )
    copies, score_mask = (copies - 1, score_mask - 1) if too_few else (copies, score_mask)
    last_mask = mask * (kept or not is_wrong("all masks gone")) * (not is_wrong("no mask at the end"))
    query = (kv_heads if is_wrong("query is grouped") else heads) * feature
    others = 1 if is_wrong("one value") else 2
    key = feature * (kv_heads * others + (heads - kv_heads) * is_wrong("only key is grouped"))
    if is_wrong("query and key gone") and not kept:
        query, key = 0, feature * kv_heads
    layers = (
        2 + 2 * is_wrong("three inputs") + is_wrong("two inputs") - is_wrong("no input") - 2 * is_wrong("no inputs")
    )
    features = 8 - 4 * is_wrong("no input of down") + 4 * is_wrong("GELU's output twice")
    features = 2 if is_wrong("h in place of 4h") else features
    inner = features + 1 - (is_wrong("no input") or is_wrong("no inputs")) + is_wrong("one addition")
    norms = (1 if is_wrong("one norm") else 2) * (2 if is_wrong("norms keep both") else 1)
    made = {
        "norms": norms * sbh * item,
        "attention": (layers * sbh + query + key + copies * scores) * item + score_mask * scores + last_mask * sbh,
        "feed_forward": inner * sbh * item + last_mask * sbh,
    }
    return dict.fromkeys(made, sum(made.values())) if is_wrong("total") else made


def expected(case: Case, given: Given) -> list[Counts]:
    return [count(i) for i in given]


def task_text(case: Case, given: Given, rank: int) -> str:
    sizes, options = given[rank]["sizes"], given[rank]["options"]
    named = [f"{name}={f'torch.{v}' if name == 'dtype' else v}" for name, v in options.items()]
    return ", ".join([*map(str, sizes), *named])


_VALUES = Check(on_rank, inputs, expected, cases=_CASES, task_text=task_text, rtol=0.0, atol=0.0)
CHECK = replace(_VALUES, expected=None, verify=verified(_VALUES, count, SAYS), rules=[rules.most_messages("0")])
