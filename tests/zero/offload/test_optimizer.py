"""Updates on the host: the values of the plain optimizer, to the last bit; and where bytes lie and go."""

import copy
import pickle

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dtlearn.memory.ledger.ledger import MemoryLedger
from dtlearn.memory.ledger.storage_ledger import StorageLedger
from dtlearn.mixed_precision import MasterWeights
from dtlearn.sharing.host_memory import Host
from dtlearn.zero.offload.optimizer import OffloadedOptimizer, offloaded
from dtlearn.zero.partition.flat import plan_flat
from dtlearn.zero.stages.zero3 import FullyShardedDataParallel
from dtlearn.zero.state_dicts.reshard import reshard
from dtlearn.zero.state_dicts.sharded import ShardedParameters, load_sharded_state_dict, sharded_state_dict
from tests.data_parallel.runs import distance
from tests.devices import run_ranks
from tests.zero.stages import sharded_training
from tests.zero.stages.sharded_training import TOLERANCE, UNITS, reference, seeded_by_rank

OPTIMIZERS = {
    "SGD": (torch.optim.SGD, {"lr": 0.1}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "Adam": (torch.optim.Adam, {"lr": 0.01}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.01, "amsgrad": True}),
}
SIZES = (7, 0, 12, 1, 5)  # the last never has a gradient
PSI = sum(SIZES)
TRAINED = PSI - SIZES[-1]


def some_pieces(dtype=torch.float32, seed=0):
    g = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(size, generator=g).to(dtype)) for size in SIZES]


def give_gradients(pieces):
    for piece in pieces[:-1]:
        piece.grad = piece.detach().sin() + 0.1


def train(pieces, optimizer, steps):
    for _ in range(steps):
        give_gradients(pieces)
        optimizer.step()
        optimizer.zero_grad()
    return pieces


def same(pieces, others):
    return all(torch.equal(a, b) for a, b in zip(pieces, others, strict=True))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_is_the_plain_optimizer(name):
    optimizer_class, options = OPTIMIZERS[name]
    plain, own = some_pieces(), some_pieces()
    train(plain, optimizer_class(plain, **options), 4)
    assert same(train(own, offloaded(optimizer_class)(own, **options), 4), plain)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_16_bit_pieces_have_float32_masters(name, dtype):
    optimizer_class, options = OPTIMIZERS[name]
    exact, own = some_pieces(dtype), some_pieces(dtype)
    train(exact, MasterWeights(exact, optimizer_class, **options), 4)
    optimizer = offloaded(optimizer_class)(own, **options)
    assert same(train(own, optimizer, 4), exact) and own[0].dtype == dtype
    assert all(master.dtype == torch.float32 for _, master in optimizer.pairs)


def test_groups_a_schedule_and_a_closure():
    def run(make):
        pieces = some_pieces()
        optimizer = make([{"params": pieces[:2]}, {"params": pieces[2:4], "lr": 0.5}], lr=0.1)
        optimizer.add_param_group({"params": pieces[4:], "lr": 0.2})
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

        def closure():
            assert torch.is_grad_enabled()
            give_gradients(pieces)
            return 3.0

        for _ in range(3):
            assert optimizer.step(closure) == 3.0
            schedule.step()
        return pieces, [group["lr"] for group in optimizer.param_groups]

    (own, rates), (plain, plain_rates) = run(offloaded(torch.optim.Adam)), run(torch.optim.Adam)
    assert same(own, plain) and rates == plain_rates == [0.0125, 0.0625, 0.025]


@pytest.mark.parametrize(("dtype", "width"), [(torch.float32, 4), (torch.bfloat16, 2)])
def test_bytes_lie_on_the_host_and_move_twice_a_step(dtype, width):
    pieces = some_pieces(dtype)
    optimizer = offloaded(torch.optim.Adam)(pieces, lr=0.01)
    host = optimizer.host
    assert host.now == 4 * PSI
    train(pieces, optimizer, 1)
    steps = 4 * 4  # float32 counts of steps
    assert host.now == 4 * PSI + 8 * TRAINED + steps
    moved, host.peak = (host.to_host, host.to_device), 0
    give_gradients(pieces)
    with StorageLedger() as ledger:
        optimizer.step()
    assert ledger.peak == 0  # on the device
    assert host.to_host - moved[0] == host.to_device - moved[1] == width * TRAINED
    gradients = 4 * TRAINED + (width * TRAINED if width < 4 else 0)
    assert host.peak == host.now + gradients
    assert all(piece.grad is not None for piece in pieces[:-1])  # they are the user's


