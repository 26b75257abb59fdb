"""`DistributedDataParallel`, and `BucketedDataParallel`: the single-process run and torch's own, step by step."""

import gc
import weakref
from dataclasses import dataclass

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import dtlearn
from dtlearn.data_parallel.ddp import DistributedDataParallel
from tests.data_parallel.runs import (
    MODELS,
    SIZE,
    SMALL,
    TOLERANCE,
    Normed,
    Paths,
    bucketed,
    data,
    distance,
    distance_to_reference,
    frozen_mlp,
    message_of,
    mlp,
    naive,
    ours,
    seeded_by_rank,
    snapshot,
    torch_ddp,
    views,
)
from tests.devices import run_ranks


def every_model(names):
    """The distance to the single-process run, by model and wrapper."""
    found = {}
    for name in names:
        found[name, "ours, SGD"] = distance_to_reference(name, ours, "sgd")
        found[name, "ours, Adam"] = distance_to_reference(name, ours, "adam")
        found[name, "views, SGD"] = distance_to_reference(name, views, "sgd", set_to_none=False)
        found[name, "views, Adam"] = distance_to_reference(name, views, "adam")
        found[name, "bucketed, SGD"] = distance_to_reference(name, bucketed, "sgd", set_to_none=False)
        found[name, "bucketed, Adam"] = distance_to_reference(name, bucketed, "adam")
        found[name, "torch, Adam"] = distance_to_reference(name, torch_ddp, "adam")
    return found


def too_far(found):
    return {case: away for case, away in found.items() if not away < (1e-5 if "types" in case else TOLERANCE)}


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_it_is_the_single_process_run(world_size, device):
    names = list(MODELS) if device == "cpu" else ["tied", "types"]
    for found in run_ranks(every_model, world_size, names, device=device, timeout=110):
        assert len(found) == 7 * len(names) and not too_far(found)


def in_two_groups():
    groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    mine = groups[dist.get_rank() % 2]
    others = groups[1 - dist.get_rank() % 2]
    found = {wrap.__name__: distance_to_reference("mlp", wrap, "sgd", group=mine) for wrap in (ours, bucketed)}
    found["unused"] = distance_to_reference(
        "twice", lambda m: ours(m, group=mine, find_unused_parameters=True), "sgd", group=mine
    )
    return found, message_of(lambda: ours(mlp(), group=others))


def test_half_of_the_ranks_are_a_group():
    for found, error in run_ranks(in_two_groups, 4, device="cpu"):
        assert not too_far(found)
        assert "ValueError: this rank is not in the group" in error


# What has no single-process counterpart, or a subtle one: the same must come out as with torch's.


class Checkpointed(nn.Module):
    def __init__(self, use_reentrant, twice=False):
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 4)
        self.use_reentrant, self.twice = use_reentrant, twice

    def forward(self, x):
        x = self.first(x)
        for _ in range(1 + self.twice):
            x = checkpoint(self.middle, x, use_reentrant=self.use_reentrant)
        return self.last(x)


@dataclass
class Outputs:
    used: torch.Tensor
    extra: dict


class ManyOutputs(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(6, 4) for _ in range(3))
        self.outputs = outputs

    def forward(self, x):
        return self.outputs(used=self.a(x), extra={"b": [self.b(x)], "c": (self.c(x), 3)})


def mine(step):
    g = torch.Generator().manual_seed(100 * step + dist.get_rank())
    return torch.randn(3, 6, generator=g, dtype=torch.float64).to(dtlearn.device())


def run(wrapped, backwards, steps=3, set_to_none=True):
    """Steps of Adam, whose state shows which gradients were None; `backwards(step)` makes a step's gradients."""
    optimizer, found = torch.optim.Adam(wrapped.parameters(), lr=0.01), []
    for step in range(steps):
        optimizer.zero_grad(set_to_none)
        backwards(step)
        optimizer.step()
        found.append(snapshot(wrapped.module))
    return found


def plain(wrap, make, **options):
    wrapped = wrap(seeded_by_rank(make).double())
    return run(wrapped, lambda step: wrapped(mine(step)).square().sum().backward(), **options)


def accumulate(wrap):
    wrapped = wrap(seeded_by_rank(mlp))

    def backwards(step):
        with wrapped.no_sync():
            for micro in range(2):
                wrapped(mine(3 * step + micro)).square().sum().backward()
        wrapped(mine(3 * step + 2)).square().sum().backward()

    return run(wrapped, backwards)


def accumulate_in_zeros(wrap):
    wrapped = wrap(seeded_by_rank(mlp))

    def backwards(step):
        with wrapped.no_sync():
            wrapped(mine(2 * step)).square().sum().backward()
        wrapped(mine(2 * step + 1)).square().sum().backward()

    return run(wrapped, backwards, set_to_none=False)


