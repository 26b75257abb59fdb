"""What the tests of the parameter server share: a model in float64, batches by worker, and training on ranks."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from dtlearn.models import MLP
from dtlearn.parameter_server.consistency import Synchronous
from dtlearn.parameter_server.placement import by_range, shapes_of
from dtlearn.parameter_server.ranks.messages import open_channels
from dtlearn.parameter_server.ranks.server import ParameterServer
from dtlearn.parameter_server.ranks.training import train_request_response
from dtlearn.parameter_server.ranks.worker import Worker
from dtlearn.parameter_server.shard import Shard
from dtlearn.runtime.device import device

TOLERANCE = 1e-10  # in float64; measured: below 1e-15
SIZES = (6, 5, 3)
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
}


def make_model(seed=0):
    torch.manual_seed(seed)
    return MLP(SIZES).double()


def batch(worker, number, samples=4):
    """A batch that differs for each worker and step."""
    generator = torch.Generator().manual_seed(1000 * worker + number)
    return torch.randn(samples, 6, generator=generator, dtype=torch.float64), torch.randint(
        3, (samples,), generator=generator
    )


def initial():
    return {name: p.detach() for name, p in make_model().named_parameters()}


def plan(num_servers=1, place=by_range):
    return place(shapes_of(initial()), num_servers)


def samples_of(worker, uneven):
    return 4 + worker if uneven else 4


def compute_on(model, worker, uneven=False, batches=batch):
    """The function that a training loop calls: forward and backward of one batch."""

    def compute(number):
        x, y = batches(worker, number, samples_of(worker, uneven))
        model.zero_grad()
        F.cross_entropy(model(x.to(device())), y.to(device())).backward()
        return len(x)

    return compute


def train(
    num_servers,
    steps,
    optimizer="sgd",
    rule=None,
    *,
    place=by_range,
    loop=train_request_response,
    uneven=False,
    store=None,
    waits=None,
    steps_of=None,
    make_server=ParameterServer,
    make_worker=Worker,
    batches=batch,
    **options,
):
    """On a server: (its pieces, its log). On a worker: what it pulled, and its parameters after each pull.

    steps_of: of each worker, its number of steps.
    store, waits: path of a file, and (worker, number) -> what the worker's gradient has to wait for, "applied 2" (the
        second update of server 0) or "started 0 2" (worker 0 has the parameters of its batch 2); "": nothing. So a
        straggler is slow in the same way on a machine of any load.
    """
    rank, placement = dist.get_rank(), plan(num_servers, place)
    events = dist.FileStore(store, -1) if store else None
    channels = open_channels(num_servers, placement)
    if rank < num_servers:
        pieces = placement.pieces(rank, {name: p.to(device()) for name, p in initial().items()})
        if events and rank == 0:
            options["after_update"] = lambda server: events.set(f"applied {server.progress.version}", "")
        server = make_server(channels, Shard(pieces, OPTIMIZERS[optimizer]), rule or Synchronous(), **options)
        log = server.serve()
        return {name: p.detach().cpu() for name, p in server.shard.parameters.items()}, log
    worker_number = rank - num_servers
    model = make_model(seed=rank).to(device())  # its own values do not matter: it pulls first
    worker = make_worker(channels, dict(model.named_parameters()), placement)
    compute = compute_on(model, worker_number, uneven, batches)
    seen, flats = [], []

    def observed(number):
        flats.append(torch.cat([p.detach().cpu().view(-1) for p in model.parameters()]))
        if events:
            events.set(f"started {worker_number} {number}", "")
            if key := waits(worker_number, number):
                events.wait([key])
        return compute(number)

    seen = loop(worker, observed, steps_of[worker_number] if steps_of else steps)
    worker.close()
    return seen, flats


def flat_of(values, num_servers=1):
    """All parameters of the servers as one vector, as `by_range` keeps them."""
    return torch.cat([p.reshape(-1) for value in values[:num_servers] for p in value[0].values()])


def reference(workers, steps, optimizer="sgd", uneven=False):
    """One process with the batches of all workers: the parameters after each step, the initial ones first."""
    model = make_model()
    step = OPTIMIZERS[optimizer](model.parameters())
    flats = [torch.cat([p.detach().view(-1) for p in model.parameters()])]
    for number in range(steps):
        x, y = map(torch.cat, zip(*(batch(w, number, samples_of(w, uneven)) for w in range(workers)), strict=True))
        step.zero_grad()
        F.cross_entropy(model(x), y).backward()
        step.step()
        flats.append(torch.cat([p.detach().view(-1) for p in model.parameters()]))
    return flats
