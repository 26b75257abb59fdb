# expect: DTL-RAISED
# says: this one has total

from itertools import pairwise

import torch


def count_a_step(widths, global_batch, num_ranks, *, optimizer, activation="ReLU", bias=True, dtype=torch.float32):
    elements = sum((inputs + bias) * outputs for inputs, outputs in pairwise(widths))
    return {"total": 4 * elements * dtype.itemsize}
