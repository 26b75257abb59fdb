"""Hybrid sharding: the single-process run and `fully_shard` on a mesh; what is sent in which group."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import dtlearn
from dtlearn.memory.ledger.ledger import MemoryLedger
from dtlearn.models import MLP
from dtlearn.models.gpt import Block
from dtlearn.zero.stages import hybrid
from dtlearn.zero.stages.hybrid import HybridShardedDataParallel, ReplicatedBucket
from tests.data_parallel.runs import distance, loss_of, message_of, mlp
from tests.devices import run_ranks
from tests.zero.stages.sharded_training import (
    OPTIMIZERS,
    TOLERANCE,
    UNITS,
    batches_of,
    reference,
    seeded_by_rank,
    torchs,
    train,
)


def mesh_of(replicas, shard_size):
    kind = "cuda" if dtlearn.device().type == "cuda" else "cpu"
    return init_device_mesh(kind, (replicas, shard_size), mesh_dim_names=("replicate", "shard"))


def groups_of(mesh):
    return {"shard_group": mesh.get_group("shard"), "replicate_group": mesh.get_group("replicate")}


def trained(name, optimizer, mesh, **options):
    groups = groups_of(mesh)
    wrapped = HybridShardedDataParallel(seeded_by_rank(name), units=UNITS[name], **groups, **options)
    made = OPTIMIZERS[optimizer](wrapped.parameters())
    return train(wrapped, made, name, groups["shard_group"], dist.get_rank(), dist.get_world_size())


def parity(shard_sizes=(1, 2, 4)):
    """The distance to the single-process run, by ranks in a shard group and case."""
    found = {}
    for shard_size in shard_sizes:
        mesh = mesh_of(4 // shard_size, shard_size)
        for name, optimizer, options in (
            ("mlp", "momentum", {}),
            ("frozen", "adamw", {"prefetch": 0}),
            ("gpt", "adamw", {"reshard_after_forward": False}),
        ):
            mine = trained(name, optimizer, mesh, **options)
            found[shard_size, name] = distance(mine, reference(name, optimizer))
    return found


def beside_torch():
    """The distance of PyTorch's class from ours, and that of accumulated gradients."""
    mesh, found = mesh_of(2, 2), {}
    mine = [{k: v for k, v in step.items() if not k.endswith(".grad")} for step in trained("tied", "adamw", mesh)]
    found["torch's"] = distance(mine, torchs("tied", "adamw", mesh))
    found["accumulated"] = accumulated(mesh)
    return found


def accumulated(mesh):
    """How far apart gradients are after two micro-batches in `no_sync` and reduced each."""
    wrapped, plain = (
        HybridShardedDataParallel(seeded_by_rank("gpt"), units=[Block], **groups_of(mesh)) for _ in range(2)
    )
    (inputs, targets), *_ = batches_of("gpt")
    part = slice(dist.get_rank(), None, 4)
    with wrapped.no_sync():
        loss_of("gpt")(wrapped(inputs[part]), targets[part]).backward()
    loss_of("gpt")(wrapped(inputs[part]), targets[part]).backward()
    for _ in range(2):
        loss_of("gpt")(plain(inputs[part]), targets[part]).backward()
    pairs = zip(wrapped.sharded_params, plain.sharded_params, strict=True)
    return max(float((a.grad - b.grad).abs().max()) for a, b in pairs if a.numel())


@pytest.fixture(scope="module")
def on_four():
    """Each rank's results: `parity`, with `beside_torch`, and `sabotaged`."""
    return run_ranks(lambda: (parity() | beside_torch(), sabotaged()), 4, device="cpu", timeout=110).values


def test_it_is_the_single_process_run_and_torchs(on_four):
    for found, _ in on_four:
        assert len(found) == 11
        assert not {case: away for case, away in found.items() if not away < TOLERANCE}


@pytest.mark.every_device
def test_it_is_the_single_process_run_on_another_device(other_device):
    for found in run_ranks(parity, 4, (2,), device=other_device):
        assert len(found) == 3 and max(found.values()) < TOLERANCE


# What a step sends and holds.


def one_step():
    mesh = mesh_of(2, 2)
    model = MLP((16, 16, 16, 16))
    wrapped = HybridShardedDataParallel(model, units=[nn.Linear], **groups_of(mesh))
    with MemoryLedger(wrapped) as ledger:
        wrapped(torch.ones(1, 16)).sum().backward()
    last = {category: live[-1] for category, live in ledger.record().timeline().items()}
    return last, [str(sorted(dist.get_process_group_ranks(g))) for g in groups_of(mesh).values()]


def test_bytes_and_memory_are_those_of_the_docstring():
    layers, n = 3, 3 * (16 * 16 + 16) * 4
    result = run_ranks(one_step, 4, device="cpu", record=True)
    for rank, (last, (row, column)) in enumerate(result):
        assert (row, column) == (["[0, 1]", "[2, 3]"][rank // 2], ["[0, 2]", "[1, 3]"][rank % 2])
        assert last["parameters"] == last["gradients"] == n // 2 and last["communication"] == 0
        mine = result.record.select(rank=rank)
        in_row, in_column = (mine.select(group=ranks.strip("[]").replace(" ", "")) for ranks in (row, column))
        gathered, scattered = in_row.select(op="all_gather_into_tensor"), in_row.select(op="reduce_scatter_tensor")
        averaged = in_column.select(op="all_reduce")
        assert (len(gathered), len(scattered), len(averaged)) == (2 * layers, layers, layers)
        assert (gathered.nbytes(), scattered.nbytes(), averaged.nbytes()) == (n, n, n // 2)
        assert not in_column.select(op="all_gather_into_tensor") and not in_row.select(op="all_reduce")


# Sabotage and errors.


class NotReplicated(ReplicatedBucket):
    """Sabotage: the all-reduce is left out."""

    def scattered(self, reduced):
        self.hand_out(reduced * 2)


class WrongDivisor(ReplicatedBucket):
    """Sabotage: gradients are divided by the ranks of the shard group only."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.divisor = self.bucket.num_ranks


class RowsBeginApart(ReplicatedBucket):
    """Sabotage: each row begins with the parameters of its own rank 0."""

    def _make_equal(self, flat):
        super(ReplicatedBucket, self)._make_equal(flat)


def sabotaged():
    mesh, found = mesh_of(2, 2), {}
    for bucket in (ReplicatedBucket, NotReplicated, WrongDivisor, RowsBeginApart):
        hybrid.ReplicatedBucket = bucket
        found[bucket.__name__] = distance(trained("mlp", "momentum", mesh), reference("mlp", "momentum"))
    hybrid.ReplicatedBucket = ReplicatedBucket
    world = init_device_mesh("cpu", (4,))
    same = {"shard_group": world.get_group(0), "replicate_group": mesh.get_group(0)}
    found["groups"] = message_of(lambda: HybridShardedDataParallel(mlp(), **same))
    return found


def test_sabotage_is_found(on_four):
    results = [found for _, found in on_four]
    for found in results:
        assert "have to share this rank and no other; they share" in found.pop("groups")
        assert found.pop("ReplicatedBucket") < TOLERANCE
    for name in results[0]:
        assert max(found[name] for found in results) > 1e-3, name
