"""What runs of the parameter server on the ranks: whole steps of each way, a pull and a push alone, a sparse table."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ....models.in_turns import Times
    from ....parameter_server.ranks.messages import Channels

SERVER, ASYNCHRONOUS, DDP, RPC = "server, synchronous", "server, asynchronous", "torch's DDP", "torch's rpc"
STEPS = 5  # of each worker, in each time that is taken
_PULL, _PUSH, _RECEIVE, _SEND = "pull", "push", "plain receive", "plain send"
_TABLE_STEPS = 20
_WARM, _SETTLE = 2, 0.03  # rounds that do not count; seconds until the other end is ready, and waits
_LR = 0.01


@dataclass(frozen=True)
class ServerWorkload:
    """What is trained: an MLP of these sizes, with so many samples for each worker."""

    sizes: tuple[int, ...] = (64, 1024, 512, 10)
    batch: int = 128

    def __call__(self, worker: int, number: int, parameters: list[torch.Tensor]) -> tuple[list[torch.Tensor], int]:
        """What an rpc worker computes: its gradients and their samples."""
        import torch

        model, step = _trained(self)
        with torch.no_grad():
            for own, value in zip(model.parameters(), parameters, strict=True):
                own.copy_(value)
        model.zero_grad()
        samples = step(number)
        return [p.grad for p in model.parameters() if p.grad is not None], samples


@dataclass(frozen=True)
class TableWorkload:
    """A table of which a worker looks up some rows in each step, and the classes that it learns from their mean."""

    num_rows: int = 1_000_000
    width: int = 64
    lookups: int = 1_920  # of each step, about as many different rows: 1 MB there and back
    samples: int = 60


class TableResult(NamedTuple):
    """What a recorded run with a table says.

    Attributes:
        sent, formula: bytes to and from the worker in its steps after the first, mean; recorded, and by formula.
        largest: bytes of its largest message; the table is never one.
        seconds: of a step, the median.
        losses: of the first and of the last step.
    """

    sent: float
    formula: float
    largest: int
    seconds: float
    losses: tuple[float, float]


@lru_cache
def _trained(work: ServerWorkload) -> tuple[nn.Module, Callable[[int], int]]:
    """This process's model, and a function that adds the gradients of a batch to it, and returns its samples."""
    import torch
    import torch.nn.functional as F

    from ....models import MLP

    torch.manual_seed(0)
    model = MLP(work.sizes)
    inputs = torch.randn(work.batch, work.sizes[0])  # (B, D_in)
    targets = torch.randint(work.sizes[-1], (work.batch,))  # (B,)

    def step(number: int) -> int:
        F.cross_entropy(model(inputs), targets).backward()
        return len(inputs)

    return model, step


def _sgd(parameters: Any) -> torch.optim.Optimizer:
    import torch

    return torch.optim.SGD(parameters, lr=_LR)


def time_on_rank(work: ServerWorkload, num_servers: int, rounds: int, store: str | None) -> Times:
    """On each rank: seconds of STEPS steps in each way, in turns.

    rpc's messages go through TCP, as gloo's do: its other transport polls shared memory all the time, on processors
    that the other ways need. (And rpc cannot be there for its own turns only: it does not start twice in a process.)

    Args:
        work: of each worker.
        num_servers: the first ranks; with DDP they have nothing to do.
        rounds: how often each way is timed, after a round that does not count.
        store: a file in which rpc meets; None: without rpc.
    """
    import torch.distributed as dist
    from torch.distributed import rpc
    from torch.nn.parallel import DistributedDataParallel as TorchDDP

    from ....models.in_turns import time_in_turns
    from ....parameter_server.consistency import Asynchronous, Synchronous
    from ....parameter_server.placement import by_range, shapes_of
    from ....parameter_server.ranks.messages import open_channels

    rank, world_size = dist.get_rank(), dist.get_world_size()
    model, _ = _trained(work)
    placement = by_range(shapes_of(dict(model.named_parameters())), num_servers)
    channels = open_channels(num_servers, placement)
    workers = dist.new_group(range(num_servers, world_size))
    wrapped = TorchDDP(_fresh(work), process_group=workers) if rank >= num_servers else None
    ways: dict[str, Callable[[], object]] = {
        SERVER: lambda: _with_server(work, channels, placement, Synchronous()),
        ASYNCHRONOUS: lambda: _with_server(work, channels, placement, Asynchronous()),
        DDP: lambda: _with_ddp(work, wrapped),
    }
    if store:
        options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{store}", _transports=["uv"])
        rpc.init_rpc(f"rank{rank}", rank=rank, world_size=world_size, rpc_backend_options=options)
        ways[RPC] = lambda: _with_rpc(work, world_size - 1) if rank == 0 else None
    times = time_in_turns(ways, rounds)
    if store:
        rpc.shutdown()
    return times


