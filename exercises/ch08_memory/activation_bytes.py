# ch08.activation_bytes: edit this file, then run `dtlearn grade ch08.activation_bytes`.
"""Count the activations of one transformer block, as a formula that holds for every size.

A block of GPT's kind, written operation by operation; b is the batch, s the sequence length, h the hidden
size, a the number of heads. Each operation keeps what its gradients are computed from:

| part | operation | keeps |
|---|---|---|
| norms | layer norm | its input |
| attention | three linear layers make query, key and value of one input | that input |
| attention | scores: query times key, for each head | both factors |
| attention | softmax of the scores | its output |
| attention | dropout of that | a mask |
| attention | the result of it times value, for each head | both factors |
| attention | linear layer | its input |
| attention | dropout | a mask |
| norms | layer norm | its input |
| feed_forward | linear layer, h to 4h | its input |
| feed_forward | GELU | its input |
| feed_forward | linear layer, 4h to h | its input |
| feed_forward | dropout | a mask |

After each of the two dropouts with h features a residual is added, which keeps nothing. A mask has one
byte per element. All other tensors have `dtype`. Weights are not activations, and the mean and variance
of the norms are left out.

**Given** `batch`, `length`, `hidden` and `heads`; `kv_heads`, the heads of key and of value: with fewer
than `heads`, as in grouped-query attention, several query heads share one without a copy; None means
`heads`. All heads have `hidden // heads` features. `dropout`: False means that the three dropouts are not
there. `keep_scores`: False means that the backward pass computes everything of s times s elements per head
again, and none of it is kept. `dtype`, such as `torch.float16`.

**Return** a dict of whole numbers, the bytes of the parts `"norms"`, `"attention"` and `"feed_forward"`.
A tensor that two operations of a part keep is in memory once.

**Example**: b = 1, s = 2, h = 4, two heads, float16:

| | norms | attention | feed_forward |
|---|---|---|---|
| with dropout | 32 | 128 | 152 |
| without | 32 | 96 | 144 |
| with dropout, `keep_scores=False` | 32 | 88 | 152 |

**Rule**: no communication.
"""

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
    raise NotImplementedError(
        "ch08.activation_bytes: the bytes of norms, attention and feed-forward network"
    )
