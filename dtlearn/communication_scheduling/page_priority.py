"""Priority scheduling on a page: layers near the input send first, and each waits for its own."""

import queue
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer


class PriorityScheduler:
    """Averages gradients by priority; a layer (all trained) steps before its next forward pass.

        scheduler = PriorityScheduler(layers, optimizers, size=65536, credit=2)
        for x, y in batches:
            loss_fn(model(x), y).backward()
        scheduler.synchronize()

    **Communication**: a broadcast and an all-reduce a partition. **Memory**: the gradients twice.
    """

    def __init__(self, layers: nn.ModuleList, optimizers: list[Optimizer], size: int, credit: int):
        self.layers, self.optimizers = layers, optimizers  # in the order of the forward pass
        self.size, self.credit = size, credit  # elements of a partition; partitions in flight
        self.numels = [sum(p.numel() for p in layer.parameters()) for layer in layers]
        self.group, self.talk = dist.new_group(), dist.new_group(backend="gloo")
        self.due: set[int] = set()  # layers that have not made this step
        for i, layer in enumerate(layers):
            layer.register_forward_pre_hook(lambda *_, i=i: self.wait(i))
            for p in layer.parameters():
                p.register_post_accumulate_grad_hook(lambda _, i=i: self.gradient_is_ready(i))

    def gradient_is_ready(self, i: int) -> None:
        if not self.due:  # the first gradient of a backward pass
            self.due = set(range(len(self.layers)))
            self.waiting = queue.PriorityQueue[tuple[int, int]]()  # (layer, start): may leave
            self.flat = [torch.empty(0)] * len(self.layers)  # gradients
            self.ready = [threading.Event() for _ in self.layers]  # its gradient can be sent
            self.works = [queue.SimpleQueue[dist.Work]() for _ in self.layers]  # under way
            threading.Thread(target=self.send, daemon=True).start()
        gradients = [p.grad for p in self.layers[i].parameters() if p.grad is not None]
        if sum(g.numel() for g in gradients) == self.numels[i]:  # all are there
            flat = torch.cat([g.flatten() for g in gradients])  # (n_i,)
            self.flat[i] = flat / dist.get_world_size()
            self.ready[i].set()
            for start in range(0, self.numels[i], self.size):
                self.waiting.put((i, start))

    def send(self) -> None:
        """In a thread. What has left cannot be overtaken, so few leave at once (not so on NCCL)."""
        in_flight: list[dist.Work] = []
        for _ in range(sum(len(range(0, n, self.size)) for n in self.numels)):
            if len(in_flight) == self.credit:
                in_flight.pop(0).wait()
            # Rank 0 chooses the layer nearest to the input, of what it has: one order for all.
            chosen = torch.tensor(self.waiting.get() if dist.get_rank() == 0 else (0, 0))
            dist.broadcast(chosen, 0, group=self.talk)
            i, start = chosen.tolist()
            self.ready[i].wait()  # here, too
            piece = self.flat[i][start : start + self.size]  # (size,), or less
            in_flight.append(dist.all_reduce(piece, group=self.group, async_op=True))
            self.works[i].put(in_flight[-1])

    def wait(self, i: int) -> None:
        """Before layer i's forward pass: its own gradient has to be there, and no other."""
        if i in self.due:
            for _ in range(0, self.numels[i], self.size):
                self.works[i].get().wait()
            own = list(self.layers[i].parameters())
            for p, mean in zip(own, self.flat[i].split([p.numel() for p in own]), strict=True):
                p.grad = mean.view_as(p)
            self.optimizers[i].step()
            self.optimizers[i].zero_grad()
            self.due.remove(i)

    def synchronize(self) -> None:
        """Make the steps that are due: before parameters are read or saved."""
        for i in range(len(self.layers)):
            self.wait(i)
