# ch07.master_weights: edit this file, then run `dtlearn grade ch07.master_weights`.
"""Train weights of 16 bits through float32 masters.

A bfloat16 number near 1 has neighbours at a distance of about 1/128. An update of 1/1000 is rounded
away, and so are a thousand of them. So the optimizer works on a float32 copy of each weight, its
master, in which small updates add up; the model gets the master's value, rounded.

**Given** `parameters`, a list of a model's parameters: bfloat16, float16 and perhaps float32;
`optimizer_class`, such as `torch.optim.Adam`; and its `options`, such as `lr=0.01`.

**Return** an object with a method `step()`. It is used like this, for many steps:

```python
optimizer = master_weights(list(model.parameters()), torch.optim.Adam, lr=0.01)  # once
model.zero_grad()
loss.backward()                   # gradients have the type of their parameters
optimizer.step()
```

In `step()` the given optimizer updates the masters with the gradients, converted to float32. Then each
parameter gets the value of its master, rounded to its own type.

**Example**: one bfloat16 weight, SGD with lr = 0.001, gradient -1 in every step.

| | at the start | step 1 | step 2 | step 3 | step 4 | step 5 |
|---|---|---|---|---|---|---|
| master | 1 | 1.001 | 1.002 | 1.003 | 1.004 | 1.005 |
| weight | 1 | 1 | 1 | 1 | 1.0078125 | 1.0078125 |

**Rules**

- A parameter whose `.grad` is `None` in a step is left out of this step, as torch's optimizers do.
- Weights change in place: the parameters stay the same tensors, of the same types, in the same memory.
- A float32 parameter is trained like the others. It may be its own master.
- No communication.
"""

from typing import Any

import torch


class Masters:
    """Updates `parameters` through float32 masters."""

    def __init__(
        self,
        parameters: list[torch.nn.Parameter],
        optimizer_class: type[torch.optim.Optimizer],
        **options: Any,
    ) -> None:
        self.parameters = parameters
        raise NotImplementedError(
            "ch07.master_weights: make the masters, and the optimizer that updates "
            "them"
        )

    def step(self) -> None:
        """Update the masters with the parameters' gradients, and the parameters with the masters."""
        raise NotImplementedError(
            "ch07.master_weights: hand the gradients over, step, and round the masters "
            "into the parameters"
        )


def master_weights(
    parameters: list[torch.nn.Parameter],
    optimizer_class: type[torch.optim.Optimizer],
    **options: Any,
) -> Masters:
    """Return the object whose step() trains the parameters."""
    return Masters(parameters, optimizer_class, **options)
