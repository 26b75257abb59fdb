# ch08.checkpoint: edit this file, then run `dtlearn grade ch08.checkpoint`.
"""Write `checkpoint`: activations that are not kept, but computed again.

Autograd keeps the activations of a function until backward. A checkpoint keeps only the function's
inputs. When backward comes to it, the function runs a second time, now with a graph, and backward goes
on through that graph.

**Given** `function` and its `inputs`. Some are tensors, with or without a gradient, of any dtype; others
are numbers or `None`. None of them is changed. The function also uses parameters, which are not among
its inputs. It returns a tensor, or a tuple of tensors.

**Return** what `function(*inputs)` returns. After `backward()` all gradients are those of a run without
a checkpoint: those of the inputs, and those of the parameters, in their `.grad`.

- Of the activations inside the function nothing is kept between forward and backward.
- The function runs once in forward and once in backward, on every rank: it may contain collectives.
- It may draw random numbers from torch's default generator (dropout). The second run draws those of the
  first. Whoever draws after it gets the numbers of a run without a checkpoint.
- No input of a function may require a gradient: a model's first layer has such an input, and its
  parameters need gradients all the same.
- Of several results some may not be used in the loss, and some may be integers.
- Under `torch.no_grad()` the result requires no gradient.

Checkpoints follow one another: the input of one is the result of the one before.

**Example**: two layers of the width 4, and 100 samples. Both ways end with the same gradients.

| | kept between forward and backward | runs of each layer |
|---|---|---|
| `y = layer2(layer1(x))` | `x`, the activations inside both layers, `y` | 1 |
| `h = checkpoint(layer1, x)`, `y = checkpoint(layer2, h)` | `x`, `h`, `y` | 2 |

**Rules**: everything runs on the CPU, without autocast and without second derivatives. Do not use
`torch.utils.checkpoint`.

**Budget**: n is the peak of memory of a good answer, in bytes of new tensors; 1.3 n is good, 1.1 n
is optimal.
"""

from collections.abc import Callable
from typing import Any

import torch


class Recompute(torch.autograd.Function):
    """A function that autograd sees as one step, with inputs in place of activations."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Any], *inputs: Any) -> Any:
        raise NotImplementedError(
            "ch08.checkpoint: run the function, and keep what a second run needs"
        )

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        raise NotImplementedError(
            "ch08.checkpoint: run the function again with a graph, and go backward "
            "through that"
        )


def checkpoint(function: Callable[..., Any], *inputs: Any) -> Any:
    """Return function(*inputs), whose activations are computed again in backward."""
    raise NotImplementedError(
        "ch08.checkpoint: apply Recompute, such that backward comes to it in any case"
    )
