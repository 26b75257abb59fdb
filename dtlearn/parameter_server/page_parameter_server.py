"""A parameter server on a page, over gloo: one rank keeps the parameters, the others compute."""

import queue
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.optim import Optimizer

SERVER, (PULL, PUSH, DONE) = 0, range(3)  # the server's rank, all others are workers; what they say


class OneServer:
    """Keeps all parameters as one vector, and the optimizer's state.

        flat = nn.Parameter(parameters_to_vector(model.parameters()).detach())
        OneServer(flat, torch.optim.SGD([flat], lr=0.1), synchronous=True).serve()

    **Communication** (n bytes of parameters, N workers): sends and receives N n in a step.
    **Memory**: n, the optimizer's state, and n for each push that waits for the rest of its step.
    """

    def __init__(self, flat: nn.Parameter, optimizer: Optimizer, synchronous: bool) -> None:
        self.flat, self.optimizer, self.synchronous = flat, optimizer, synchronous  # (n,)
        self.workers = set(range(1, dist.get_world_size()))  # that still train
        self.inbox: queue.SimpleQueue[tuple[int, int, torch.Tensor]] = queue.SimpleQueue()
        self.pulls: list[int] = []  # workers that wait for parameters
        self.pushes: dict[int, torch.Tensor] = {}  # by worker: gradients that wait for the others'
        self.version = 0  # updates so far
        self.pulled: dict[int, int] = {}  # by worker: the version that it has
        self.staleness: list[int] = []  # of each push: updates between its pull and its own

    def serve(self) -> None:
        """Take one message after the other, so that nobody gets half of an update."""
        for worker in self.workers:
            threading.Thread(target=self.listen, args=(worker,), daemon=True).start()
        while self.workers:
            worker, kind, gradient = self.inbox.get()
            if kind == PULL:
                self.pulls.append(worker)
            elif kind == PUSH:
                self.pushes[worker] = gradient
                self.staleness.append(self.version - self.pulled[worker])
            else:
                self.workers.remove(worker)
            if self.pushes and (not self.synchronous or self.pushes.keys() >= self.workers):
                gradients = [self.pushes.pop(worker) for worker in sorted(self.pushes)]
                self.flat.grad = torch.stack(gradients).mean(0)  # (n,)
                self.optimizer.step()
                self.version += 1
            for worker in [w for w in self.pulls if w not in self.pushes]:
                self.pulls.remove(worker)
                self.pulled[worker] = self.version
                dist.send(self.flat.detach(), worker)

    def listen(self, worker: int) -> None:
        """In a thread for each worker: any of them may be the next to speak."""
        kind, gradient = torch.tensor(PULL), torch.empty(0)
        while kind != DONE:
            dist.recv(kind, worker)
            if kind == PUSH:
                gradient = torch.empty_like(self.flat)  # (n,)
                dist.recv(gradient, worker)
            self.inbox.put((worker, int(kind), gradient))


def pull(parameters: list[nn.Parameter]) -> None:
    """On a worker: take the server's parameters. At the end it sends DONE instead."""
    dist.send(torch.tensor(PULL), SERVER)
    flat = parameters_to_vector(parameters).detach()  # (n,)
    dist.recv(flat, SERVER)
    vector_to_parameters(flat, parameters)


def push(gradients: list[torch.Tensor]) -> None:
    """On a worker: give the server the gradients of what was pulled last."""
    dist.send(torch.tensor(PUSH), SERVER)
    dist.send(parameters_to_vector(gradients), SERVER)
