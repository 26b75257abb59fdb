"""Stage 3: the single-process run and `fully_shard`, step by step; what a pass sends and holds; what breaks it."""

import contextlib
import functools
from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector
from torch.utils.checkpoint import checkpoint

from dtlearn.memory import record_step
from dtlearn.models import GPT, GPTConfig, max_difference, next_token_loss, snapshot_parameters
from dtlearn.models.gpt import Block
from dtlearn.runtime.errors import RanksDisagree
from dtlearn.zero.stages import zero3
from dtlearn.zero.stages.sharded_bucket import ShardedBucket
from dtlearn.zero.stages.zero3 import FullyShardedDataParallel
from tests.data_parallel.runs import MODELS, distance, message_of, mlp
from tests.devices import run_ranks
from tests.zero.stages.sharded_training import (
    OPTIMIZERS,
    TOLERANCE,
    UNITS,
    batches_of,
    reference,
    seeded_by_rank,
    split_at_barriers,
    torchs,
    train,
)

WAYS = {
    "freed, prefetch 1": {},
    "freed, prefetch 0": {"prefetch": 0},
    "root kept": {"reshard_after_forward": None},
    "kept, prefetch 3": {"reshard_after_forward": False, "prefetch": 3},
    "one unit": {"units": ()},
}


def sharded(name, **options):
    return FullyShardedDataParallel(seeded_by_rank(name), **{"units": UNITS[name], **options})


# Model, optimizer, and a key of WAYS, or PyTorch's.
CASES = [
    ("mlp", "sgd", "freed, prefetch 1"),
    ("mlp", "momentum", "freed, prefetch 1"),
    ("frozen", "adamw", "freed, prefetch 0"),
    ("twice", "adamw", "root kept"),
    ("types", "adamw", "kept, prefetch 3"),
    ("tied", "momentum", "one unit"),
    *(("gpt", "adamw", way) for way in WAYS),
    ("tied", "adamw", "torch"),
]


def parity(cases=CASES):
    """The distance to the single-process run, or to that of PyTorch's class, by case."""
    found = {}
    for name, optimizer, way in cases:
        wrapped = sharded(name, **WAYS.get(way, {"reshard_after_forward": None}))
        compared = way != "torch"
        mine = train(wrapped, OPTIMIZERS[optimizer](wrapped.parameters()), name, gradients=compared)
        theirs = reference(name, optimizer) if compared else torchs(name, optimizer)
        found[name, optimizer, way] = distance(mine, theirs)
    return found


def too_far(found):
    return {case: away for case, away in found.items() if not away < (1e-5 if "types" in case else TOLERANCE)}


@pytest.fixture(scope="module")
def on_two():
    """Each rank's results: `parity`, `lives`, `sabotaged`, `around_it` and `peaks`."""
    everything = functools.partial(all_of, parity, lives, sabotaged, around_it, peaks)
    return run_ranks(everything, 2, device="cpu", timeout=110).values


def all_of(*parts):
    return {part.__name__: part() for part in parts}


def test_it_is_the_single_process_run_on_another_device(other_device):
    for found in run_ranks(parity, 2, CASES[2:8:2], device=other_device, timeout=110):
        assert len(found) == 3 and not too_far(found)


def test_it_is_the_single_process_run_and_torchs(on_two):
    for found in on_two:
        assert len(found["parity"]) == len(CASES) and not too_far(found["parity"])


@pytest.mark.parametrize("world_size", [1, 3])
def test_so_it_is_on_other_numbers_of_ranks(world_size):
    cases = CASES[:: 2 if world_size == 3 else 4]
    for found in run_ranks(parity, world_size, cases, device="cpu", timeout=110):
        assert len(found) == len(cases) and not too_far(found)


# What a step sends and holds.

CONFIG = GPTConfig(48, 16, 4, 4, 32)


def tokens(rank):
    torch.manual_seed(rank)
    batch = torch.randint(CONFIG.vocab_size, (6, 11))
    return batch[:, :-1].contiguous(), batch[:, 1:].contiguous()


