"""Push and pull: the single-process run's parameters with one server and two, in each worker's own order; budget."""

import time

import pytest
import torch
import torch.distributed as dist
from torch import nn

import dtlearn
from dtlearn.communication_scheduling.push_pull import PartitionServer, PriorityPushPull
from dtlearn.models import snapshot_parameters
from tests.communication_scheduling.runs import OPTIMIZERS, POLICIES, STEPS, TOLERANCE, distance
from tests.data_parallel.runs import MODELS, SIZE, data, loss_of, reference
from tests.devices import run_ranks


def train(name, optimizer, policy, num_servers, slow=None, steps=STEPS):
    """A worker's parameters and its last step; None on a server."""
    torch.manual_seed(dist.get_rank())
    module = MODELS[name]().to(dtlearn.device())
    if dist.get_rank() < num_servers:
        PartitionServer(module, OPTIMIZERS[optimizer], POLICIES[policy], num_servers).serve()
        return None
    model = PriorityPushPull(module, POLICIES[policy], num_servers)
    worker, workers = dist.get_rank() - num_servers, dist.get_world_size() - num_servers
    if worker == slow:
        next(reversed(list(module.parameters()))).register_hook(lambda _: time.sleep(0.05))
    for inputs, targets in data(name, steps, SIZE):
        loss_of(name)(model(inputs[worker::workers]), targets[worker::workers]).backward()
    model.close()
    return snapshot_parameters(module)


def differences(cases, num_servers):
    found = []
    for name, optimizer, policy in cases:
        mine = train(name, optimizer, policy, num_servers)
        if mine is not None:
            theirs = reference(name, {"momentum": "sgd"}.get(optimizer, optimizer), STEPS)[-1]
            found.append(distance(mine, {key: theirs[key] for key in mine}))
    return found


CASES = [("mlp", "momentum", "priority"), ("tied", "adam", "one at a time"), ("mlp", "adam", "no limit")]


@pytest.mark.parametrize(("ranks", "servers"), [(3, 1), (4, 2)])
def test_it_is_the_single_process_run(device, ranks, servers):
    run = list(run_ranks(differences, ranks, CASES, servers, device=device, timeout=30))
    assert run[:servers] == [[]] * servers
    for of_cases in run[servers:]:
        assert len(of_cases) == len(CASES) and max(of_cases) < TOLERANCE


def test_each_worker_sends_in_its_own_order():
    run = run_ranks(train, 3, "mlp", "adam", "one at a time", 1, 0, device="cpu", record=True, timeout=30)
    first, second = run[1], run[2]
    assert distance(first, second) == 0
    sent = [e for e in run.record.select(rank=1, op="isend") if e.nbytes != 8]
    assert sum(e.nbytes for e in sent) == STEPS * 8 * sum(p.numel() for p in MODELS["mlp"]().parameters())
    assert len([e for e in run.record.select(rank=1, op="isend") if e.nbytes == 8]) == len(sent)
    assert run.record.counts()[1, "irecv"] == len(sent)


class ForgetsAWorker(PartitionServer):
    """Steps with the first worker's gradient alone."""

    def _step(self, number, gradients):
        super()._step(number, gradients[:1])


def with_a_server_that_forgets():
    torch.manual_seed(0)
    module = MODELS["mlp"]()
    if dist.get_rank() == 0:
        ForgetsAWorker(module, OPTIMIZERS["sgd"], POLICIES["priority"]).serve()
        return None
    model = PriorityPushPull(module, POLICIES["priority"])
    for inputs, targets in data("mlp", 1, SIZE):
        loss_of("mlp")(model(inputs[dist.get_rank() - 1 :: 2]), targets[dist.get_rank() - 1 :: 2]).backward()
    model.close()
    theirs = reference("mlp", "sgd", 1)[-1]
    mine = snapshot_parameters(module)
    return distance(mine, {key: theirs[key] for key in mine})


def test_sabotage_is_noticed():
    assert run_ranks(with_a_server_that_forgets, 3, device="cpu")[1] > 1e-6


def wrong_roles():
    model = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="1 servers of 1 ranks"):
        PartitionServer(model, OPTIMIZERS["sgd"], POLICIES["priority"])


def wrong_rank():
    model = nn.Linear(2, 2)
    if dist.get_rank() == 0:
        with pytest.raises(ValueError, match="rank 0 needs a PartitionServer"):
            PriorityPushPull(model, POLICIES["priority"])
    else:
        with pytest.raises(ValueError, match="rank 1 needs a PriorityPushPull"):
            PartitionServer(model, OPTIMIZERS["sgd"], POLICIES["priority"])


def test_roles_have_to_fit():
    run_ranks(wrong_roles, 1, device="cpu")
    run_ranks(wrong_rank, 2, device="cpu")
