# expect: DTL-DIFFICULTY
# says: computes no gradient of a weight
# says: operations, not

from collections.abc import Sequence
from typing import Any

import torch


class SplitStage:
    """A stage whose backward pass has two parts."""

    def __init__(self, layers: Sequence[torch.nn.Linear]) -> None:
        self.layers = list(layers)
        self._inputs: dict[Any, list[torch.Tensor]] = {}
        self._gradients: dict[Any, list[torch.Tensor]] = {}

    def forward(self, k: int, x: torch.Tensor) -> torch.Tensor:
        """Run the layers, with a ReLU between them."""
        self._inputs[k] = []
        with torch.no_grad():
            for place, layer in enumerate(self.layers):
                x = x.relu() if place else x
                self._inputs[k].append(x)
                x = layer(x)
        return x

    def input_gradient(self, k: int, dy: torch.Tensor) -> torch.Tensor:
        """Return the gradient of the input; keep what the weights' gradients need."""
        self._gradients[k] = []
        with torch.no_grad():
            for place in reversed(range(len(self.layers))):
                self._gradients[k].insert(
                    0,
                    (
                        dy.reshape(-1, dy.shape[-1])[:, :, None]
                        * self._inputs[k][place].reshape(-1, self._inputs[k][place].shape[-1])[:, None, :]
                    ).sum(0),
                )
                self._b = getattr(self, "_b", {})
                self._b.setdefault(k, []).insert(0, dy.reshape(-1, dy.shape[-1]).sum(0))
                dy = dy @ self.layers[place].weight
                dy = dy * (self._inputs[k][place] > 0) if place else dy
        return dy

    def weight_gradients(self, k: int) -> None:
        """Add the gradients of the parameters, and forget the micro-batch."""
        for layer, _, dy in zip(self.layers, self._inputs.pop(k), self._gradients.pop(k), strict=True):
            add(layer.weight, dy)
            if layer.bias is None:
                self._b[k].pop(0)
            else:
                add(layer.bias, self._b[k].pop(0))


def add(parameter: torch.Tensor, gradient: torch.Tensor) -> None:
    """Add to `.grad`, which may be None."""
    parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient


def split_backward(layers: Sequence[torch.nn.Linear]) -> SplitStage:
    """Return an object with the methods forward, input_gradient and weight_gradients."""
    return SplitStage(layers)
