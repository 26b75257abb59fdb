"""The same server in `torch.distributed.rpc`, torch's own way: remote calls in place of messages.

    rpc.init_rpc(f"rank{rank}", rank=rank, world_size=world_size)
    if rank == 0:
        server = serve_by_rpc(RpcServer(parameters, make_optimizer, num_workers, synchronous=True), job)
    rpc.shutdown()  # waits until all are done

Tensors travel on the CPU; of a GPU rpc wants device maps. A process can start rpc once.

Source: PyTorch tutorial "Implementing Batch RPC Processing Using Asynchronous Executions", whose `async_execution` lets
a push return when the step's update is there, without a thread that waits for it.
"""

import threading
from collections.abc import Callable, Iterable

import torch
from torch import nn
from torch.distributed import rpc

Job = Callable[[int, int, list[torch.Tensor]], tuple[list[torch.Tensor], int]]  # see `serve_by_rpc`


class RpcServer:
    """Keeps the parameters; its methods are called by workers, each call in a thread of its own.

    **Communication**: as of the other server: a worker pulls n and pushes n, in pickles of a few hundred bytes more.
    **Memory**: parameters, one gradient of each worker, and the optimizer's state.

    Args:
        parameters: initial values, copied.
        make_optimizer: builds the optimizer from the parameters.
        num_workers: whose pushes make a synchronous step, to the end: one that is done early, or dead, holds up the
            others.
        synchronous: False: a push is applied as it arrives.
    """

    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        make_optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
        num_workers: int,
        synchronous: bool,
    ) -> None:
        self.parameters = [nn.Parameter(p.detach().clone()) for p in parameters]
        self.optimizer, self.num_workers, self.synchronous = make_optimizer(self.parameters), num_workers, synchronous
        self.version, self.lock = 0, threading.Lock()  # without the lock, a pull could see half of an update
        self.pushes: dict[int, tuple[list[torch.Tensor], int]] = {}
        self.updated: torch.futures.Future[int] = torch.futures.Future()  # the version of the coming update

    def pull(self) -> tuple[int, list[torch.Tensor]]:
        """Version and copies of the parameters."""
        with self.lock:
            return self.version, [p.detach().clone() for p in self.parameters]

    @staticmethod
    @rpc.functions.async_execution
    def push(
        server: rpc.RRef,
        worker: int,
        gradients: list[torch.Tensor],
        weight: int,
    ) -> torch.futures.Future[int]:
        """Hand in gradients, the mean over `weight` samples; what the caller gets is the version that has them."""
        here: RpcServer = server.local_value()
        with here.lock:
            here.pushes[worker] = gradients, weight
            updated = here.updated
            if not here.synchronous or len(here.pushes) == here.num_workers:
                here.update()
        return updated

    def update(self) -> None:
        """A step with the weighted mean of the pushes, added up by worker; then all who wait for it go on."""
        pushes = [self.pushes[worker] for worker in sorted(self.pushes) if self.pushes[worker][1]]  # 0 * NaN is NaN
        if not pushes:
            raise ValueError(f"a step needs a sample: workers {sorted(self.pushes)} pushed weights of 0")
        shares = [weight / sum(weight for _, weight in pushes) for _, weight in pushes]
        for k, p in enumerate(self.parameters):
            p.grad = pushes[0][0][k] * shares[0]
            for (gradients, _), share in zip(pushes[1:], shares[1:], strict=True):
                p.grad.add_(gradients[k], alpha=share)
        self.optimizer.step()
        self.version += 1
        self.pushes, updated, self.updated = {}, self.updated, torch.futures.Future()
        updated.set_result(self.version)


def work(server: rpc.RRef, worker: int, job: Job, num_steps: int) -> list[int]:
    """A worker: pull, compute, push. Returns the version that each of its gradients was computed from."""
    versions = []
    for number in range(num_steps):
        version, parameters = server.rpc_sync().pull()
        gradients, weight = job(worker, number, parameters)
        rpc.rpc_sync(server.owner(), RpcServer.push, (server, worker, gradients, weight))
        versions.append(version)
    return versions


def serve_by_rpc(server: RpcServer, job: Job, num_steps: int) -> list[list[int]]:
    """On the server: have every worker, `rank1` and so on, work, and wait for them. Returns what `work` does, of each.

    Args:
        server: on this rank.
        job: computes (gradients, samples) of (worker, number of its batch, parameters), which it must not change. It
            is pickled by its name: a function or class of a module that the workers can import.
        num_steps: of each worker.
    """
    here = rpc.RRef(server)
    calls = [
        rpc.rpc_async(f"rank{worker + 1}", work, (here, worker, job, num_steps), timeout=0)
        for worker in range(server.num_workers)
    ]
    return torch.futures.wait_all(calls)
