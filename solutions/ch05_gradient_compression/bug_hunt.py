"""Find three bugs in a training loop that sends little, and rarely.

`as_found` below trains on all ranks: each trains a copy of the model alone, and now and then they meet and
exchange signs. The loss falls, and no rank fails. Bugs of the same three kinds were found in public
projects (hint 2 links the changes that mended them, and so gives the bugs away). Nothing else is wrong:
whatever else looks odd is harmless. (The all-reduce sends numbers, where a program in earnest would pack
the signs, and send one scale with them.) Find the bugs, and write the version without them. To try the program,
copy `as_found` with the imports above it into a `%%ranks` cell, and add:

```python
torch.manual_seed(rank)  # each rank has data of its own
batches = [(torch.randn(4, 3), torch.randn(4, 1)) for _ in range(4)]
torch.manual_seed(0)  # and all have the same model
model = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))
as_found(model, batches, epochs=3, h=2, lr=0.1)
print(model.state_dict())
```

**Given** `model`, equal on all ranks, with float32 parameters, and perhaps with buffers, as a BatchNorm
has; `batches`, this rank's list of pairs `(x, y)`, on all ranks as many; and numbers. `h` divides the
number of all steps, `epochs` times the batches.

The model is trained in place. Each step is one of SGD with momentum 0.9 on this rank's batch; the momentum
stays on its rank, and goes on after a meeting. After every `h` steps, **counted through all epochs**, the
ranks meet. There, for each parameter, a rank

1. takes its change since the last meeting (at first: since the start), and adds the **residual**, what of
   its earlier changes it has not sent; at first that is 0;
2. sends the signs of this sum (that of 0 is 0), times the mean of its absolute values, a scale for each
   parameter;
3. keeps what it has not sent, the difference, as the residual for the next meeting.

From the parameters of the last meeting all ranks go on by the mean over the ranks of what was sent: there
they all begin their next steps. The floating-point buffers of the model get their means over the ranks, at
each meeting and at no other time; buffers of whole numbers stay as they are. So all ranks have the same
model after a meeting, buffers included, and at the end.
"""

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss


def as_found(
    model: torch.nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]], epochs: int, h: int, lr: float
) -> None:
    """The program with its three bugs."""
    parameters, n = list(model.parameters()), dist.get_world_size()
    optimizer = torch.optim.SGD(parameters, lr=lr, momentum=0.9)
    starts = [p.detach().clone() for p in parameters]  # the parameters at the last meeting
    residuals = {}
    for _ in range(epochs):
        for step, (x, y) in enumerate(batches, start=1):
            optimizer.zero_grad()
            mse_loss(model(x), y).backward()
            optimizer.step()
            if step % h != 0:
                continue
            for p, start in zip(parameters, starts, strict=True):
                change = p.detach() - start
                total = change + residuals.get(change, 0.0)
                sent = total.sign() * total.abs().mean()
                residuals[change] = total - sent
                dist.all_reduce(sent)
                start += sent / n
                p.data.copy_(start)


def bug_hunt(
    model: torch.nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]], epochs: int, h: int, lr: float
) -> None:
    """Train the model in place, with few and small messages."""
    # BEGIN SOLUTION: the same program without its three bugs
    parameters, n = list(model.parameters()), dist.get_world_size()
    optimizer = torch.optim.SGD(parameters, lr=lr, momentum=0.9)
    starts = [p.detach().clone() for p in parameters]
    residuals = [torch.zeros_like(p) for p in starts]
    step = 0
    for _ in range(epochs):
        for x, y in batches:
            optimizer.zero_grad()
            mse_loss(model(x), y).backward()
            optimizer.step()
            step += 1
            if step % h != 0:
                continue
            for p, start, residual in zip(parameters, starts, residuals, strict=True):
                total = p.detach() - start + residual
                sent = total.sign() * total.abs().mean()
                residual.copy_(total - sent)
                dist.all_reduce(sent)
                start += sent / n
                p.data.copy_(start)
            for buffer in model.buffers():
                if buffer.is_floating_point():
                    dist.all_reduce(buffer)
                    buffer /= n
    # END SOLUTION
