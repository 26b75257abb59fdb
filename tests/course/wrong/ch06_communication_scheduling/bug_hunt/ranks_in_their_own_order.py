# expect: DTL-MISTAKE
# says: each rank sends first what became ready last there

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.utils import parameters_to_vector


def bug_hunt(layers, forward, batches, held_out, lr, part):
    """Train in place; return the losses of both kinds."""
    optimizers = [torch.optim.SGD(layer.parameters(), lr=lr, momentum=0.9) for layer in layers]
    parts: dict[int, list[tuple[dist.Work, torch.Tensor]]] = {}

    def send() -> None:
        for i in sorted(range(len(layers)), key=called.index):
            flat = parameters_to_vector([p.grad for p in layers[i].parameters()]) / dist.get_world_size()
            parts[i] = [(dist.all_reduce(piece, async_op=True), piece) for piece in flat.split(part)]

    called = []

    def before_forward(i: int) -> None:
        if i not in called:
            called.append(i)
        if i not in parts:
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
