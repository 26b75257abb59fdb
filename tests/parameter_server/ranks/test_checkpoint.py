"""Ranks that are really killed: a worker, a server with a checkpoint and one without; an all-reduce job beside them."""

import os
import signal
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from dtlearn.parameter_server.consistency import Asynchronous, Synchronous
from dtlearn.parameter_server.ranks.checkpoint import SaveEvery, load_server, save_server
from dtlearn.parameter_server.ranks.messages import Channels, PeerLost, open_channels
from dtlearn.parameter_server.ranks.mortal_ranks import join_world, run_mortal_ranks
from dtlearn.parameter_server.ranks.roles import ServerRoles
from dtlearn.parameter_server.ranks.server import ParameterServer
from dtlearn.parameter_server.ranks.worker import Worker
from dtlearn.parameter_server.row_table import RowTable
from dtlearn.parameter_server.shard import Shard
from dtlearn.runtime.run import run_ranks
from tests.parameter_server.runs import OPTIMIZERS, TOLERANCE, compute_on, initial, make_model, plan, reference

STEPS = 6


def kill_me():
    os.kill(os.getpid(), signal.SIGKILL)


def serve(world, rule, file=None, every=2, dies_at=None):
    """A server of rank 0, in a world that the ranks have just met in: its parameters, version, lost workers."""
    shard, version, number = Shard(plan().pieces(0, initial()), OPTIMIZERS["adam"]), 0, 0
    if world:
        version, number = load_server(shard, file)
    save = SaveEvery(file, every) if file and every else lambda server: None

    def after_update(server):
        save(server)
        if server.progress.version == dies_at:
            kill_me()

    channels = open_channels(1, plan(), number)
    server = ParameterServer(channels, shard, rule, version=version, after_update=after_update)
    server.serve()
    return shard.flat, server.progress.version, server.lost


def work(worker, compute, steps, dies_at=None):
    """Versions that it pulled, in each step."""
    versions = []
    for number in range(steps):
        pulled = worker.pull()
        weight = compute(number)
        if number == dies_at:
            kill_me()
        worker.push(pulled, weight)
        versions.append(pulled.versions[0])
    worker.close()
    return versions


def one_worker_is_killed(rank, start, folder, rule):
    join_world(rank, 3, folder, 0)
    if rank == 0:
        return serve(0, rule)
    channels, model = open_channels(1, plan()), make_model()
    worker = Worker(channels, dict(model.named_parameters()), plan())
    return work(worker, compute_on(model, rank - 1), STEPS, dies_at=2 if rank == 2 else None)


def all_reduce_under_the_same_fault(rank, start, folder):
    join_world(rank, 2, folder, 0)
    for number in range(STEPS):
        if rank == 1 and number == 2:
            kill_me()
        dist.all_reduce(torch.ones(1))


def the_server_is_killed(rank, start, folder, every):
    if rank == 0:
        join_world(0, 3, folder, start)
        return serve(start, Synchronous(), folder / "server-0", every, dies_at=None if start else 5)
    seen, model = [], make_model()
    for world in range(2):
        join_world(rank, 3, folder, world)
        channels = open_channels(1, plan())
        worker = Worker(channels, dict(model.named_parameters()), plan())
        try:
            for _ in range(STEPS + 4):  # after the return from the checkpoint it goes on with the step of that version
                pulled = worker.pull()
                number = pulled.steps[0]
                if number >= STEPS:
                    break
                weight = compute_on(model, rank - 1)(number)
                seen.append((channels.world, number))
                worker.push(pulled, weight)
            worker.close()
            return seen
        except PeerLost as error:
            seen.append(str(error)[:14])


def mortal(fn, world_size, folder, *args, **options):
    """The outcomes, from a process without a group."""
    return run_ranks(in_one_rank, 1, fn, world_size, str(folder), args, options, init_group=False)[0]


def in_one_rank(fn, world_size, folder, args, options):
    return run_mortal_ranks(
        lambda rank, start: fn(rank, start, Path(folder), *args), world_size, Path(folder), **options
    )


@pytest.mark.parametrize("rule", [Synchronous(), Asynchronous()])
def test_a_worker_that_is_killed_does_not_stop_the_others(tmp_path, rule):
    server, survivor, killed = mortal(one_worker_is_killed, 3, tmp_path, rule)
    assert (killed.signal, killed.value, server.error, survivor.error) == (signal.SIGKILL, None, "", "")
    flat, version, lost = server.value
    assert list(lost) == [1] and "Connection closed by peer" in lost[1] and len(survivor.value) == STEPS
    assert version == (STEPS if rule == Synchronous() else STEPS + 2)
    assert bool(flat.isfinite().all())


def test_an_all_reduce_job_ends_under_the_same_fault(tmp_path):
    survivor, killed = mortal(all_reduce_under_the_same_fault, 2, tmp_path)
    assert killed.signal == signal.SIGKILL and "RuntimeError" in survivor.error


def test_a_server_that_is_killed_comes_back_from_its_checkpoint(tmp_path):
    server, *workers = mortal(the_server_is_killed, 3, tmp_path, 2, restart=[0])
    assert server.starts == 2 and server.error == "" and [w.error for w in workers] == ["", ""]
    # Version 5 was reached, 4 was saved: step 4 is computed again, in world 1, and no bit of the result differs.
    for worker in workers:
        before, after = [e for e in worker.value if e[0] == 0], [e for e in worker.value if e[0] == 1]
        assert [e for e in worker.value if isinstance(e, str)] == ["rank 0 is gone"]
        assert [step for _, step in before][:5] == [0, 1, 2, 3, 4] and [step for _, step in after] == [4, 5]
    flat, version, lost = server.value
    assert (version, lost) == (STEPS, {})
    assert float((flat - reference(2, STEPS, "adam")[-1]).abs().max()) < TOLERANCE


def test_a_server_without_a_checkpoint_says_so_and_the_workers_learn_of_it(tmp_path):
    server, *workers = mortal(the_server_is_killed, 3, tmp_path, None, restart=[0])
    assert "FileNotFoundError: there is no checkpoint" in server.error
    assert all("PeerLost: a rank is gone" in worker.error for worker in workers)


def table_server(seed):
    generator = torch.Generator().manual_seed(seed)
    table = RowTable(torch.randn(7, 3, generator=generator), lambda p: torch.optim.Adagrad(p, lr=0.1))
    shard = Shard({"w": torch.randn(5, generator=generator)}, OPTIMIZERS["adam"], table)
    return ParameterServer(Channels(ServerRoles(1, 2), world=3), shard, Synchronous(), version=8)


def step(shard, seed):
    generator = torch.Generator().manual_seed(seed)
    shard.parameters["w"].grad = torch.randn(5, generator=generator)
    shard.optimizer.step()
    shard.table.step(torch.tensor([2, 5]), torch.randn(2, 3, generator=generator))


def test_the_optimizers_go_on_as_if_nothing_had_happened(tmp_path):
    server, other = table_server(0), table_server(1)
    step(server.shard, 2)
    save_server(server, tmp_path / "file")
    assert load_server(other.shard, tmp_path / "file") == (8, 4)
    for shard in (server.shard, other.shard):
        step(shard, 3)
    assert torch.equal(server.shard.flat, other.shard.flat)
    assert torch.equal(server.shard.table.weight, other.shard.table.weight)


def test_a_checkpoint_of_another_shard_is_refused(tmp_path):
    save_server(table_server(0), tmp_path / "file")
    with pytest.raises(ValueError, match="has 5 elements, and this shard 53"):
        load_server(Shard(plan().pieces(0, initial()), OPTIMIZERS["adam"]), tmp_path / "file")