def two_synchronised_backwards(wrap):
    wrapped = wrap(seeded_by_rank(mlp))

    def backwards(step):
        for micro in range(2):
            wrapped(mine(2 * step + micro)).square().sum().backward()

    return run(wrapped, backwards)


def by_forward_alone(wrap):
    """The forward pass is inside `no_sync()`, the backward pass is not: nothing is averaged."""
    wrapped = wrap(seeded_by_rank(mlp))

    def backwards(step):
        with wrapped.no_sync():
            loss = wrapped(mine(step)).square().sum()
        loss.backward()

    return run(wrapped, backwards)


def unused(wrap, uses, **options):
    """`uses`: layers for each step and micro-batch, by rank; the last micro-batch synchronises."""
    wrapped = wrap(seeded_by_rank(Paths).double(), find_unused_parameters=True)

    def backwards(step):
        *early, last = uses(step, dist.get_rank())
        for use in early:
            with wrapped.no_sync():
                wrapped(mine(step), use).square().sum().backward()
        wrapped(mine(step), last).square().sum().backward()

    return run(wrapped, backwards, **options)


def part_of_the_outputs(wrap):
    outputs = dict if wrap is torch_ddp else Outputs  # torch's DDP finds no part of a dataclass unused
    wrapped = wrap(seeded_by_rank(lambda: ManyOutputs(outputs)).double(), find_unused_parameters=True)

    def backwards(step):
        found = wrapped(mine(step))
        used, extra = found.values() if outputs is dict else (found.used, found.extra)
        loss = used if step != 1 else extra["b"][0] if dist.get_rank() else extra["c"][0]
        loss.square().sum().backward()

    return run(wrapped, backwards)


def evaluation_in_between(wrap):
    wrapped = wrap(seeded_by_rank(mlp))

    def backwards(step):
        loss = wrapped(mine(step)).square().sum()
        with torch.no_grad():
            wrapped(mine(step + 1))
        loss.backward()

    return run(wrapped, backwards)


def the_bare_module_too(wrap):
    """A pass through the module itself communicates nothing: rank 0 alone makes one."""
    wrapped = wrap(seeded_by_rank(mlp))

    def backwards(step):
        wrapped(mine(step)).square().sum().backward()
        if dist.get_rank() == 0:
            wrapped.module(mine(step).to(next(wrapped.parameters()).device)).sum().backward()

    return run(wrapped, backwards)


def gradients_of_inputs(wrap):
    """`torch.autograd.grad` is no backward pass: a gradient penalty, as in a GAN."""
    wrapped = wrap(seeded_by_rank(mlp))

    def backwards(step):
        x = mine(step).requires_grad_()
        outputs = wrapped(x)
        (slope,) = torch.autograd.grad(outputs.sum(), x, create_graph=True)
        (outputs.square().sum() + slope.square().sum()).backward()

    return run(wrapped, backwards)


def two_forwards_one_backward(wrap):
    wrapped = wrap(seeded_by_rank(Normed).double())  # backward needs buffers as the first forward pass saw them
    return run(wrapped, lambda s: (wrapped(mine(s)) - wrapped(mine(s + 9))).square().sum().backward())


SCENARIOS = {
    "batch norm": lambda wrap: plain(wrap, Normed),
    "accumulation": accumulate,
    "accumulation, zeroed": accumulate_in_zeros,
    "two backward passes": two_synchronised_backwards,
    "forward decides": by_forward_alone,
    "unused on some ranks": lambda wrap: unused(wrap, lambda step, rank: ["ab" if rank else "a"]),
    "changing": lambda wrap: unused(wrap, lambda step, rank: ["abc"[(step + rank) % 3] + "c"]),
    "unused everywhere at times": lambda wrap: unused(wrap, lambda step, rank: ["abd" if step == 1 else "ab"]),
    "unused, zeroed": lambda wrap: unused(
        wrap, lambda step, rank: ["abd" if step == 1 else "ab"[rank % 2]], set_to_none=False
    ),
    "used early only": lambda wrap: unused(wrap, lambda step, rank: ["ab", "c" if rank else "a", "b"]),
    "part of the outputs": part_of_the_outputs,
    "evaluation in between": evaluation_in_between,
    "bare module": the_bare_module_too,
    "gradients of inputs": gradients_of_inputs,
    "checkpoint": lambda wrap: plain(wrap, lambda: Checkpointed(False)),
    "checkpoint, twice": lambda wrap: plain(wrap, lambda: Checkpointed(False, twice=True)),
    "checkpoint, reentrant": lambda wrap: plain(wrap, lambda: Checkpointed(True)),
}
# Those that need neither buffers nor `find_unused_parameters`: the small wrappers pass them too.
WITHOUT_OPTIONS = ["accumulation", "accumulation, zeroed", "two backward passes", "forward decides", "bare module"]
WITHOUT_OPTIONS += ["evaluation in between", "gradients of inputs", "checkpoint", "checkpoint, twice"]
WITHOUT_OPTIONS += ["checkpoint, reentrant"]
if torch.__version__ >= (2, 13):  # before, torch's own wrote over buffers that the first graph needs
    SCENARIOS["two forward passes"] = two_forwards_one_backward


