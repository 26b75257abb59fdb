# ch01.start_equal: edit this file, then run `dtlearn grade ch01.start_equal`.
"""Make the models of all ranks equal before the first step.

`model` is a `torch.nn.Module`. It has the same layers on every rank, but different numbers in them. Afterwards the
model of every rank holds the numbers of rank 0. Return nothing.

A model has more state than its parameters: *buffers* are tensors without a gradient, such as the running mean of a
BatchNorm layer. Every buffer counts, also one that was registered with `persistent=False`.

Example with 2 ranks and `torch.nn.Linear(1, 1)`:

| | rank 0 | rank 1 |
|---|---|---|
| before | weight 0.3, bias 0.1 | weight -0.8, bias 0.5 |
| after | weight 0.3, bias 0.1 | weight 0.3, bias 0.1 |

- Change the tensors in place: an optimizer made before this call must still hold the model's parameters.
- Leave `requires_grad` of every parameter as it is.
"""

import torch
import torch.distributed as dist


def start_equal(model: torch.nn.Module) -> None:
    """Give every rank the state of rank 0's model, in place."""
    raise NotImplementedError(
        "ch01.start_equal: send all state of rank 0's model to the others"
    )
