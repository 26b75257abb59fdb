"""Lists every tensor with its shape; what two operations keep has one name, and so is counted once."""

import math

import torch


def activation_bytes(
    batch, length, hidden, heads, *, kv_heads=None, dropout=True, keep_scores=True, dtype=torch.float16
):
    wide, size = (batch, length, hidden), hidden // heads
    grouped = (batch, kv_heads or heads, length, size)
    square = (batch, heads, length, length)
    kept = {
        ("norms", "first"): (wide, dtype),
        ("norms", "second"): (wide, dtype),
        ("attention", "input"): (wide, dtype),
        ("attention", "query"): (wide, dtype),
        ("attention", "key"): (grouped, dtype),
        ("attention", "value"): (grouped, dtype),
        ("attention", "heads side by side"): (wide, dtype),
        ("feed_forward", "input"): (wide, dtype),
        ("feed_forward", "before GELU"): ((*wide, 4), dtype),
        ("feed_forward", "after GELU"): ((*wide, 4), dtype),
    }
    if keep_scores:
        kept["attention", "softmax"] = (square, dtype)
    if keep_scores and dropout:
        kept["attention", "softmax mask"] = (square, torch.bool)
        kept["attention", "after dropout"] = (square, dtype)
    if dropout:
        kept["attention", "mask"] = kept["feed_forward", "mask"] = (wide, torch.bool)
    made = {"norms": 0, "attention": 0, "feed_forward": 0}
    for (part, _), (shape, kind) in kept.items():
        made[part] += math.prod(shape) * kind.itemsize
    return made