def sizes(num_ranks):
    """Bytes of a block, of the root and of the model, padding included."""
    model = GPT(CONFIG)
    block = sum(p.numel() for p in model.blocks[0].parameters())
    root = sum(p.numel() for p in model.parameters()) - 4 * block
    block, root = (4 * num_ranks * -(-size // num_ranks) for size in (block, root))
    return block, root, 4 * block + root


def recorded_steps(cases):
    """The memory of a step, in each case."""
    records, (inputs, targets) = [], tokens(dist.get_rank())
    for options in cases:
        model = FullyShardedDataParallel(GPT(CONFIG), units=(Block,), **options)
        adam = torch.optim.Adam(model.parameters(), foreach=False)
        records.append(record_step(model, adam, (inputs, targets), next_token_loss))
    return records


@pytest.mark.parametrize(
    ("world_size", "cases"),
    [
        (2, [{}, {"prefetch": 2, "reshard_after_forward": None}]),
        (3, [{"prefetch": 0}, {"reshard_after_forward": False}]),
    ],
)
def test_memory_is_that_of_the_docstring(world_size, cases):
    block, root, model = sizes(world_size)
    for records in run_ranks(recorded_steps, world_size, cases, device="cpu"):
        for options, record in zip(cases, records, strict=True):
            ahead, reshard = options.get("prefetch", 1), options.get("reshard_after_forward", True)
            live = record.timeline()
            # Gathered parameters, and the gradients of a unit as one vector, are what is communicated.
            forward, backward = (max(record.inside(name).live("communication")) for name in ("forward", "backward"))
            if reshard is False:
                assert (
                    forward == model and backward == model
                )  # a unit's are freed before its gradients become one vector
            else:
                assert forward == root + (1 + ahead) * block
                assert backward == root + (1 + ahead) * block + block
            after = {phase.name: {name: live[name][phase.stop] for name in live} for phase in record.phases}
            kept = {None: root, False: model, True: 0}[reshard]
            assert [after[name]["communication"] for name in after] == [kept, 0, 0, 0]
            shards = model // world_size
            assert [after[name]["gradients"] for name in after] == [0, shards, shards, 0]
            assert {after[name]["parameters"] for name in after} == {shards}
            state = {after[name]["optimizer state"] for name in after}.pop()
            assert abs(state - 2 * shards) <= 4 * 71  # a count of steps for each piece; none for padding


def peaks():
    """The peak of a step with our class and with torch's, with all that lives for a moment."""
    found, batch = [], tokens(dist.get_rank())
    for wrap in (ours_by_blocks, torchs_by_blocks):
        model = wrap(GPT(CONFIG))
        adam = torch.optim.Adam(model.parameters(), foreach=False)
        found.append(record_step(model, adam, batch, next_token_loss).peak.bytes)
    return found


def ours_by_blocks(model):
    return FullyShardedDataParallel(model, units=(Block,), reshard_after_forward=None)


def torchs_by_blocks(model):
    from torch.distributed.fsdp import fully_shard  # takes as long as a run: only ranks that need it import it

    for module in (*model.blocks, model):
        fully_shard(module)
    return model


def test_the_peak_of_a_step_is_torchs(on_two):
    for ours, theirs in (result["peaks"] for result in on_two):
        assert abs(ours - theirs) < 0.01 * theirs


# Options, gathers in a step, micro-batches.
STEPS = [({}, 2, 1), ({"reshard_after_forward": None}, 2, 1), ({"reshard_after_forward": False}, 1, 1), ({}, 2, 3)]


def steps():
    inputs, targets = tokens(0)
    for options, _, micro_batches in STEPS:
        model = FullyShardedDataParallel(GPT(CONFIG), units=(Block,), **options)
        for place in range(micro_batches):
            with model.no_sync() if place < micro_batches - 1 else contextlib.nullcontext():
                next_token_loss(model(inputs), targets).backward()
        dist.barrier()  # parts the record


def test_bytes_are_those_of_the_docstring():
    ranks = 3
    _, root, model = sizes(ranks)
    record = run_ranks(steps, ranks, device="cpu", record=True).record
    for rank in range(ranks):
        parts = split_at_barriers(record.select(rank=rank))
        for (options, gathers, micro_batches), events in zip(STEPS, parts, strict=True):
            kept = root if options and gathers == 2 else 0  # with None, those of the root
            gathered = [event.nbytes for event in events if event.op == "all_gather_into_tensor"]
            scattered = [event.nbytes for event in events if event.op == "reduce_scatter_tensor"]
            assert (len(gathered), len(scattered)) == (micro_batches * (5 * gathers - bool(kept)), 5)
            sent = sum(gathered) * (ranks - 1) + sum(scattered) * (ranks - 1) // ranks
            assert sent == (micro_batches * (gathers * model - kept) + model) * (ranks - 1) // ranks


# Sabotage: what the parity test is to find.


class NotGathered(ShardedBucket):
    """The all-gather is left out: each rank computes with its own shard, and what was there."""

    def unshard(self):
        self.unsharded.untyped_storage().resize_(self._nbytes)
        self.unsharded.view(-1, self.bucket.shard)[dist.get_rank()] = self.shard


class GatheredOnce(ShardedBucket):
    """The second gather, for the backward pass, is skipped."""

    def unshard(self):
        self.times = getattr(self, "times", 0) + 1
        if self.times % 2:
            super().unshard()
        else:
            self.unsharded.untyped_storage().resize_(self._nbytes)
            self.unsharded.zero_()  # what new memory often holds


class NeverFreed(ShardedBucket):
    """Computes the right thing: only the memory shows it."""

    def reshard(self):
        self.wait_for_unshard()


class OldWeights(NeverFreed):
    """What was gathered in the first step is used for good."""

    def unshard(self):
        if not self.unsharded.untyped_storage().nbytes():
            super().unshard()


class NotDivided(ShardedBucket):
    def hand_out(self, reduced):
        super().hand_out(reduced * self.divisor)


class NotReduced(ShardedBucket):
    """Each rank takes its own gradients for the mean."""

    def reduce_gradients(self):
        reduction = super().reduce_gradients()
        own = reduction._gradient.clone().view(-1, self.bucket.shard)[dist.get_rank()] * self.divisor
        reduction.finish = lambda: reduction._work.wait() and self.hand_out(own)
        return reduction


SABOTAGE = [ShardedBucket, NotGathered, GatheredOnce, NeverFreed, OldWeights, NotDivided, NotReduced]


def sabotaged():
    found, kept = {}, {}
    for bucket in SABOTAGE:
        zero3.ShardedBucket = bucket
        wrapped = sharded("gpt")
        mine = train(wrapped, OPTIMIZERS["adamw"](wrapped.parameters()), "gpt")
        found[bucket.__name__] = distance(mine, reference("gpt", "adamw"))
        kept[bucket.__name__] = sum(
            b.unsharded.untyped_storage().nbytes() for unit in wrapped.units for b in unit.buckets
        )
    zero3.ShardedBucket = ShardedBucket
    return found, kept


def test_sabotage_is_found(on_two):
    for found, kept in (result["sabotaged"] for result in on_two):
        assert found.pop("ShardedBucket") < TOLERANCE > found.pop("NeverFreed")
        assert not [name for name, away in found.items() if away < 1e-3], found
        assert kept.pop("NeverFreed") > 0 < kept.pop("OldWeights") and not any(kept.values())


# What it is to live with.


class Part(nn.Sequential):
    """A unit, with a checkpoint in it or not."""

    def forward(self, x, inside=False):
        act, linear, last = self
        return last(checkpoint(lambda y: linear(act(y)), x, use_reentrant=False) if inside else linear(act(x)))


class Blocks(nn.Module):
    """Blocks of two layers in a model that has a layer itself, used in the ways that the tests ask for."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.blocks = nn.ModuleList(Part(nn.ReLU(), nn.Linear(6, 6), nn.Tanh()) for _ in range(3))
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x, use="012", reentrant=None, whole=True):
        x = self.first(x)
        for block in (self.blocks[int(number)] for number in use):
            if reentrant is None:
                x = x + block(x * 1)
            elif whole:
                x = x + checkpoint(block, x * 1, use_reentrant=reentrant)
            else:
                x = x + block(x * 1, inside=True)
        return self.norm(x)


class Inner(nn.Module):
    """Units in units, one of which computes nothing that needs a gradient."""

    def __init__(self):
        super().__init__()
        self.outer = nn.ModuleList(Blocks() for _ in range(2))
        self.frozen = nn.Linear(6, 6).requires_grad_(False)

    def forward(self, x):
        for module in self.outer:
            x = module(x)
        return {"out": [self.frozen(x)]}


def mine(step=0):
    g = torch.Generator().manual_seed(10 * step + dist.get_rank())
    return torch.randn(4, 6, generator=g, dtype=torch.float64)


def total(outputs):
    outputs = outputs["out"][0] if isinstance(outputs, dict) else outputs
    return (outputs + torch.linspace(0, 1, 6, dtype=outputs.dtype)).pow(3).mean()


def as_one_process(make, backwards, units, **options):
    """The largest difference after two steps between a sharded model and one whose gradients are averaged plainly."""
    torch.manual_seed(0)
    plain = make().double()
    torch.manual_seed(0)
    model = FullyShardedDataParallel(make().double(), units=units, **options)
    optimizers = [torch.optim.Adam(m.parameters(), lr=0.01) for m in (plain, model)]
    for step in range(2):
        for each, optimizer in zip((plain, model), optimizers, strict=True):
            optimizer.zero_grad()
            backwards(each, step)
            if each is plain:
                average_plainly(plain)
            optimizer.step()
    with model.unsharded():
        return max_difference(snapshot_parameters(model.module), snapshot_parameters(plain)).value


def average_plainly(model):
    trained = [parameter for parameter in model.parameters() if parameter.grad is not None]
    mean = parameters_to_vector(parameter.grad.detach() for parameter in trained)
    dist.all_reduce(mean)
    for parameter, part in zip(trained, mean.split([p.numel() for p in trained]), strict=True):
        parameter.grad = part.view_as(parameter) / dist.get_world_size()


def accumulate(model, step):
    for micro in range(3):
        quiet = micro < 2 and isinstance(model, FullyShardedDataParallel)
        with model.no_sync() if quiet else contextlib.nullcontext():
            total(model(mine(3 * step + micro))).backward()


def forward_in_no_sync(model, step):
    """The forward pass decides: what was computed in `no_sync` is not reduced, wherever backward runs."""
    with model.no_sync() if isinstance(model, FullyShardedDataParallel) else contextlib.nullcontext():
        early = total(model(mine(step)))
    early.backward()
    total(model(mine(step + 5))).backward()


def two_forwards(model, step):
    (total(model(mine(step))) + total(model(mine(step + 5), "10"))).backward()


def evaluation_between(model, step):
    out = total(model(mine(step)))
    with torch.no_grad():
        model(mine(7), "2")
    model(mine(8))  # its graph is dropped
    out.backward()


LIVES = {
    "checkpoint": lambda model, step: total(model(mine(step), reentrant=False)).backward(),
    "reentrant checkpoint": lambda model, step: total(model(mine(step), reentrant=True)).backward(),
    "checkpoint in a unit": lambda model, step: total(model(mine(step), reentrant=False, whole=False)).backward(),
    "another order": lambda model, step: total(model(mine(step), "201")).backward(),
    "a unit twice": lambda model, step: total(model(mine(step), "0120")).backward(),
    "a unit left out": lambda model, step: total(model(mine(step), "02" if step else "01")).backward(),
    "gradient of the input": lambda model, step: total(model(mine(step).requires_grad_())).backward(),
    "reduced each time": lambda model, step: [total(model(mine(2 * step + m))).backward() for m in range(2)],
    "create_graph": lambda model, step: total(model(mine(step))).backward(create_graph=True),
    "no_sync": accumulate,
    "forward in no_sync": forward_in_no_sync,
    "two forwards": two_forwards,
    "evaluation between": evaluation_between,
}


def lives():
    found = {}
    for name, backwards in LIVES.items():
        for reshard in (True, False) if "checkpoint" in name or "forwards" in name else (None,):
            away = as_one_process(Blocks, backwards, [Part], reshard_after_forward=reshard)
            found[name, reshard] = away

    def plain(model, step):
        total(model(mine(step))).backward()

    for ahead in (0, 2):
        found["units in units", ahead] = as_one_process(Inner, plain, [Blocks, Part, nn.BatchNorm1d], prefetch=ahead)
    return found


def test_it_is_used_as_a_model_is(on_two):
    for found in (result["lives"] for result in on_two):
        assert len(found) == 19
        assert not {case: away for case, away in found.items() if not away < TOLERANCE}


def around_it():
    found, x = {}, mine()
    model = FullyShardedDataParallel(Blocks().double(), units=[Part], prefetch=1)
    optimizer, events = torch.optim.SGD(model.parameters(), lr=0.1), model.record_events()
    total(model(x)).backward()
    found["events"] = [(event.unit, event.what) for event in events]
    found["in order"] = all(a.ns <= b.ns for a, b in pairwise(events))
    with model.unsharded():
        found["evaluated"] = torch.equal(model.eval()(x), model.module.forward(x))
        model.module.blocks[0][1].weight.data.fill_(3.0)
        found["shapes"] = [tuple(p.shape) for p in model.module.parameters()] == [tuple(s) for s in model.shapes]
    with model.unsharded():
        found["changed"] = bool((model.module.blocks[0][1].weight == 3).all())
    found["kept"] = sum(b.unsharded.untyped_storage().nbytes() for unit in model.units for b in unit.buckets)
    model.train()
    found["no_grad"] = model(x).requires_grad
    model.sharded_params[0].requires_grad_(False)  # frozen afterwards
    total(model(x)).backward()
    # Errors. After each, the model works as before.
    found["bare forward"] = message_of(lambda: model.module.forward(x))
    found["a part"] = message_of(lambda: model.module.first(x))
    found["a unit"] = message_of(lambda: model.module.blocks[1].forward(x))
    found["a unit, called"] = message_of(lambda: model.module.blocks[1](x))  # it gathers itself
    found["a part of a part"] = message_of(lambda: model.module.first.forward(x))
    found["forward fails"] = message_of(lambda: model(x[:, :3]))
    found["backward fails"] = message_of(lambda: model(Fails.apply(x.clone().requires_grad_()), "0").sum().backward())
    found["unit backward fails"] = message_of(lambda: fails_between(model, x))
    gradients = []
    for _ in range(2):
        optimizer.zero_grad()
        total(model(x)).backward()
        gradients.append([piece.grad for piece in model.sharded_params if piece.grad is not None])
    found["works"], found["nothing left"] = len(gradients[0]), all(map(torch.equal, *gradients))
    old = mlp()
    before = torch.optim.SGD(old.parameters(), lr=0.1)
    FullyShardedDataParallel(old)
    found["built before"] = message_of(before.step)
    model.module.extra = nn.Linear(6, 6)
    found["added"] = message_of(lambda: model(x))
    del model.module.extra
    model.float()
    found["moved"] = message_of(lambda: model(x))
    found["output"] = message_of(lambda: FullyShardedDataParallel(Opaque())(x))
    torch.manual_seed(0)
    found["classes"] = message_of(lambda: FullyShardedDataParallel(mlp(), units=[nn.Conv2d]))
    found["others"] = message_of(lambda: FullyShardedDataParallel(nn.Linear(2, 2 + dist.get_rank())))
    return found


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, gradient):
        raise ArithmeticError("planted")


def fails_between(model, x):
    """Backward fails in the middle: some units are done, one is under way."""
    handle = model.module.blocks[1].register_forward_hook(lambda module, inputs, output: Fails.apply(output))
    try:
        total(model(x)).backward()
    finally:
        handle.remove()


class Opaque(nn.Linear):
    def __init__(self):
        super().__init__(6, 6)

    def forward(self, x):
        return Outputs(super().forward(x.float()))


class Outputs:
    def __init__(self, value):
        self.value = value


def test_it_shows_what_happens_and_says_what_is_wrong(on_two):
    for found in (result["around_it"] for result in on_two):
        assert found["in order"] and found["evaluated"] and found["shapes"] and found["changed"]
        assert found["kept"] == 0 and found["no_grad"]
        assert [event for event in found["events"] if event[0] == "blocks.1"] == [
            ("blocks.1", what)
            for what in (
                *("unshard", "wait_for_unshard", "computed", "reshard"),
                *("unshard", "wait_for_unshard", "computed", "reshard", "reduce"),
            )
        ]
        order = [event for event in found["events"] if event[1] in ("unshard", "computed")]
        assert order.index(("blocks.1", "unshard")) < order.index(("blocks.0", "computed"))  # one ahead
        backward = order[-8:]
        assert backward.index(("blocks.0", "unshard")) < backward.index(("blocks.1", "computed"))
        assert found["a unit, called"] == ""
        for name in ("bare forward", "a part", "a part of a part", "a unit"):
            assert "are in shards here. They are gathered by a call of the model, model(...)" in found[name]
        assert "mat1 and mat2" in found["forward fails"]
        assert found["works"] == 9 and found["nothing left"]
        assert "planted" in found["backward fails"] and "planted" in found["unit backward fails"]
        assert "this optimizer was built before the model was sharded" in found["built before"]
        assert "extra.weight has come or was moved since the model was sharded" in found["added"]
        assert "first.weight has come or was moved" in found["moved"]
        assert "the model returned a Outputs, in which no tensor can be found" in found["output"]
        assert "no module of the model is one" in found["classes"]
        assert "the model of rank 1 is not that of rank 0" in found["others"]


def skips_a_layer():
    model = FullyShardedDataParallel(Blocks().double(), units=[Part], prefetch=0)
    x = torch.ones(2, 6, dtype=torch.float64)
    total(model(x, "01" if dist.get_rank() else "012")).backward()


def test_a_rank_that_skips_a_unit_is_named():
    with pytest.raises(RanksDisagree, match="all_gather_into_tensor with shape") as error:
        run_ranks(skips_a_layer, 2, device="cpu", timeout=30)
    assert "often one rank has made a call that another left out" in str(error.value)


def in_groups():
    """Two groups train two models, side by side."""
    groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    group = groups[dist.get_rank() % 2]
    torch.manual_seed(dist.get_rank(group))
    wrapped = FullyShardedDataParallel(mlp(), units=[nn.Linear], group=group)
    steps = train(wrapped, OPTIMIZERS["adamw"](wrapped.parameters()), "mlp", group)
    error = message_of(lambda: FullyShardedDataParallel(mlp(), group=groups[1 - dist.get_rank() % 2]))
    return distance(steps, reference("mlp", "adamw")), error


def on_four():
    return parity([*CASES[:3], CASES[-1]]), *in_groups()


def test_all_or_a_part_of_four_ranks_are_a_group():
    for found, away, error in run_ranks(on_four, 4, device="cpu", timeout=110):
        assert len(found) == 4 and not too_far(found)
        assert away < TOLERANCE and "ValueError: this rank is not in the group" in error


def on_one_gpu():
    import dtlearn

    device = dtlearn.device()
    torch.manual_seed(0)
    model, away = MODELS["gpt"]().to(device), []
    model = FullyShardedDataParallel(model, units=UNITS["gpt"])
    optimizer = OPTIMIZERS["adamw"](model.parameters())
    for (inputs, targets), expected in zip(batches_of("gpt"), reference("gpt", "adamw"), strict=True):
        optimizer.zero_grad()
        next_token_loss(model(inputs.to(device)), targets.to(device)).backward()
        optimizer.step()
        with model.unsharded():
            found = snapshot_parameters(model.module)
        away.append(max_difference(found, {name: expected[name] for name in found}).value)
    return (
        dist.get_backend(),
        max(away),
        sum(b.unsharded.untyped_storage().nbytes() for u in model.units for b in u.buckets),
    )


@pytest.mark.gpu
def test_on_a_gpu():
    backend, away, kept = run_ranks(on_one_gpu, 1, device="cuda")[0]
    assert backend == "nccl" and away < TOLERANCE and kept == 0