def beside_torch(names):
    found = {}
    for name in names:
        scenario = SCENARIOS[name]
        theirs = scenario(torch_ddp)
        for wrap in (ours, views, *([bucketed] if name in WITHOUT_OPTIONS else [])):
            found[name, wrap.__name__] = distance(scenario(wrap), theirs)
    return found


@pytest.mark.parametrize("world_size", [2, 3])
def test_it_is_torchs(world_size, device):
    names = list(SCENARIOS) if device == "cpu" else ["batch norm", "accumulation", "changing", "checkpoint, reentrant"]
    for found in run_ranks(beside_torch, world_size, names, device=device, timeout=110):
        assert len(found) == 2 * len(names) + len({*names} & {*WITHOUT_OPTIONS}) and not too_far(found)


def where_torch_averages_once():
    """A retained graph, and two graphs at once: how far our gradients are from the ranks' mean, and torch's."""
    found = {}
    for wrap in (ours, views, bucketed, torch_ddp):
        wrapped = wrap(seeded_by_rank(mlp))

        def gradient(retain, wrapped=wrapped):
            wrapped.zero_grad()
            x, y = mine(1), mine(2)
            losses = [wrapped(x).square().sum()] if retain else [wrapped(x).square().sum(), wrapped(y).square().sum()]
            for loss in [losses[0], losses[-1]]:
                loss.backward(retain_graph=retain)
            result = [p.grad.clone() for p in wrapped.parameters()]
            wrapped.zero_grad()
            for x in (mine(1), mine(1 if retain else 2)):
                wrapped.module(x).square().sum().backward()
            for p in wrapped.parameters():
                dist.all_reduce(p.grad)
            exact = [p.grad / dist.get_world_size() for p in wrapped.parameters()]
            return max((a - b).abs().max().item() for a, b in zip(result, exact, strict=True))

        found[wrap.__name__] = [gradient(True), gradient(False)]
    return found


def test_each_backward_pass_is_averaged_where_torch_averages_the_first_only():
    for found in run_ranks(where_torch_averages_once, 2, device="cpu"):
        assert max(found["ours"] + found["views"] + found["bucketed"]) < TOLERANCE
        assert min(found["torch_ddp"]) > 0.01


def errors():
    rank, found = dist.get_rank(), {}

    def frozen(which):
        model = nn.Linear(3, 3)
        model.bias.requires_grad_(which)
        return model

    found["nothing"] = message_of(lambda: ours(nn.ReLU()))
    found["frozen"] = message_of(lambda: ours(nn.Linear(2, 2).requires_grad_(False)))
    found["sizes"] = message_of(lambda: ours(nn.Linear(3, 3 + rank)))
    found["layers"] = message_of(lambda: ours(nn.Sequential(*[nn.Linear(3, 3) for _ in range(1 + rank)])))
    found["frozen on one"] = message_of(lambda: ours(frozen(rank == 1)))
    found["cap"] = message_of(lambda: ours(mlp(), bucket_cap_mb=0))
    model = ours(mlp())
    model.register_comm_hook(None, print)
    found["two hooks"] = message_of(lambda: model.register_comm_hook(None, print))
    found["no function"] = message_of(lambda: ours(mlp()).register_comm_hook(None, 3))
    return found


def test_what_cannot_be_trained_is_refused_on_every_rank():
    for found in run_ranks(errors, 2, device="cpu"):
        assert "RuntimeError: no parameter of this model requires a gradient" in found["nothing"]
        assert "no parameter of this model requires a gradient" in found["frozen"]
        assert "rank 1 is not that of rank 0 (names, shapes, dtypes or requires_grad differ)" in found["sizes"]
        assert "rank 1 is not that of rank 0 (tensors on rank 0: 2, rank 1: 4)" in found["layers"]
        assert "requires_grad differ" in found["frozen on one"]
        assert found["cap"].startswith("ValueError: a bucket's cap must be 1 byte or more")
        assert found["two hooks"].startswith("RuntimeError: there is a communication hook already")
        assert found["no function"].startswith("TypeError: a communication hook is a function")


