# ch06.waiting_forward: edit this file, then run `dtlearn grade ch06.waiting_forward`.
"""Let each layer of the forward pass wait for its own gradient, and for no other.

A training program computes gradients on all ranks, and after each backward pass it starts an all-reduce for every
layer. It has no `optimizer.step()`: your hooks make the step, layer by layer, in the next forward pass.

**Given**

- `layers`, a list of modules in the order in which the forward pass uses them. No parameter is in two of them.
- `works`, a dict, empty at first, that the program and you share. After each backward pass it puts `works[i]`
  there for each layer i with gradients. `works[i].wait()` returns when the all-reduce of layer i has ended. Until
  then `p.grad` is this rank's own gradient, and afterwards the mean over all ranks. You may take entries out.
- `lr`, the learning rate.

**Do**, just before layer i computes its forward pass, if `works[i]` is there and was not yet used:

1. wait for it,
2. make one step of SGD with the layer's parameters, in place: p becomes p - lr · p.grad,
3. set their `p.grad` to `None`: the next backward pass begins anew.

A layer that is frozen never has an entry. In other layers some parameters may be frozen: their `p.grad` is `None`.
A layer may be used twice in one forward pass.

**Return** a function without arguments that does the same for all layers whose step is still to be made. The program
calls it after its last backward pass, before it saves the model.

**Example**: two layers. What happens, in this order:

| | in the first forward pass | in each later one | in the function that you return |
|---|---|---|---|
| 1 | layer 0 computes | wait for `works[0]`, step layer 0 | wait for `works[0]`, step layer 0 |
| 2 | layer 1 computes | layer 0 computes | wait for `works[1]`, step layer 1 |
| 3 | | wait for `works[1]`, step layer 1 | |
| 4 | | layer 1 computes | |

**Tool**: `layer.register_forward_pre_hook(f)` calls `f(layer, inputs)` each time before the layer computes. What `f`
returns, if it is not `None`, takes the place of the inputs.

**Rule**: you call nothing of `torch.distributed`.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist


def waiting_forward(layers: list[torch.nn.Module], works: dict[int, dist.Work], lr: float) -> Callable[[], None]:
    """Register the hooks; return the function that makes the last steps."""
    raise NotImplementedError(
        "ch06.waiting_forward: wait and step in a function, call it in a hook of each "
        "layer, and for all layers at the end"
    )
