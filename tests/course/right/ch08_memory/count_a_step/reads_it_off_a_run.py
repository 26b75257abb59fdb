"""Builds the model, takes a step, and looks at what is there; autograd says itself what it keeps."""

import torch
from torch.nn.functional import mse_loss


def count_a_step(widths, global_batch, num_ranks, *, optimizer, activation="ReLU", bias=True, dtype=torch.float32):
    layers = []
    for i in range(len(widths) - 1):
        layers += [torch.nn.Linear(widths[i], widths[i + 1], bias=bias, dtype=dtype), getattr(torch.nn, activation)()]
    model = torch.nn.Sequential(*layers[:-1])
    make = {
        "SGD": (torch.optim.SGD, {}),
        "momentum": (torch.optim.SGD, {"momentum": 0.9}),
        "Adam": (torch.optim.Adam, {}),
    }
    maker, options = make[optimizer]
    trainer = maker(model.parameters(), lr=0.1, **options)
    x = torch.zeros(global_batch // num_ranks, widths[0], dtype=dtype)
    y = torch.zeros(global_batch // num_ranks, widths[-1], dtype=dtype)

    def size(tensors):
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
        return sum(storages.values())

    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        loss = mse_loss(model(x), y)
    there = [x, y, *model.parameters()]
    activations = size([*kept, *there]) - size(there)
    loss.backward()
    trainer.step()
    state = [t for one in trainer.state.values() for t in one.values() if isinstance(t, torch.Tensor)]
    return {
        "parameters": size(model.parameters()),
        "gradients": size([p.grad for p in model.parameters()]),
        "optimizer state": size(state),
        "activations": activations,
    }
