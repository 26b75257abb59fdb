"""Split the backward pass of a stage: the gradient of its input now, those of its weights later.

The stage is a list of linear layers with a ReLU between any two of them; after the last one there is none. For a
layer y = x A^T + b, the gradient of the input is dx = dy A, and those of the parameters are dA = dy^T x and the sum
of dy over all rows. The previous rank waits for dx, and nobody waits for dA.

**Given** `layers`, a list of `torch.nn.Linear`; some have no bias.

**Return** an object with three methods, which are called for each micro-batch k, in this order:

| method | does | returns |
|---|---|---|
| `forward(k, x)` | F: the forward pass | the output of the last layer |
| `input_gradient(k, dy)` | I: takes the gradient of that output | the gradient of x |
| `weight_gradients(k)` | W: adds the gradients of this micro-batch to `weight.grad` and `bias.grad` | nothing |

The last dimension of x holds the features, and there may be any number of dimensions before it, also none. A `.grad`
may be `None` or hold a gradient already, to which you add.

**Rules**

- Several micro-batches are under way at the same time, and their calls are mixed: F 0, F 1, I 0, F 2, I 1, W 1,
  W 0 and so on. After W of k the same number may come again with another x.
- I does one matrix product for each layer, and so does W: their floating-point operations are counted. So I
  computes no gradient of a weight, and W computes no gradient of an input and no forward pass.
- **Memory**: after W of k the stage holds nothing of k: no input, no output, no gradient except in `.grad`.

**Example** of one layer without bias, A = [[2, 3]], and one row:

| call | returns | `weight.grad` |
|---|---|---|
| `forward(0, [[1, 4]])` | [[14]] | `None` |
| `input_gradient(0, [[10]])` | [[20, 30]] | `None` |
| `weight_gradients(0)` | | [[10, 40]] |
"""

from collections.abc import Sequence
from typing import Any

import torch


class SplitStage:
    """A stage whose backward pass has two parts."""

    def __init__(self, layers: Sequence[torch.nn.Linear]) -> None:
        self.layers = list(layers)
        # BEGIN SOLUTION: what is kept of each micro-batch
        self._inputs: dict[Any, list[torch.Tensor]] = {}  # of each layer, from F to W
        self._gradients: dict[Any, list[torch.Tensor]] = {}  # of each layer's output, from I to W
        # END SOLUTION

    def forward(self, k: int, x: torch.Tensor) -> torch.Tensor:
        """Run the layers, with a ReLU between them."""
        # BEGIN SOLUTION: keep the input of each layer
        self._inputs[k] = []
        with torch.no_grad():
            for place, layer in enumerate(self.layers):
                x = x.relu() if place else x
                self._inputs[k].append(x)
                x = layer(x)
        return x
        # END SOLUTION

    def input_gradient(self, k: int, dy: torch.Tensor) -> torch.Tensor:
        """Return the gradient of the input; keep what the weights' gradients need."""
        # BEGIN SOLUTION: from the last layer to the first
        self._gradients[k] = []
        with torch.no_grad():
            for place in reversed(range(len(self.layers))):
                self._gradients[k].insert(0, dy)
                dy = dy @ self.layers[place].weight
                dy = dy * (self._inputs[k][place] > 0) if place else dy
        return dy
        # END SOLUTION

    def weight_gradients(self, k: int) -> None:
        """Add the gradients of the parameters, and forget the micro-batch."""
        # BEGIN SOLUTION: one matrix product a layer
        for layer, x, dy in zip(self.layers, self._inputs.pop(k), self._gradients.pop(k), strict=True):
            x, dy = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
            add(layer.weight, dy.t() @ x)
            if layer.bias is not None:
                add(layer.bias, dy.sum(0))
        # END SOLUTION


def add(parameter: torch.Tensor, gradient: torch.Tensor) -> None:
    """Add to `.grad`, which may be None."""
    parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient


def split_backward(layers: Sequence[torch.nn.Linear]) -> SplitStage:
    """Return an object with the methods forward, input_gradient and weight_gradients."""
    return SplitStage(layers)
