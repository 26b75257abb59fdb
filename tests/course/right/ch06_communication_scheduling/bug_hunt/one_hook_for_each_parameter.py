import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss


class Scheduler:
    """Steps by hand, in a hook before each layer; sends what is ready as far as the order of the layers allows."""

    def __init__(self, layers, lr, part):
        self.layers, self.lr, self.part = layers, lr, part
        self.momentum, self.flying, self.ready = {}, {}, set()
        for i, layer in enumerate(layers):
            layer.register_forward_pre_hook(self.before(i))
            for p in layer.parameters():
                p.register_post_accumulate_grad_hook(self.arrived(i))

    def arrived(self, i):
        def hook(_):
            if all(p.grad is not None for p in self.layers[i].parameters()):
                self.ready.add(i)
                while (following := len(self.flying)) in self.ready:
                    self.send(following)

        return hook

    def send(self, i):
        own = [p.grad.flatten() for p in self.layers[i].parameters()]
        pieces = [piece.clone() for gradient in own for piece in gradient.split(self.part)]
        self.flying[i] = [(piece, dist.all_reduce(piece, async_op=True)) for piece in pieces]

    def before(self, i):
        def hook(*_):
            if i not in self.flying or i not in self.ready:
                return
            self.ready.remove(i)
            for _, work in self.flying[i]:
                work.wait()
            flat, at = torch.cat([piece for piece, _ in self.flying[i]]) / dist.get_world_size(), 0
            for p in self.layers[i].parameters():
                mean = flat[at : at + p.numel()].view_as(p)
                at += p.numel()
                self.momentum[p] = 0.9 * self.momentum.get(p, 0) + mean
                p.data -= self.lr * self.momentum[p]
                p.grad = None
            if not self.ready:
                self.flying.clear()

        return hook


def bug_hunt(layers, forward, batches, held_out, lr, part):
    Scheduler(layers, lr, part)
    losses, after = [], []
    for x, y in batches:
        loss = mse_loss(forward(x), y)
        losses.append(loss.item())
        loss.backward()
        after.append(mse_loss(forward(held_out[0]).detach(), held_out[1]).item())
    return losses, after
