"""The rpc version: the large batch if synchronous, SGD with one asynchronous worker, no torn reads."""

import os
import time
from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F
from torch.distributed import rpc

from dtlearn.models import MLP, max_difference, snapshot_parameters, train_reference
from dtlearn.parameter_server.rpc_server import RpcServer, serve_by_rpc
from dtlearn.runtime.run import run_ranks

STEPS = 5


def batch(worker, number):
    draw = torch.Generator().manual_seed(100 * worker + number)
    size = worker + 2  # uneven
    return torch.randn(size, 5, generator=draw), torch.randint(3, (size,), generator=draw)


def make_model():
    torch.manual_seed(0)
    return MLP((5, 7, 3))


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


def job(worker, number, parameters):
    model = make_model()
    with torch.no_grad():
        for own, value in zip(model.parameters(), parameters, strict=True):
            own.copy_(value)
    inputs, targets = batch(worker, number)
    F.cross_entropy(model(inputs), targets).backward()
    return [p.grad for p in model.parameters()], len(inputs)


def same_data(worker, number, parameters):
    return job(0, number, parameters)


def without_weights(worker, number, parameters):
    return job(worker, number, parameters)[0], 1


@contextmanager
def rpc_on(store):
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{store}")
    rpc.init_rpc(f"rank{rank}", rank=rank, world_size=world_size, rpc_backend_options=options)
    yield rank, world_size - 1
    rpc.shutdown()


def train(store, synchronous, jobs):
    found = {}
    with rpc_on(store) as (rank, num_workers):
        for own in jobs if rank == 0 else ():
            model = make_model()
            server = RpcServer(model.parameters(), adam, num_workers, synchronous)
            versions = serve_by_rpc(server, own, STEPS)
            with torch.no_grad():
                for p, value in zip(model.parameters(), server.parameters, strict=True):
                    p.copy_(value)
            found[own.__name__] = snapshot_parameters(model), server.version, versions
    return found


def reference(num_workers):
    parts = [[batch(worker, number) for worker in range(num_workers)] for number in range(STEPS)]
    whole = [tuple(map(torch.cat, zip(*step, strict=True))) for step in parts]
    return train_reference(make_model, adam, whole, F.cross_entropy).steps[-1].parameters


def difference(a, b):
    return max_difference(a, b).value


def test_synchronous_is_the_large_batch_and_sabotage_is_not(tmp_path):
    jobs = (job, same_data, without_weights)
    found = run_ranks(train, 4, tmp_path / "store", True, jobs, device="cpu")[0]
    parameters, version, versions = found["job"]
    assert difference(parameters, reference(3)) < 1e-6
    assert version == STEPS and versions == [list(range(STEPS))] * 3
    assert difference(found["same_data"][0], reference(3)) > 1e-3
    assert difference(found["without_weights"][0], reference(3)) > 1e-4


def test_one_asynchronous_worker_is_the_optimizer_to_the_last_bit(tmp_path):
    parameters, version, versions = run_ranks(train, 2, tmp_path / "store", False, (job,), device="cpu")[0]["job"]
    assert version == STEPS and versions == [list(range(STEPS))]
    assert difference(parameters, reference(1)) == 0


def all_equal(worker, number, parameters):
    """The gradient of every element is 1, and so all elements stay equal; a torn read would have two values."""
    values = {value.item() for p in parameters for value in (p.min(), p.max())}
    assert len(values) == 1, values
    return [torch.ones_like(p) for p in parameters], 1


def count_down(parameters):
    return torch.optim.SGD(parameters, lr=1.0)


def many_pushes(store):
    with rpc_on(store) as (rank, num_workers):
        if rank == 0:
            server = RpcServer([torch.zeros(20_000)] * 20, count_down, num_workers, synchronous=False)
            versions = serve_by_rpc(server, all_equal, 15)
            return {p.unique().item() for p in server.parameters}, server.version, versions
    return None


def test_asynchronous_pushes_are_all_applied_and_no_read_is_torn(tmp_path):
    values, version, versions = run_ranks(many_pushes, 4, tmp_path / "store", device="cpu")[0]
    assert values == {-45.0} and version == 45
    assert all(own == sorted(own) and len(own) == 15 for own in versions)


class Unlocked(RpcServer):
    """Pulls without the lock; the second worker's first push falls between the two halves of the first one's pull."""

    waited = False

    def pull(self):
        version, parameters = self.version, [p.detach().clone() for p in self.parameters[:10]]
        if version and not self.waited:
            self.waited = True
            deadline = time.monotonic() + 20  # the others may have ended: they saw torn reads, too
            while self.version == version and time.monotonic() < deadline:
                time.sleep(0.001)
        return version, parameters + [p.detach().clone() for p in self.parameters[10:]]


def torn(store):
    with rpc_on(store) as (rank, num_workers):
        if rank == 0:
            server = Unlocked([torch.zeros(20_000)] * 20, count_down, num_workers, synchronous=False)
            with pytest.raises(RuntimeError, match=r"AssertionError\(\{"):
                serve_by_rpc(server, all_equal, 15)


def test_a_torn_read_is_found(tmp_path):
    run_ranks(torn, 4, tmp_path / "store", device="cpu")


def test_a_push_of_no_samples_counts_for_nothing():
    servers = [RpcServer([torch.ones(2)], lambda p: torch.optim.SGD(p, lr=1.0), 2, synchronous=True) for _ in range(2)]
    servers[0].pushes = {0: ([torch.full((2,), torch.nan)], 0), 1: ([torch.full((2,), 0.5)], 3)}
    servers[0].update()
    assert servers[0].pull()[1][0].tolist() == [0.5, 0.5]
    servers[1].pushes = {0: ([torch.ones(2)], 0), 1: ([torch.ones(2)], 0)}
    with pytest.raises(ValueError, match=r"workers \[0, 1\] pushed weights of 0"):
        servers[1].update()
