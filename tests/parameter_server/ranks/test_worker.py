"""The worker's side on real ranks: sparse rows, what they weigh, and what goes wrong before a message is sent."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from dtlearn.memory import StorageLedger
from dtlearn.parameter_server.consistency import Synchronous
from dtlearn.parameter_server.placement import by_range, shapes_of
from dtlearn.parameter_server.ranks.messages import HEADER_BYTES, Channels, open_channels
from dtlearn.parameter_server.ranks.roles import ServerRoles
from dtlearn.parameter_server.ranks.server import ParameterServer
from dtlearn.parameter_server.ranks.worker import Pulled, Worker
from dtlearn.parameter_server.row_table import RowPlacement, RowTable, RowwiseAdagrad
from dtlearn.parameter_server.shard import Shard
from dtlearn.runtime.device import device
from dtlearn.runtime.errors import RankError
from tests.devices import run_ranks
from tests.parameter_server.runs import OPTIMIZERS, TOLERANCE, initial, make_model, plan

ROWS, WIDTH, STEPS = 40, 6, 3  # the rows are as wide as the model's input
TABLES = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "rowwise": lambda p: RowwiseAdagrad(p, lr=0.1),
    "adam": lambda p: torch.optim.SparseAdam(p, lr=0.1),
}


def table():
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def words(worker, number, samples=5):
    generator = torch.Generator().manual_seed(100 * worker + number)
    return torch.randint(ROWS, (samples,), generator=generator), torch.randint(3, (samples,), generator=generator)


def train_sparsely(num_servers, optimizer, make_worker=Worker):
    """On servers (pieces, rows), on workers the rows of each step."""
    rank, rows = dist.get_rank(), RowPlacement(ROWS, WIDTH, num_servers)
    channels = open_channels(num_servers, (plan(num_servers), rows))
    if rank < num_servers:
        mine = RowTable(table()[rank::num_servers].to(device()).clone(), TABLES[optimizer])
        pieces = {name: piece.to(device()) for name, piece in initial().items()}
        shard = Shard(plan(num_servers).pieces(rank, pieces), OPTIMIZERS["sgd"], mine)
        ParameterServer(channels, shard, Synchronous()).serve()
        return shard.flat.cpu(), mine.weight.detach().cpu()
    model, asked = make_model().to(device()), []
    worker = make_worker(channels, dict(model.named_parameters()), plan(num_servers), rows)
    for number in range(STEPS):
        ids, targets = (values.to(device()) for values in words(rank - num_servers, number))
        wanted, where = ids.unique(return_inverse=True)
        pulled = worker.pull(wanted)
        model.zero_grad()
        F.cross_entropy(model(pulled.values[where]), targets).backward()
        worker.push(pulled, len(ids))
        asked.append(wanted.cpu())
    worker.close()
    return asked


def reference(optimizer, workers=2):
    """The whole model with the whole table on one process, the batch of all workers."""
    model, embedding = make_model(), torch.nn.Embedding(ROWS, WIDTH, sparse=True, _weight=table())
    optimizers = OPTIMIZERS["sgd"](model.parameters()), TABLES[optimizer](embedding.parameters())
    for number in range(STEPS):
        ids, targets = map(torch.cat, zip(*(words(worker, number) for worker in range(workers)), strict=True))
        with torch.sparse.check_sparse_tensor_invariants(False):
            for each in optimizers:
                each.zero_grad()
            F.cross_entropy(model(embedding(ids)), targets).backward()
            embedding.weight.grad = embedding.weight.grad.coalesce()
            for each in optimizers:
                each.step()
    return torch.cat([p.detach().view(-1) for p in model.parameters()]), embedding.weight.detach()


@pytest.mark.parametrize("optimizer", TABLES)
def test_rows_train_like_the_whole_table(optimizer):
    run = run_ranks(train_sparsely, 4, 2, optimizer)
    flat, rows = reference(optimizer)
    assert float((torch.cat([run[0][0], run[1][0]]) - flat).abs().max()) < TOLERANCE
    merged = torch.stack([run[0][1], run[1][1]], 1).view(ROWS, WIDTH)
    atol = 1e-6 if optimizer == "rowwise" else TOLERANCE
    assert float((merged - rows).abs().max()) < atol and not torch.equal(rows, table())


class OtherRows(Worker):
    """Gives the gradient of one row to another."""

    def push(self, pulled, weight=1):
        pulled.values.grad = pulled.values.grad.roll(1, 0)
        super().push(pulled, weight)


def other_rows():
    return train_sparsely(1, "sgd", OtherRows)


def test_sabotage_of_rows_is_noticed():
    run = run_ranks(other_rows, 3)
    assert float((run[0][1] - reference("sgd")[1]).abs().max()) > 1e-4


def test_bytes_follow_the_batch():
    run = run_ranks(train_sparsely, 3, 1, "sgd", record=True)
    dense, messages = 8 * len(run[0][0]), run.record.messages()
    for rank in (1, 2):
        k = sum(map(len, run[rank]))
        sent = sum(send.nbytes for send, _ in messages if send.rank == rank)
        received = sum(receive.nbytes for _, receive in messages if receive.rank == rank)
        assert sent == STEPS * (dense + 2 * HEADER_BYTES) + HEADER_BYTES + k * (8 + 8 + 8 * WIDTH)
        assert received == STEPS * (dense + HEADER_BYTES) + k * 8 * WIDTH


MANY, WIDE, BATCH = 1_000_000, 64, 1900  # rows, elements of a row, ids of a batch


def million_rows():
    rank, rows = dist.get_rank(), RowPlacement(MANY, WIDE, 1)
    head = {"w": torch.zeros(WIDE)}
    placement = by_range(shapes_of(head), 1)
    channels = open_channels(1, (placement, rows))
    if rank == 0:
        mine = RowTable(torch.zeros(MANY, WIDE), lambda p: RowwiseAdagrad(p, lr=0.1))
        ParameterServer(channels, Shard(placement.pieces(0, head), OPTIMIZERS["sgd"], mine), Synchronous()).serve()
        return int(mine.weight.detach().any(1).sum())
    generator, seen = torch.Generator().manual_seed(rank), []
    worker = Worker(channels, head, placement, rows)
    with StorageLedger() as ledger:
        for _ in range(2):
            wanted = torch.randint(MANY, (BATCH,), generator=generator).unique()
            pulled = worker.pull(wanted)
            (pulled.values - 1).square().sum().backward()
            worker.push(pulled)
            seen.append(wanted)
    worker.close()
    return seen, ledger.peak


def test_a_million_rows_are_trained_with_a_megabyte_a_step():
    run = run_ranks(million_rows, 2, record=True)
    rows, peak = run[1]
    assert run[0] == len(torch.cat(rows).unique())  # these rows have changed, and no other
    traffic = sum(send.nbytes for send, _ in run.record.messages()) / len(rows)
    assert 0.9e6 < traffic < 1.05e6
    assert peak < 0.02 * 4 * MANY * WIDE  # the table never was on the worker


def test_what_is_wrong_is_said_before_anything_is_sent():
    channels, parameters = Channels(ServerRoles(1, 2), world=2), dict(make_model().named_parameters())
    worker = Worker(channels, parameters, plan())
    with pytest.raises(ValueError, match="this worker has none: Worker"):
        worker.pull(torch.tensor([1]))
    for weight in (-1, 0.5):
        with pytest.raises(ValueError, match=rf"a whole one, 0 or more; got {weight}"):
            worker.push(Pulled(2, (0,), (0,)), weight)
    with pytest.raises(ValueError, match="was computed in world 1, and the servers are in world 2"):
        worker.push(Pulled(1, (5,), (5,)))
    with pytest.raises(ValueError, match=r"no server keeps \['more'\]"):
        Worker(channels, parameters | {"more": torch.ones(1)}, plan())
    mixed = {"a": torch.ones(1), "b": torch.ones(1).double()}
    with pytest.raises(ValueError, match="have one dtype and one device"):
        Worker(channels, mixed, by_range(shapes_of(mixed), 1))


def no_table_at_the_server():
    rank, rows = dist.get_rank(), RowPlacement(ROWS, WIDTH, 1)
    channels = open_channels(1, plan())
    if rank == 0:
        return ParameterServer(channels, Shard(plan().pieces(0, initial()), OPTIMIZERS["sgd"]), Synchronous()).serve()
    return Worker(channels, dict(make_model().named_parameters()), plan(), rows).pull(torch.tensor([3]))


def test_rows_that_no_server_has_end_all_at_once():
    with pytest.raises(RankError, match=r"worker 0 \(rank 1\) names rows up to 3 of the 0 that are here"):
        run_ranks(no_table_at_the_server, 2, timeout=60)


def both_gradients():
    """Gradients in the buffer that is sent, then anywhere, then none: the parameters of the next pull."""
    channels, model = open_channels(2, plan(2)), make_model()
    if dist.get_rank() < 2:
        shard = Shard(plan(2).pieces(dist.get_rank(), initial()), OPTIMIZERS["sgd"])
        return ParameterServer(channels, shard, Synchronous()).serve()
    parameters = dict(model.named_parameters())
    worker, found, pointers = Worker(channels, parameters, plan(2)), [], set()
    for clear in (worker.zero_grad, model.zero_grad, None):
        pulled = worker.pull()
        found.append(torch.cat([p.detach().view(-1).clone() for p in parameters.values()]))
        pointers.add(worker.current.data_ptr())
        assert all(worker.current.data_ptr() <= p.data_ptr() for p in parameters.values())
        assert worker.current.data_ptr() == next(iter(parameters.values())).data_ptr()
        if clear:
            clear()
            sum(p.sum() for p in parameters.values()).backward()
        else:
            for p in parameters.values():
                p.grad = None
        worker.push(pulled)
    worker.pull()
    found.append(torch.cat([p.detach().view(-1) for p in parameters.values()]))
    worker.close()
    with pytest.raises(ValueError, match="told the servers that it is done"):
        worker.pull()
    return found, len(pointers)


def test_gradients_may_lie_anywhere_and_parameters_are_not_copied():
    found, buffers = run_ranks(both_gradients, 3)[2]
    for before, after, step in zip(found, found[1:], (0.1, 0.1, 0.0), strict=False):
        assert torch.allclose(before - after, torch.full_like(before, step), atol=1e-12)
    assert buffers == 2  # what arrives next is received where the parameters were before
