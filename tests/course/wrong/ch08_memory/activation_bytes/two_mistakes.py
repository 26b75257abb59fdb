# expect: DTL-MISTAKE
# says: it has 4h features inside, not h

import torch


def activation_bytes(
    batch, length, hidden, heads, *, kv_heads=None, dropout=True, keep_scores=True, dtype=torch.float16
):
    """One tensor after the other; the scores have no heads, and the feed-forward network is narrow."""
    wide, pairs = batch * length * hidden, batch * length * length
    grouped = wide * (kv_heads or heads) // heads
    attention = [wide, wide, grouped, grouped, wide]
    masks = []
    if keep_scores:
        attention += [pairs]
        if dropout:
            attention += [pairs]
            masks += [pairs]
    if dropout:
        masks += [wide]
    return {
        "norms": 2 * wide * dtype.itemsize,
        "attention": sum(attention) * dtype.itemsize + sum(masks),
        "feed_forward": 3 * wide * dtype.itemsize + wide * dropout,
    }
