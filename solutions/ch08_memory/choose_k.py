"""Choose how many layers a recomputed segment has.

A chain of equal layers is cut into segments of k layers; the last one has what is left over. Of each
segment the forward pass keeps only the input; backward computes its activations again, segment by
segment. **The last segment is not recomputed**: backward begins with it, so the forward pass keeps
its activations.

A layer's activations take `layer_bytes`, of which `input_bytes` are its input. (A segment's input is
that of its first layer.) When backward works on a segment, the activations of all its layers are
there, and the inputs of all segments before it. What belongs to later segments is freed. The peak of
memory is the largest number of bytes that are held at any time.

The ranks train one model, and their layers communicate, so **all ranks need the same k**. They do not
have the same room: `free_bytes` is what this rank has for activations. All other arguments are the
same on all ranks.

**Return** the k, from 1 to `num_layers`, with the fewest layers to recompute whose peak fits on every
rank. A peak of exactly `free_bytes` fits. Of several take the one with the lowest peak; if that is equal
too, any of them is right, the same on all ranks. Return `None` on all ranks if no k fits.

**Example**: 5 layers of 10 bytes, 1 byte of which is the input. Rank 0 has 36 bytes, rank 1 has 25.

| k | segments | recomputed layers | the worst moment | peak |
|---|---|---|---|---|
| 1 | 1 1 1 1 1 | 4 | last segment: 4 x 1 + 10 | 14 |
| 2 | 2 2 1 | 4 | second segment: 1 + 20 | 21 |
| 3 | 3 2 | 3 | first segment: 30 | 30 |
| 4 | 4 1 | 4 | first segment: 40 | 40 |
| 5 | 5 | 0 | 50 | 50 |

On rank 1 only k = 1 and k = 2 fit. Both recompute 4 layers, so both ranks return 1.

**Rule**: ranks learn of each other through `torch.distributed` only. Numbers of bytes are whole, up to
10^12, and one byte may decide.

**Budget**, per rank: 2 calls and 16 bytes are good; 1 call and 8 bytes are optimal. An answer that sends
more passes without a tier.
"""

import torch
import torch.distributed as dist


def choose_k(num_layers: int, layer_bytes: int, input_bytes: int, free_bytes: int) -> int | None:
    """Return the layers of a segment, the same on all ranks, or None if nothing fits."""
    # BEGIN SOLUTION: agree on the room, then try every k
    least = torch.tensor(free_bytes)  # int64
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    fitting = []
    for k in range(1, num_layers + 1):
        sizes = [min(k, num_layers - first) for first in range(0, num_layers, k)]
        peak = max(before * input_bytes + size * layer_bytes for before, size in enumerate(sizes))
        if peak <= least:
            fitting.append((num_layers - sizes[-1], peak, k))
    return min(fitting)[2] if fitting else None
    # END SOLUTION
