"""Find three bugs in a parameter server.

`as_found` below trains on all ranks: rank 0 is the server, the others are workers. With one worker, or
when all workers have the same number of batches, the loss falls and no rank fails. Bugs of the same three
kinds were found in public projects (hint 2 links the merged fixes, and so gives the bugs away). Nothing
else is wrong: whatever else looks odd is harmless. Find the bugs, and write the version without them. To
try the program, copy `as_found` with the imports above it into a `%%ranks` cell, and add:

```python
torch.manual_seed(rank)  # each worker has data of its own
batches = [(torch.randn(4, 3), torch.randn(4, 1)) for _ in range(4)] if rank > 0 else []
torch.manual_seed(0)  # and all have the same model
model = torch.nn.Linear(3, 1)
as_found(model, batches, lr=0.1)
print(model.weight, model.bias)
```

**Given** `model`, with equal float32 parameters on all ranks; `batches`, on a worker one or more pairs
`(x, y)`, one for each of its steps (other workers may have more batches, and batches of other sizes), and
`[]` on the server; and `lr`.

The models are trained in place. It should be **synchronous** SGD with momentum 0.9, as one process would do
it: the gradient of a step is the mean over all samples of all workers that still have a batch. The update
with number i, from 0, has the learning rate `lr / (1 + i)`. A worker's step ends when it has the
parameters after the update that its push is part of; with these it computes the next gradient. A worker
without a further batch is done, and the others go on without it. At the end the server's model has
the parameters after the last update, and a worker's model those after its own last step.

**Rule**: what is sent is sent between the server and a worker, with `send`, `recv`, `isend` and `irecv`.
"""

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.utils import parameters_to_vector, vector_to_parameters

SERVER = 0


def as_found(model: torch.nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]], lr: float) -> None:
    """The program with its three bugs."""
    parameters = list(model.parameters())
    flat = parameters_to_vector(parameters).detach()
    if dist.get_rank() != SERVER:
        for step, (x, y) in enumerate(batches):
            model.zero_grad()
            mse_loss(model(x), y).backward()
            dist.send(torch.tensor([len(x), len(batches) - step - 1]), SERVER)
            dist.send(parameters_to_vector([p.grad for p in parameters]), SERVER)
            dist.recv(flat, SERVER)
            vector_to_parameters(flat, parameters)
        return
    optimizer = torch.optim.SGD([flat], lr=lr, momentum=0.9)
    left = dict.fromkeys(range(1, dist.get_world_size()), 1)  # by worker: batches that it still has
    updates = 0
    while any(left.values()):
        optimizer.param_groups[0]["lr"] = lr / (1 + updates)
        total, samples = torch.zeros_like(flat), 0
        for worker in left:
            header, gradient = torch.empty(2, dtype=torch.int64), torch.empty_like(flat)
            dist.recv(header, worker)
            dist.recv(gradient, worker)
            total += header[0] * gradient
            samples += int(header[0])
            left[worker] = int(header[1])
            updates += 1
            dist.send(flat, worker)
        flat.grad = total / samples
        optimizer.step()
    vector_to_parameters(flat, parameters)


def bug_hunt(model: torch.nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]], lr: float) -> None:
    """Train in place: rank 0 serves, the others work."""
    # BEGIN SOLUTION: the same program without its three bugs
    parameters = list(model.parameters())
    flat = parameters_to_vector(parameters).detach()
    if dist.get_rank() != SERVER:
        for step, (x, y) in enumerate(batches):
            model.zero_grad()
            mse_loss(model(x), y).backward()
            dist.send(torch.tensor([len(x), len(batches) - step - 1]), SERVER)
            dist.send(parameters_to_vector([p.grad for p in parameters]), SERVER)
            dist.recv(flat, SERVER)
            vector_to_parameters(flat, parameters)
        return
    optimizer = torch.optim.SGD([flat], lr=lr, momentum=0.9)
    left = dict.fromkeys(range(1, dist.get_world_size()), 1)
    updates = 0
    while working := [worker for worker in left if left[worker]]:
        optimizer.param_groups[0]["lr"] = lr / (1 + updates)
        total, samples = torch.zeros_like(flat), 0
        for worker in working:
            header, gradient = torch.empty(2, dtype=torch.int64), torch.empty_like(flat)
            dist.recv(header, worker)
            dist.recv(gradient, worker)
            total += header[0] * gradient
            samples += int(header[0])
            left[worker] = int(header[1])
        flat.grad = total / samples
        optimizer.step()
        updates += 1
        for worker in working:
            dist.send(flat, worker)
    vector_to_parameters(flat, parameters)
    # END SOLUTION
