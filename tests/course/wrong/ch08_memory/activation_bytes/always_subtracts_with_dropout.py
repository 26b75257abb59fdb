# expect: DTL-MISTAKE
# says: two tensors like the scores and a mask are subtracted for keep_scores=False

import torch


def activation_bytes(
    batch: int,
    length: int,
    hidden: int,
    heads: int,
    *,
    kv_heads: int | None = None,
    dropout: bool = True,
    keep_scores: bool = True,
    dtype: torch.dtype = torch.float16,
) -> dict[str, int]:
    """Return the bytes that autograd keeps of a block, by part."""
    sbh = batch * length * hidden
    scores = batch * heads * length**2
    key = sbh // heads * (heads if kv_heads is None else kv_heads)
    mask = 1 if dropout else 0
    attention = (3 * sbh + 2 * key + (1 + mask) * scores) * dtype.itemsize + mask * (scores + sbh)
    if not keep_scores:
        attention -= scores * (1 + 2 * dtype.itemsize)
    return {
        "norms": 2 * sbh * dtype.itemsize,
        "attention": attention,
        "feed_forward": (sbh + 4 * sbh + 4 * sbh) * dtype.itemsize + mask * sbh,
    }
