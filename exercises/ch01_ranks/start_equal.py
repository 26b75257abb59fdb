# ch01.start_equal: edit this file, then run `dtlearn grade ch01.start_equal`.
"""Make the models of all ranks equal before the first step.

Comes in: `model`, a torch.nn.Module. It has the same layers on every rank, but every rank
filled it with other numbers. Besides its parameters a model may have *buffers*: tensors that
are part of its state and have no gradient, such as the running mean of a BatchNorm layer.

Goes out: nothing is returned. Afterwards the model of every rank holds the numbers of rank 0's.

Example with 2 ranks and torch.nn.Linear(1, 1):
    rank 0: weight 0.3, bias 0.1        rank 1: weight -0.8, bias 0.5
    afterwards, on both: weight 0.3, bias 0.1

Rules: change the tensors in place. An optimizer that was made before must still hold the
model's parameters, and they must still require gradients.
"""

import torch
import torch.distributed as dist


def start_equal(model: torch.nn.Module) -> None:
    """Give every rank the state of rank 0's model, in place."""
    raise NotImplementedError(
        "ch01.start_equal: send all state of rank 0's model to the others"
    )