def test_pieces_on_the_host_are_their_own_masters():
    host, plain = Host(), some_pieces()
    pieces = [nn.Parameter(host.download(piece.detach())) for piece in plain]
    moved = host.to_host
    optimizer = offloaded(torch.optim.AdamW)(pieces, host=host, lr=0.01)
    train(plain, torch.optim.AdamW(plain, lr=0.01), 3)
    assert same(train(pieces, optimizer, 3), plain)
    assert host.to_host == moved and host.to_device == 0
    assert host.now == 4 * PSI + 8 * TRAINED + 16


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_state_goes_on_and_brings_the_masters(dtype):
    first, second = some_pieces(dtype), some_pieces(dtype, seed=1)
    optimizer, other = (offloaded(torch.optim.Adam)(pieces, lr=rate) for pieces, rate in ((first, 0.01), (second, 1.0)))
    train(first, optimizer, 3)
    train(second, other, 1)
    with torch.no_grad():
        for piece, target in zip(first, second, strict=True):
            target.copy_(piece)
    other.load_state_dict(optimizer.state_dict())
    assert other.param_groups[0]["lr"] == 0.01 and same(first, second)
    assert same(train(second, other, 2), train(first, optimizer, 2))
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(optimizer.pairs, other.pairs, strict=True))


def test_the_state_of_the_plain_optimizer_is_taken():
    plain, own = some_pieces(), some_pieces()
    inner, optimizer = torch.optim.Adam(plain, lr=0.01), offloaded(torch.optim.Adam)(own, lr=0.5)
    train(plain, inner, 2)
    with torch.no_grad():
        for piece, target in zip(plain, own, strict=True):
            target.copy_(piece)
    optimizer.load_state_dict(inner.state_dict())
    assert same(train(own, optimizer, 2), train(plain, inner, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_masters_are_cut_anew_with_the_rest(dtype):
    """Saved by one rank, loaded by two, in one process."""

    def halves(pieces, rank):
        return [nn.Parameter(p.detach().flatten().chunk(2)[rank].clone()) for p in pieces]

    model = nn.Module()
    model.w, model.v = (nn.Parameter(torch.randn(6).to(dtype)) for _ in range(2))
    whole = ShardedParameters.of_module(model)
    optimizer = offloaded(torch.optim.Adam)(model.parameters(), lr=0.01)

    def step(pieces, optim):
        for piece in pieces:
            piece.grad = piece.detach().sin()
        optim.step()

    step(whole.pieces, optimizer)
    saved = sharded_state_dict(whole, optimizer)
    assert ("master" in saved["sharded_state"]["w"]) == (dtype == torch.bfloat16)
    step(whole.pieces, optimizer)
    for rank in range(2):
        cut = plan_flat([6, 6], 2, 1)  # a bucket for each, so each is cut in halves
        pieces = [nn.Parameter(torch.zeros(3, dtype=dtype)) for _ in range(2)]
        sharded = ShardedParameters(["w", "v"], [(6,), (6,)], pieces, cut, rank, 1)
        own = offloaded(torch.optim.Adam)(pieces, lr=0.5)
        load_sharded_state_dict(reshard([saved], sharded), sharded, own)
        step(pieces, own)
        assert same(pieces, halves([model.w, model.v], rank))
        masters = [master.detach().chunk(2)[rank] for _, master in optimizer.pairs]
        assert same([master for _, master in own.pairs], masters)


def test_sabotage_masters_that_were_not_told_bring_the_old_values_back():
    pieces = some_pieces()
    optimizer = offloaded(torch.optim.SGD)(pieces, lr=0.1)
    with torch.no_grad():
        pieces[0].fill_(100.0)
    give_gradients(pieces)
    optimizer.step()
    assert pieces[0].max() < 10
    with torch.no_grad():
        pieces[0].fill_(100.0)
    optimizer.copy_pieces_to_masters()
    give_gradients(pieces)
    optimizer.step()
    assert pieces[0].min() > 90


def test_what_cannot_be_trained_is_refused():
    with pytest.raises(TypeError, match=r"say which optimizer: offloaded\(torch.optim.AdamW\)"):
        OffloadedOptimizer(some_pieces(), lr=0.1)
    with pytest.raises(TypeError, match=r"a parameter is torch.int64, and only floating-point"):
        offloaded(torch.optim.SGD)([nn.Parameter(torch.zeros(2, dtype=torch.int64), requires_grad=False)], lr=0.1)
    with pytest.raises(ValueError, match="Invalid learning rate"):
        offloaded(torch.optim.Adam)(some_pieces(), lr=-1.0)
    optimizer, fewer = offloaded(torch.optim.Adam)(some_pieces(), lr=0.1), torch.optim.Adam(some_pieces()[:2])
    with pytest.raises(ValueError, match="doesn't match the size"):
        optimizer.load_state_dict(fewer.state_dict())


# Stage 3, with shards on the host.


class Doubled(torch.optim.SGD):
    """An optimizer whose step takes no closure, but an option."""

    def step(self, *, times=1):
        for _ in range(times):
            super().step()


def test_a_step_takes_the_options_of_the_optimizers_own_and_need_not_take_a_closure():
    plain, own = some_pieces(), some_pieces()
    first, second = Doubled(plain, lr=0.1), offloaded(Doubled)(own, lr=0.1)
    give_gradients(plain)
    first.step(times=2)
    give_gradients(own)
    assert second.step(lambda: "the closure's", times=2) == "the closure's"
    assert same(own, plain)


def test_a_copy_is_refused_with_the_way_to_have_one():
    optimizer = offloaded(torch.optim.Adam)(some_pieces(), lr=0.1)
    for copied in (lambda: copy.deepcopy(optimizer), lambda: pickle.dumps(optimizer)):
        with pytest.raises(
            TypeError, match=r"OffloadedAdam has its state on a host and cannot be copied .* state_dict"
        ):
            copied()


CASES = [("mlp", "freed"), ("tied", "kept"), ("frozen", "freed"), ("types", "freed")]
WAYS = {"freed": {}, "kept": {"reshard_after_forward": False}}


def sharded(name, way, host):
    options = {"units": UNITS[name], **WAYS[way], "offload": host}
    return FullyShardedDataParallel(seeded_by_rank(name), **options)


def case_of_stage_3(name, way):
    """The distance to the single-process run."""
    host = Host()
    wrapped = sharded(name, way, host)
    optimizer = offloaded(torch.optim.AdamW)(wrapped.parameters(), host=host, lr=0.01, weight_decay=0.1)
    assert all(host.holds(piece) for piece in wrapped.sharded_params)
    return distance(sharded_training.train(wrapped, optimizer, name), reference(name, "adamw"))


def stage_3():
    """The distances of all cases; and of "mlp" what lies and moves where."""
    return distances(CASES), bytes_of_a_step()


def bytes_of_a_step():
    host = Host()
    wrapped = sharded("mlp", "freed", host)
    optimizer = offloaded(torch.optim.Adam)(wrapped.parameters(), host=host, lr=0.01)
    inputs = torch.ones(2, 6, dtype=torch.float64)
    shards, owned = 8 * wrapped.partition.shard, 8 * wrapped.partition.owned(dist.get_rank())
    found = {"shards": shards, "owned": owned}
    for _ in range(2):
        moved = host.to_device, host.to_host
        with MemoryLedger(wrapped, optimizer, inputs=inputs) as ledger, ledger.phase("all"):
            wrapped(inputs).sum().backward()
            optimizer.step()
            found["host in the step"] = host.now
            optimizer.zero_grad()
        found["up"], found["down"] = host.to_device - moved[0], host.to_host - moved[1]
    record = ledger.record()
    found["device"] = {category: peak for category, peak in record.on("cpu").peak.by_category.items() if peak}
    found["on the host"] = sum(a.bytes for a in record.on("host").allocations if a.made == 0)
    found["host"] = host.now
    found["pieces"] = sum(1 for piece in wrapped.sharded_params if optimizer.state.get(piece))
    return found


def distances(cases):
    return {case: case_of_stage_3(*case) for case in cases}


def test_stage_3_on_another_device(other_device):
    for found in run_ranks(distances, 2, CASES[1:], device=other_device):
        assert all(away < (1e-5 if "types" in case else TOLERANCE) for case, away in found.items()), found


@pytest.mark.parametrize("world_size", [1, 3])
def test_stage_3_with_shards_on_the_host(world_size):
    for found, moved in run_ranks(stage_3, world_size, device="cpu"):
        assert all(away < (1e-5 if "types" in case else TOLERANCE) for case, away in found.items()), found
        shards, steps = moved["shards"], 4 * moved["pieces"]
        assert moved["up"] == 2 * shards and moved["down"] == shards  # gathered twice, reduced once
        assert moved["host"] == shards + 2 * moved["owned"] + steps == moved["on the host"]
        assert moved["host in the step"] == moved["host"] + shards
        assert not {"parameters", "gradients", "optimizer state"} & moved["device"].keys(), moved


@pytest.mark.gpu
def test_on_a_gpu():
    plain, own = ([p.detach().cuda().requires_grad_() for p in some_pieces(torch.bfloat16)] for _ in range(2))
    train(plain, MasterWeights(plain, torch.optim.AdamW, lr=0.01), 4)
    train(own, offloaded(torch.optim.AdamW)(own, lr=0.01), 4)
    assert max((a.float() - b.float()).abs().max().item() for a, b in zip(plain, own, strict=True) if a.numel()) < 1e-2
