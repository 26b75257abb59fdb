# expect: DTL-MISTAKE
# says: the biases are left out

from itertools import pairwise

import torch


def count_a_step(
    widths: list[int],
    global_batch: int,
    num_ranks: int,
    *,
    optimizer: str,
    activation: str = "ReLU",
    bias: bool = True,
    dtype: torch.dtype = torch.float32,
) -> dict[str, int]:
    """Return the bytes of one rank, by category."""
    pairs = list(pairwise(widths))
    elements = sum(inputs * outputs for inputs, outputs in pairs)
    tensors = len(pairs) * (2 if bias else 1)
    copies = {"SGD": 0, "momentum": 1, "Adam": 2}[optimizer]
    counters = 4 * tensors if optimizer == "Adam" else 0
    kept_per_hidden_unit = 2 if activation == "GELU" else 1
    kept = kept_per_hidden_unit * sum(widths[1:-1]) + widths[-1] + widths[0]
    parameters = elements * dtype.itemsize
    return {
        "parameters": parameters,
        "gradients": parameters,
        "optimizer state": copies * parameters + counters,
        "activations": global_batch // num_ranks * kept * dtype.itemsize,
    }
