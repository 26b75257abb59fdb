"""Cut the parameters of a model into N equal shards, and put them together again.

ZeRO gives each of N ranks one shard of everything. Parameters have any shapes, so they are put one
after the other into a flat buffer, which is padded with zeros at its end and cut into N shards of
one length. A cut can go through a parameter.

**Given** `tensors`, a list of one or more tensors of any shapes (also `()`, and shapes without
elements; some are not contiguous), and `num_ranks`, N.

**Return** a tuple of two:

1. `shards`, a list of N vectors of one length, the smallest that suffices. Shard r is what rank r
   owns.
2. `restore`, a function, which is called any number of times. Given N vectors of that length, which
   may have other values by then, it returns the list of tensors that they hold, in the old shapes and
   without the padding.

Shards and restored tensors have the dtype of `tensors`. If there is more than one dtype among
them, raise a `ValueError`: a flat buffer has one.

**Example**: `tensors` of the shapes (2, 2) and (3,), N = 3. 7 elements need 2 of padding.

| | |
|---|---|
| `tensors` | `[[1, 2], [3, 4]]`, `[5, 6, 7]` |
| `shards` | `[1, 2, 3]`, `[4, 5, 6]`, `[7, 0, 0]` |
| `restore([[10, 20, 30], [40, 50, 60], [70, 8, 9]])` | `[[10, 20], [30, 40]]`, `[50, 60, 70]` |

**Rules**: no communication. `tensors` stay as they are.
"""

from collections.abc import Callable, Sequence

import torch


def flat_shards(
    tensors: Sequence[torch.Tensor], num_ranks: int
) -> tuple[list[torch.Tensor], Callable[[list[torch.Tensor]], list[torch.Tensor]]]:
    """Return the shards of all ranks, and the function that makes tensors of shards."""
    # BEGIN SOLUTION: flatten, pad, cut; and the way back
    if len({tensor.dtype for tensor in tensors}) > 1:
        raise ValueError("a flat buffer has one dtype")
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    padding = flat.new_zeros(-len(flat) % num_ranks)
    padded = torch.cat([flat, padding])
    length = len(padded) // num_ranks
    shards = [padded[rank * length :][:length] for rank in range(num_ranks)]

    def restore(shards: list[torch.Tensor]) -> list[torch.Tensor]:
        whole, tensors_again, start = torch.cat(list(shards)), [], 0
        for tensor in tensors:
            values = whole[start : start + tensor.numel()]
            tensors_again.append(values.reshape(tensor.shape))
            start += tensor.numel()
        return tensors_again

    return shards, restore
    # END SOLUTION
