# expect: DTL-RAISED
# says: this one has norms, attention, mlp

import torch


def activation_bytes(
    batch, length, hidden, heads, *, kv_heads=None, dropout=True, keep_scores=True, dtype=torch.float16
):
    sbh, scores = batch * length * hidden, batch * heads * length**2
    return {"norms": 4 * sbh, "attention": 11 * sbh + 5 * scores, "mlp": 19 * sbh}
