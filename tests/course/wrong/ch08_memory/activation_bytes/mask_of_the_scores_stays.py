# expect: DTL-VALUE-KEEP-SCORES
# says: it has s times s elements per head, too

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
    all_scores = batch * heads * length**2
    scores = all_scores if keep_scores else 0
    key = sbh // heads * (heads if kv_heads is None else kv_heads)
    mask = 1 if dropout else 0
    copies_of_scores = 2 if dropout else 1
    return {
        "norms": 2 * sbh * dtype.itemsize,
        "attention": (3 * sbh + 2 * key + copies_of_scores * scores) * dtype.itemsize + mask * (all_scores + sbh),
        "feed_forward": (sbh + 4 * sbh + 4 * sbh) * dtype.itemsize + mask * sbh,
    }