def wrapped_again():
    """A wrapper that is dropped takes its buckets and hooks along; one that is kept does not disturb the next."""
    module = seeded_by_rank(mlp)
    first = ours(module)
    first(mine(0)).sum().backward()
    buffer = weakref.ref(first._reducer._slots[0].buffer)
    second = views(module)
    module.zero_grad()
    second(mine(0)).sum().backward()
    both = [p.grad.clone() for p in module.parameters()]
    del first
    gc.collect()
    module.zero_grad()
    second(mine(0)).sum().backward()
    return buffer() is None, max(
        (a - p.grad).abs().max().item() for a, p in zip(both, module.parameters(), strict=True)
    )


def test_a_model_can_be_wrapped_again():
    result = run_ranks(wrapped_again, 2, device="cpu", record=True)
    for is_gone, away in result:
        assert is_gone and away == 0
    buckets = 3  # of `mlp`; as in `first`, `second` and `second`: nothing is sent by the wrapper that did not run
    assert result.record.counts()[0, "all_reduce"] == 3 * buckets


def changed_later():
    """Models that change after they were wrapped; by wrapper, beside one process or in words."""
    found = {}
    for wrap in (naive, bucketed, ours, views):
        torch.manual_seed(0)
        wrapped, plain = wrap(mlp()), mlp()
        plain.load_state_dict(wrapped.module.state_dict())
        optimizers = [torch.optim.AdamW(m.parameters(), lr=0.01) for m in (wrapped, plain)]
        for step, (inputs, targets) in enumerate(data("mlp", 4, SIZE)):
            if step == 2:  # AdamW has moments, and moves what has a gradient of zeros
                for model in (wrapped.module, plain):
                    model.layers[2].requires_grad_(False)
            shares = slice(dist.get_rank(), None, 2), slice(None)
            for model, optimizer, share in zip((wrapped, plain), optimizers, shares, strict=True):
                optimizer.zero_grad()
                F.cross_entropy(model(inputs[share]), targets[share]).backward()
                optimizer.step()
        pairs = zip(wrapped.parameters(), plain.parameters(), strict=True)
        found[wrap.__name__, "frozen"] = max((a - b).abs().max().item() for a, b in pairs)
        thawed = wrap(frozen_mlp())
        thawed.module.requires_grad_(True)
        found[wrap.__name__, "unfrozen"] = message_of(lambda m=thawed: m(mine(0)))
        with torch.no_grad():
            thawed(mine(0))  # nothing is trained
        replaced = wrap(mlp())
        replaced.module.layers[0].weight = nn.Parameter(torch.zeros(16, 6, dtype=torch.float64))
        found[wrap.__name__, "replaced"] = message_of(lambda m=replaced: m(mine(0)))
        found[wrap.__name__, "twice"] = message_of(lambda w=wrap, m=wrapped: w(nn.Sequential(m)))
    cast = views(mlp()).float()
    found["cast"] = message_of(lambda: cast(mine(0).float()).sum().backward())
    return found


def test_a_model_that_changes_later_is_right_or_refused():
    for found in run_ranks(changed_later, 2, device="cpu"):
        assert "was torch.float64 on cpu when the model was wrapped, and is torch.float32" in found.pop("cast")
        for (_, case), seen in found.items():
            if case == "frozen":
                assert seen < TOLERANCE
            elif case == "twice":
                assert "which reduces gradients itself, or a model that holds one: wrap its .module, once" in seen
            else:
                layer = 2 if case == "unfrozen" else 0
                assert f"layers.{layer}.weight was frozen, or not there, when the model was wrapped" in seen


def described():
    model = DistributedDataParallel(mlp(), bucket_cap_mb=SMALL)
    default = DistributedDataParallel(nn.Linear(1000, 1000))
    return model.buckets, model.parameter_names, list(model.state_dict()), default.buckets


def test_it_shows_its_plan_and_saves_under_torchs_names():
    buckets, names, saved, default = run_ranks(described, 1, device="cpu")[0]
    assert names == [f"layers.{layer}.{what}" for layer in (0, 2, 4) for what in ("weight", "bias")]
    assert [(b.parameters, b.nbytes) for b in buckets] == [((5, 4, 3), 672), ((2,), 2048), ((1, 0), 896)]
    assert saved == [f"module.{name}" for name in names]
    assert [b.parameters for b in default] == [(1, 0)]


def on_one_gpu():
    device, found = dtlearn.device(), {}
    for wrap in (torch_ddp, ours, views):
        torch.manual_seed(0)
        wrapped = wrap(mlp().to(device), find_unused_parameters=wrap is views)
        found[wrap.__name__] = run(wrapped, lambda step, w=wrapped: w(mine(step).to(device)).square().sum().backward())
    return dist.get_backend(), distance(found["ours"], found["torch_ddp"]), distance(found["views"], found["torch_ddp"])


@pytest.mark.gpu
def test_on_a_gpu():
    backend, ours_away, views_away = run_ranks(on_one_gpu, 1, device="cuda")[0]
    assert backend == "nccl" and max(ours_away, views_away) < TOLERANCE
