# ch08.count_a_step: edit this file, then run `dtlearn grade ch08.count_a_step`.
"""Count the bytes of a training step before it runs.

A multilayer perceptron is trained with data parallelism: linear layers from one width to the next, an
activation function between every two of them, and the mean squared error of the outputs. Count what **one
rank** holds, to the byte.

**Given** `widths`, from the inputs to the outputs; `global_batch`, the samples of a step on all
`num_ranks` ranks together, which share them evenly; `optimizer`, `"SGD"`, `"momentum"` (SGD with
momentum) or `"Adam"`; `activation`, `"ReLU"` or `"GELU"`; `bias`, whether the layers have one; and
`dtype`, of all parameters and data, such as `torch.bfloat16`.

**Return** a dict of four whole numbers, bytes:

- `"parameters"`: of the model
- `"gradients"`: of the parameters, after the backward pass
- `"optimizer state"`: after the first step
- `"activations"`: what autograd keeps from the forward pass to the backward pass

An operation keeps the tensors that its gradients are computed from:

| operation | keeps |
|---|---|
| linear layer | its input, and its weight |
| ReLU | its output |
| GELU | its input |
| mean squared error | outputs and targets |

An activation is a tensor that the forward pass makes and that something keeps. So the weights are not
activations, and neither are the batch's inputs and targets, which were there before. A tensor that two
operations keep is in memory once.

Momentum is a tensor like the parameter, with its dtype. Adam keeps two of these, and for each parameter
tensor (a weight or a bias) the number of steps as a float32 number. DDP's buckets need not be counted: the
gradients lie in them here (`gradient_as_bucket_view=True`).

**Example**: `count_a_step([4, 3, 2], 8, 2, optimizer="Adam")`, so 4 samples on each rank, in float32:

| | bytes |
|---|---|
| parameters | 92 |
| gradients | 92 |
| optimizer state | 200 |
| activations | 80 |

**Rule**: no communication.
"""

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
    raise NotImplementedError(
        "ch08.count_a_step: count the elements of each category, then their bytes"
    )
