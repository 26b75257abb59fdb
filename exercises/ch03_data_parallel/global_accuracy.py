# ch03.global_accuracy: edit this file, then run `dtlearn grade ch03.global_accuracy`.
"""Compute accuracy and mean loss over a data set that is spread over the ranks, counting each sample
once.

A padded sampler dealt out n samples: rank r got positions r, r + N, r + 2N, ... Every rank got
equally many, so the last positions, from n on, are repeats.

**Given**

- `logits`, float32 of shape `(m, C)`: this rank's scores for the C classes, in the sampler's order
- `targets`, int64 of shape `(m,)`: the right classes
- `n`: the number of samples of the whole data set. m is n / N rounded up, on every rank.

**Return**, on every rank, `{"accuracy": ..., "loss": ...}`: two floats, over all n samples. The
prediction is the class with the highest score; a sample's loss is its cross-entropy; "loss" is the
mean.

**Example**: n = 3 on 2 ranks, so m = 2.

| | first | second |
|---|---|---|
| rank 0 | sample 0, right | sample 2, right |
| rank 1 | sample 1, wrong | sample 0 again, right |

The accuracy is 2/3 on both ranks. Counting the repeat would give 3/4.

**Beware**: there may be fewer samples than ranks. Then some ranks have padding only.

**Rule**: a rank sends at most 64 bytes: no logits. **Budget**, messages: 2 are good, 1 is optimal.
"""

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def global_accuracy(
    logits: torch.Tensor,
    targets: torch.Tensor,
    n: int,
) -> dict[str, float]:
    """Return accuracy and mean loss over the n samples of all ranks."""
    raise NotImplementedError(
        "ch03.global_accuracy: leave out the padding, add up over the ranks, and "
        "divide by n"
    )