def _fresh(work: ServerWorkload) -> nn.Module:
    from ....models import MLP

    return MLP(work.sizes)


def _with_server(work: ServerWorkload, channels: Channels, placement: Any, rule: Any) -> None:
    import torch.distributed as dist

    from ....parameter_server.ranks.server import ParameterServer
    from ....parameter_server.ranks.training import train_request_response
    from ....parameter_server.ranks.worker import Worker
    from ....parameter_server.shard import Shard

    model, step = _trained(work)
    parameters = dict(model.named_parameters())
    if channels.roles.is_server(rank := dist.get_rank()):
        ParameterServer(channels, Shard(placement.pieces(rank, parameters), _sgd), rule).serve()
        return
    worker = Worker(channels, parameters, placement)

    def compute(number: int) -> int:
        worker.zero_grad()  # the gradients stand where they are pushed from
        return step(number)

    train_request_response(worker, compute, STEPS)
    worker.close()


def _with_ddp(work: ServerWorkload, wrapped: Any) -> None:
    import torch
    import torch.nn.functional as F

    if wrapped is None:
        return
    inputs = torch.randn(work.batch, work.sizes[0])
    targets = torch.randint(work.sizes[-1], (work.batch,))
    optimizer = _sgd(wrapped.parameters())
    for _ in range(STEPS):
        F.cross_entropy(wrapped(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()


def _with_rpc(work: ServerWorkload, num_workers: int) -> None:
    from ....parameter_server.rpc_server import RpcServer, serve_by_rpc

    model, _ = _trained(work)
    serve_by_rpc(RpcServer(model.parameters(), _sgd, num_workers, synchronous=True), work, STEPS)


def time_messages(nbytes: int, rounds: int) -> Times:
    """On three ranks, seconds at rank 1, the worker: a pull and a push, in turns with plain messages of rank 2's.

    Each is timed when the other end has nothing else to do.
    """
    import torch
    import torch.distributed as dist

    from ....parameter_server.consistency import Synchronous
    from ....parameter_server.placement import by_range, shapes_of
    from ....parameter_server.ranks.messages import Channels
    from ....parameter_server.ranks.roles import ServerRoles
    from ....parameter_server.ranks.server import ParameterServer
    from ....parameter_server.ranks.worker import Worker
    from ....parameter_server.shard import Shard

    parameters = {"w": torch.zeros(nbytes // 4, requires_grad=True)}
    placement = by_range(shapes_of(parameters), 1)
    channels, rank = Channels(ServerRoles(1, 2)), dist.get_rank()
    plain = torch.zeros(nbytes // 4)
    if rank == 0:
        ParameterServer(channels, Shard(placement.pieces(0, parameters), _sgd), Synchronous()).serve()
    elif rank == 2:
        for _ in range(rounds + _WARM):
            dist.send(plain, 1)
            dist.recv(plain, 1)
    if rank != 1:
        return {}
    times: dict[str, list[float]] = {name: [] for name in (_PULL, _PUSH, _RECEIVE, _SEND)}
    worker = Worker(channels, parameters, placement)
    worker.zero_grad()  # the gradients stand where they are pushed from

    def taken(name: str, call: Callable[[], Any]) -> Any:
        time.sleep(_SETTLE)
        begun = time.perf_counter()
        value = call()
        times[name].append(time.perf_counter() - begun)
        return value

    for _ in range(rounds + _WARM):
        pulled = taken(_PULL, worker.pull)
        taken(_RECEIVE, lambda: dist.recv(plain, 2))
        taken(_PUSH, partial(worker.push, pulled))
        taken(_SEND, lambda: dist.send(plain, 2))
    worker.close()
    return {name: tuple(seconds[_WARM:]) for name, seconds in times.items()}


def message_ratios(times: Times) -> dict[str, float]:
    """A pull to a plain receive, and a push to a plain send."""
    from ....models.in_turns import ratio

    return {"pull": ratio(times[_PULL], times[_RECEIVE]), "push": ratio(times[_PUSH], times[_SEND])}


def train_table(work: TableWorkload) -> tuple[list[float], list[float], list[int]]:
    """On a server and a worker: of each step of the worker its loss, its seconds, and how many rows it pulled."""
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from torch import nn

    from ....parameter_server.consistency import Synchronous
    from ....parameter_server.placement import by_range, shapes_of
    from ....parameter_server.ranks.messages import open_channels
    from ....parameter_server.ranks.server import ParameterServer
    from ....parameter_server.ranks.worker import Worker
    from ....parameter_server.row_table import RowPlacement, RowTable, RowwiseAdagrad
    from ....parameter_server.shard import Shard

    torch.manual_seed(0)
    model = nn.Linear(work.width, 2)
    parameters = dict(model.named_parameters())
    placement, rows = by_range(shapes_of(parameters), 1), RowPlacement(work.num_rows, work.width, 1)
    channels = open_channels(1, (placement, rows))
    if dist.get_rank() == 0:
        table = RowTable(torch.zeros(work.num_rows, work.width), lambda p: RowwiseAdagrad(p, lr=0.1))
        ParameterServer(channels, Shard(placement.pieces(0, parameters), _sgd, table), Synchronous()).serve()
        return [], [], []
    worker = Worker(channels, parameters, placement, rows)
    losses, seconds, asked = [], [], []
    # The same lookups in every step: what was learnt shows in the loss.
    ids = torch.randint(work.num_rows, (work.samples, work.lookups // work.samples))  # (B, L)
    targets = torch.randint(2, (work.samples,))  # (B,)
    for _ in range(_TABLE_STEPS):
        begun = time.perf_counter()
        wanted, where = ids.unique(return_inverse=True)  # (k,), (B, L)
        pulled = worker.pull(wanted)
        assert pulled.values is not None
        worker.zero_grad()
        loss = F.cross_entropy(model(pulled.values[where].mean(1)), targets)  # ()
        loss.backward()
        worker.push(pulled, work.samples)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - begun)
        asked.append(len(wanted))
    worker.close()
    return losses, seconds, asked


def table_result(work: TableWorkload) -> TableResult:
    """Train with the table in a recorded run; in any process."""
    from ....parameter_server.ranks.messages import HEADER_BYTES
    from ....runtime.run import run_ranks

    run = run_ranks(train_table, 2, work, device="cpu", record=True, timeout=300)
    losses, seconds, asked = run[1]
    messages = [event.nbytes for event in run.record.select(rank=1) if event.is_p2p]
    dense = 4 * 2 * (work.width + 1)
    # There and back: the row's number twice, its values, its gradient; the dense part; headers to ask, answer, push.
    by_formula = [k * (2 * 8 + 2 * 4 * work.width) + 2 * dense + 3 * HEADER_BYTES for k in asked]
    sent = (sum(messages) - HEADER_BYTES) / len(asked)  # without the worker's last word
    return TableResult(
        sent, statistics.mean(by_formula), max(messages), statistics.median(seconds), (losses[0], losses[-1])
    )
