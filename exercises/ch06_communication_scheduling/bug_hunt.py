# ch06.bug_hunt: edit this file, then run `dtlearn grade ch06.bug_hunt`.
"""Find three bugs in a scheduler that sends gradients by priority.

`as_found` below trains a model on all ranks. After each backward pass it starts the all-reduces of all layers, those
of layer 0 first, each gradient cut into parts; and each layer waits and makes its step just before it computes the
next time. In many runs the loss falls and no rank fails. Bugs of the same three kinds were found in public projects
(hint 2 links them, and so gives the bugs away). Nothing else is wrong: whatever else looks odd is harmless. (No
all-reduce starts before backward has ended; that is slower, and right.) Find the bugs, and write the version without
them. To try the program, copy `as_found` with the imports above it into a `%%ranks` cell, and add:

```python
torch.manual_seed(rank)  # each rank has data of its own
batches = [(torch.randn(4, 3), torch.randn(4, 3)) for _ in range(3)]
torch.manual_seed(0)  # and all have the same model
layers = [torch.nn.Linear(3, 3) for _ in range(2)]
forward = lambda x: layers[1](torch.tanh(layers[0](x)))
print(as_found(layers, forward, batches, batches[0], lr=0.1, part=6))
```

**Given**

- `layers`, modules that have equal float32 parameters on all ranks, all of them trained. Layer 0 is nearest to the
  input;
- `forward`, the forward pass of the model: `forward(x)` calls every layer once. With branches a rank may call them in
  another order than the others do;
- `batches`, this rank's pairs `(x, y)`, one for each step, of the same size on all ranks; `held_out`, one more pair;
- `lr`, and `part`, the elements of a part.

**Return** two lists with a number for each step: the loss of the rank's batch, before the step, and the loss on
`held_out`, after it.

On any number of ranks it should do what one process would do with all data: SGD with momentum 0.9, whose gradient is
the mean over all ranks' batches. At the end the model has the parameters after the last step.

**Rule**: gradients are averaged by `all_reduce`, in parts of at most `part` elements.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.utils import parameters_to_vector

Pair = tuple[torch.Tensor, torch.Tensor]


def as_found(
    layers: list[torch.nn.Module],
    forward: Callable[[torch.Tensor], torch.Tensor],
    batches: list[Pair],
    held_out: Pair,
    lr: float,
    part: int,
) -> tuple[list[float], list[float]]:
    """The program with its three bugs."""
    optimizers = [torch.optim.SGD(layer.parameters(), lr=lr, momentum=0.9) for layer in layers]
    priority: dict[int, int] = {}  # by layer: the highest is sent first
    parts: dict[int, list[tuple[dist.Work, torch.Tensor]]] = {}  # by layer: what is on its way

    def gradient_is_ready(i: int) -> None:
        priority.setdefault(i, len(priority))  # backward comes last to the layer nearest to the input

    def send() -> None:
        for i in sorted(priority, key=priority.__getitem__, reverse=True):
            flat = parameters_to_vector([p.grad for p in layers[i].parameters()]) / dist.get_world_size()
            parts[i] = [(dist.all_reduce(piece, async_op=True), piece) for piece in flat.split(part)]
        priority.clear()

    def before_forward(i: int) -> None:
        if i not in parts or not torch.is_grad_enabled():
            return
        own, start = list(layers[i].parameters()), 0
        flat = torch.zeros(sum(p.numel() for p in own))
        for work, piece in parts.pop(i):
            work.wait()
            flat[start : start + len(piece)] = piece
            start += len(piece)
            for p, gradient in zip(own, flat.split([p.numel() for p in own]), strict=True):
                p.grad = gradient.view_as(p)
            optimizers[i].step()
        optimizers[i].zero_grad()

    for i, layer in enumerate(layers):
        for p in layer.parameters():
            p.register_post_accumulate_grad_hook(lambda _, i=i: gradient_is_ready(i))
        layer.register_forward_pre_hook(lambda *_, i=i: before_forward(i))
    trained, evaluated = [], []
    for x, y in batches:
        loss = mse_loss(forward(x), y)
        loss.backward()
        send()
        trained.append(loss.item())
        with torch.no_grad():
            evaluated.append(mse_loss(forward(held_out[0]), held_out[1]).item())
    for i in range(len(layers)):  # the last step
        before_forward(i)
    return trained, evaluated


def bug_hunt(
    layers: list[torch.nn.Module],
    forward: Callable[[torch.Tensor], torch.Tensor],
    batches: list[Pair],
    held_out: Pair,
    lr: float,
    part: int,
) -> tuple[list[float], list[float]]:
    """Train in place; return the losses of both kinds."""
    raise NotImplementedError("ch06.bug_hunt: the same program without its three bugs")
