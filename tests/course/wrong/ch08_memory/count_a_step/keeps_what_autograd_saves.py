# expect: DTL-DIFFICULTY
# says: the output of each ReLU, once

import torch
from torch.nn.functional import mse_loss


def count_a_step(widths, global_batch, num_ranks, *, optimizer, activation="ReLU", bias=True, dtype=torch.float32):
    layers = []
    for i in range(len(widths) - 1):
        layers += [torch.nn.Linear(widths[i], widths[i + 1], bias=bias, dtype=dtype), getattr(torch.nn, activation)()]
    model = torch.nn.Sequential(*layers[:-1])
    x = torch.zeros(global_batch // num_ranks, widths[0], dtype=dtype)
    y = torch.zeros(global_batch // num_ranks, widths[-1], dtype=dtype)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.nbytes) or t, lambda t: t):
        mse_loss(model(x), y)
    size = sum(p.nbytes for p in model.parameters())
    state = {"SGD": 0, "momentum": size, "Adam": 2 * size + 4 * len([*model.parameters()])}[optimizer]
    return {"parameters": size, "gradients": size, "optimizer state": state, "activations": sum(saved)}
