# ch03.global_accuracy: edit this file, then run `dtlearn grade ch03.global_accuracy`.
"""Accuracy and mean loss over a data set that is spread over the ranks, with every sample counted once.

A sampler dealt the n samples out like cards: sample 0 to rank 0, sample 1 to rank 1, and so on, in
turn. All ranks must get equally many, so when the cards ran out it went on with samples that had
been dealt already: the padding. Each rank then computed the logits of its samples, in that order.

Comes in: `logits`, float32 of shape (m, C), a row of scores for the C classes for each sample of
this rank; `targets`, int64 of shape (m,), the right classes; and `n`, the number of samples of the
whole data set. m is n / N, rounded up, on every rank.

Goes out, on every rank: {"accuracy": ..., "loss": ...}, two floats, over all n samples. The
prediction is the class with the highest score; the loss of a sample is its cross-entropy; "loss" is
the mean.

Example with 2 ranks, n = 3, so m = 2: rank 0 has samples 0 and 2, rank 1 has sample 1 and a repeat
    rank 0: both right         rank 1: sample 1 wrong, the repeat right
    accuracy is 2/3 on both ranks; 3/4 counts the repeat

Beware: there may be fewer samples than ranks. Then some ranks have padding only.

Rule: a rank hands over at most 64 bytes; no logits travel. Budget, messages: good 2, optimal 1.
"""

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def global_accuracy(logits: torch.Tensor, targets: torch.Tensor, n: int) -> dict[str, float]:
    """Accuracy and mean loss over the n samples of all ranks."""
    raise NotImplementedError(
        "ch03.global_accuracy: leave out the padding, add up over the ranks, and "
        "divide by n"
    )
