"""Stage 2: the single-process run, step by step; what backward sends and holds; what is refused."""

import copy
import io
import pickle

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

from dtlearn.memory.ledger.storage_ledger import StorageLedger
from dtlearn.models import snapshot_parameters
from dtlearn.zero.stages import zero2
from dtlearn.zero.stages.zero1 import ZeroRedundancyOptimizer
from dtlearn.zero.stages.zero2 import ShardedGradients
from tests.data_parallel.runs import MODELS, Paths, distance, loss_of, message_of, mlp
from tests.devices import run_ranks
from tests.zero.stages.sharded_training import (
    TOLERANCE,
    batches_of,
    full_gradients,
    reference,
    seeded_by_rank,
    split_at_barriers,
)

OPTIONS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
}


def sharded(model, optimizer="adamw", wrap=ShardedGradients, cap=100, **more):
    optimizer_class, options = OPTIONS[optimizer]
    made = ZeroRedundancyOptimizer(
        (p for p in model.parameters() if p.requires_grad),
        optimizer_class,
        gradients="local",
        cap=cap,
        **options,
        **more,
    )
    return wrap(model, made)


def steps_of(wrapped, name, backwards=None):
    """The gradients and parameters after each step."""
    rank, size, steps = dist.get_rank(), dist.get_world_size(), []
    flat, optimizer = wrapped.optimizer.flat, wrapped.optimizer
    names = {id(parameter): name for name, parameter in wrapped.module.named_parameters()}
    names = [names[id(parameter)] for parameter in flat.parameters]
    for inputs, targets in batches_of(name):
        optimizer.zero_grad()
        if backwards is None:
            loss_of(name)(wrapped(inputs[rank::size]), targets[rank::size]).backward()
        else:
            backwards(wrapped, inputs[rank::size], targets[rank::size])
        gone = all(parameter.grad is None for parameter in flat.parameters)
        found = full_gradients(names, [p.shape for p in flat.parameters], flat.pieces)
        optimizer.step()
        steps.append({**found, **snapshot_parameters(wrapped.module)} if gone else {})
    return steps


def micro_batches(inputs, targets):
    """Two micro-batches, each with its share of the mean."""
    middle = -(-len(inputs) // 2)
    for part in (slice(None, middle), slice(middle, None)):
        yield inputs[part], targets[part], len(inputs[part]) / len(inputs)


def without_sync(wrapped, inputs, targets):
    """The first micro-batch in `no_sync`."""
    (x, y, share), (x2, y2, share2) = micro_batches(inputs, targets)
    with wrapped.no_sync():
        (loss_of("gpt")(wrapped(x), y) * share).backward()
    (loss_of("gpt")(wrapped(x2), y2) * share2).backward()


def reduced_twice(wrapped, inputs, targets):
    """Each micro-batch is reduced: they add up in the shards."""
    for x, y, share in micro_batches(inputs, targets):
        (loss_of("gpt")(wrapped(x), y) * share).backward()


def parity(cases):
    found = {}
    for name, optimizer, way in cases:
        backwards = {"no_sync": without_sync, "reduced twice": reduced_twice}.get(way)
        options = {"layout": "whole tensors", "cap": None} if way == "whole tensors" else {}
        wrapped = sharded(seeded_by_rank(name), optimizer, **options)
        found[name, optimizer, way] = distance(steps_of(wrapped, name, backwards), reference(name, optimizer))
    return found


CASES = [
    ("mlp", "sgd", "hook"),
    ("gpt", "momentum", "hook"),
    *((name, "adamw", "hook") for name in MODELS if name != "mlp"),
    ("gpt", "adamw", "whole tensors"),
    ("gpt", "adamw", "no_sync"),
    ("gpt", "adamw", "reduced twice"),
]


def too_far(found):
    return {case: away for case, away in found.items() if not away < (1e-5 if "types" in case else TOLERANCE)}


@pytest.fixture(scope="module")
def on_two():
    """Each rank's results: `parity`, `sabotaged`, `around_it` and `later`."""
    return run_ranks(lambda: (parity(CASES), sabotaged(), around_it(), later()), 2, device="cpu", timeout=110).values


def test_it_is_so_on_another_device(other_device):
    for found in run_ranks(parity, 2, [CASES[1], *CASES[-2:]], device=other_device, timeout=110):
        assert len(found) == 3 and not too_far(found)


def test_it_is_the_single_process_run(on_two):
    for found, *_ in on_two:
        assert len(found) == len(CASES) and not too_far(found)


@pytest.mark.parametrize("world_size", [1, 3, 4])
def test_so_it_is_on_other_numbers_of_ranks(world_size):
    cases = CASES if world_size == 3 else CASES[1::3]
    for found in run_ranks(parity, world_size, cases, device="cpu", timeout=110):
        assert len(found) == len(cases) and not too_far(found)


# Sabotage: what the parity test is to find.


class NotDivided(ShardedGradients):
    def _launch(self, b):
        for number in self.optimizer.flat.partition.buckets[b].parameters:
            gradient = self.optimizer.flat.parameters[number].grad
            if gradient is not None:
                gradient *= self.optimizer.flat.num_ranks
        super()._launch(b)


class OwnGradients(ShardedGradients):
    """The reduce-scatter is left out: each rank takes its own gradients for the sum."""

    def _launch(self, b):
        def nothing(shard, gradient, *, group, async_op):
            shard.copy_(gradient.view(-1, len(shard))[dist.get_rank(group)] * dist.get_world_size(group))
            return dist.barrier(group=group, async_op=True)

        before, zero2.reduce_scatter_single = zero2.reduce_scatter_single, nothing
        try:
            super()._launch(b)
        finally:
            zero2.reduce_scatter_single = before


class LastMicroBatch(ShardedGradients):
    """Sabotage: the gradients of earlier micro-batches are overwritten."""

    def _launch(self, b):
        for piece in self.optimizer.pieces:
            piece.grad = None
        super()._launch(b)


class LostBucket(ShardedGradients):
    """The last bucket is never sent."""

    def backward_begins(self, unused):
        super().backward_begins(unused)
        self._order = self._order[:-1]


def sabotaged():
    found = {}
    for wrap in (ShardedGradients, NotDivided, OwnGradients, LastMicroBatch):
        wrapped = sharded(seeded_by_rank("gpt"), "adamw", wrap)
        found[wrap.__name__] = distance(steps_of(wrapped, "gpt", reduced_twice), reference("gpt", "adamw"))
    wrapped = sharded(seeded_by_rank("gpt"), "adamw", LostBucket)
    inputs, targets = batches_of("gpt")[0]
    loss_of("gpt")(wrapped(inputs), targets).backward()
    found["LostBucket"] = [parameter.grad is None for parameter in wrapped.module.parameters()]
    return found


def test_sabotage_is_found(on_two):
    for _, found, *_ in on_two:
        lost = found.pop("LostBucket")
        assert found.pop("ShardedGradients") < TOLERANCE
        assert not [name for name, away in found.items() if away < 1e-3], found
        assert not all(lost)


# What a step sends and holds.


MICRO_BATCHES = (1, 2)


def steps():
    """Steps: the peak of gradients in the first backward pass, and what is left after it, in bytes."""
    found = []
    for micro_batches in MICRO_BATCHES:
        model = nn.Sequential(*(nn.Linear(16, 16, bias=False) for _ in range(4))).double()
        wrapped = sharded(model, "sgd", cap=256)
        for micro in range(micro_batches):
            out = wrapped(torch.ones(1, 16, dtype=torch.float64)).sum()
            with StorageLedger() as ledger:
                out.backward()
            found += [(ledger.peak, ledger.now)] if micro == 0 else []
        wrapped.optimizer.step()
        dist.barrier()  # parts the record
    return found


def test_bytes_and_memory_are_those_of_the_docstring():
    n, ranks, buckets = 4 * 256 * 8, 4, 4
    result = run_ranks(steps, ranks, device="cpu", record=True)
    for rank, memory in enumerate(result):
        for micro, events in zip(MICRO_BATCHES, split_at_barriers(result.record.select(rank=rank)), strict=True):
            scattered = [event.nbytes for event in events if event.op == "reduce_scatter_tensor"]
            gathered = [event.nbytes for event in events if event.op == "all_gather_into_tensor"]
            assert (len(scattered), len(gathered)) == (micro * buckets, buckets)
            assert sum(scattered) == micro * n and sum(gathered) == n // ranks
            sent = sum(scattered) * (ranks - 1) // ranks + sum(gathered) * (ranks - 1)
            assert sent == (micro + 1) * n * (ranks - 1) // ranks
        (peak, after), _ = memory
        assert after == n // ranks  # shards
        # The gradient of one bucket, the buffer of one, shards, and gradients of activations: less than all gradients
        assert peak <= 2 * n // 4 + n // ranks + 6 * 16 * 8 < n


# What it is to live with.


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.middle, self.last = (nn.Linear(6, 6).double() for _ in range(3))

    def forward(self, x, use_reentrant, twice=False):
        x = self.first(x)
        for _ in range(1 + twice):
            x = checkpoint(self.middle, x, use_reentrant=use_reentrant)
        return self.last(x)


def fail(*_):
    raise ArithmeticError("planted")


def around_it():
    rank, x = dist.get_rank(), torch.ones(2, 6, dtype=torch.float64) * (dist.get_rank() + 1)
    found = {}
    plain = None
    for way in (False, True):
        torch.manual_seed(0)
        wrapped = sharded(Checkpointed())
        wrapped(x, way).square().sum().backward()
        gradients = full_gradients("abcdef", [p.shape for p in wrapped.module.parameters()], wrapped.optimizer.pieces)
        plain = plain or gradients
        found["checkpoint", way] = distance([gradients], [plain])
    found["twice"] = message_of(lambda: wrapped(x, True, twice=True).sum().backward())
    torch.manual_seed(0)
    unused = sharded(Paths().double(), "sgd")
    before = snapshot_parameters(unused.module)
    unused(x, "ab" if rank else "bc").sum().backward()  # each rank uses others, and nobody uses d
    unused.optimizer.step()
    moved = {name[0] for name, now in unused.module.named_parameters() if not torch.equal(now, before[name])}
    found["unused"] = "".join(sorted(moved))
    model = mlp()
    made = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    found["averaged"] = message_of(lambda: ShardedGradients(model, made))
    model, other = mlp(), mlp()
    both = ZeroRedundancyOptimizer([*model.parameters(), *other.parameters()], torch.optim.SGD, gradients="local", lr=1)
    found["more"] = message_of(lambda: ShardedGradients(model, both))
    part = ZeroRedundancyOptimizer(list(model.parameters())[1:], torch.optim.SGD, gradients="local", lr=1)
    found["fewer"] = message_of(lambda: ShardedGradients(model, part))
    wrapped = sharded(mlp())
    found["bare"] = message_of(lambda: wrapped.module(x))
    found["bare forward"] = message_of(lambda: wrapped.module.forward(x))
    with torch.no_grad():
        found["no_grad"] = torch.equal(wrapped.module(x), wrapped(x))
    gradients = []
    for fails in (True, False, False):  # what a backward pass left that failed is not added to the next one
        wrapped.optimizer.zero_grad()
        hook = wrapped.module.layers[0].register_full_backward_hook(fail) if fails else None
        message = message_of(lambda: wrapped(x * 1).square().sum().backward())
        found["fails"] = found.get("fails", message)
        gradients.append([piece.grad for piece in wrapped.optimizer.flat.pieces])
        if hook is not None:
            hook.remove()
    found["nothing left"] = all(a is None or torch.equal(a, b) for a, b in zip(*gradients[1:], strict=True))
    wrapped.optimizer.zero_grad()
    with wrapped.no_sync():
        wrapped.forward(x).sum().backward()
    found["not reduced"] = message_of(wrapped.optimizer.step)
    wrapped(x).sum().backward()
    found["step"] = message_of(wrapped.optimizer.step)
    return found


def test_it_is_used_as_a_model_is(on_two):
    for _, _, found, _ in on_two:
        assert found["checkpoint", False] < TOLERANCE > found["checkpoint", True]
        assert "got a second gradient in one backward pass" in found["twice"]
        assert "planted" in found["fails"] and found["nothing left"]
        assert found["unused"] == "abc" and found["no_grad"] and found["step"] == ""
        assert "build it with gradients='local'" in found["averaged"]
        assert "the optimizer has 6 parameters that are not trained in this model" in found["more"]
        assert "1 parameters of the model are not in the optimizer, layers.0.weight for one" in found["fewer"]
        assert "the module was called itself" in found["bare"] and found["bare"] == found["bare forward"]
        assert "the last backward pass was in no_sync()" in found["not reduced"]


# What happens to a model later: beside the same in one process, or in words.


def one_step(model, optimizer, step, share=slice(None)):
    inputs, targets = batches_of("mlp", 6)[step]
    optimizer.zero_grad()
    loss_of("mlp")(model(inputs[share]), targets[share]).backward()
    optimizer.step()


def pair(model=mlp):
    """A model in stage 2, and a plain one with its optimizer."""
    net, plain = sharded(model()), model()
    plain.load_state_dict(net.module.state_dict())
    optimizer_class, options = OPTIONS["adamw"]
    return net, plain, optimizer_class((p for p in plain.parameters() if p.requires_grad), **options)


def apart(model, plain):
    return max((a - b).abs().max().item() for a, b in zip(model.parameters(), plain.parameters(), strict=True))


def saved_and_loaded(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def later():
    found, share, x = {}, slice(dist.get_rank(), None, 2), torch.ones(2, 6, dtype=torch.float64)
    for way in ("wrapper", "module"):  # a batch that is skipped
        net, plain, alone = pair()
        net(x * 100).sum().backward()
        (net if way == "wrapper" else net.module).zero_grad()
        inputs, targets = batches_of("mlp", 6)[0]
        loss_of("mlp")(net(inputs[share]), targets[share]).backward()
        net.optimizer.step()
        one_step(plain, alone, 0)
        found["zero_grad", way] = apart(net, plain)
    copies = {"pickle": lambda v: pickle.loads(pickle.dumps(v)), "torch.save": saved_and_loaded}
    for way, make_copy in {"deepcopy": copy.deepcopy, **copies}.items():
        net, plain, alone = pair()
        one_step(net, net.optimizer, 0, share)
        one_step(plain, alone, 0)
        twin, (other, others) = make_copy(net), copy.deepcopy((plain, alone))
        one_step(net, net.optimizer, 1, share)
        one_step(plain, alone, 1)
        one_step(twin, twin.optimizer, 2, share)
        one_step(other, others, 2)
        found["copy", way] = max(apart(net, plain), apart(twin, other))
        found["guarded", way] = message_of(lambda t=twin: t.module(x))
    best = copy.deepcopy(net.module)
    with torch.no_grad():
        before = net(x)
    one_step(net, net.optimizer, 3, share)
    found["best model"] = torch.equal(best(x), before) and not torch.equal(net(x), before)
    net, plain, alone = pair()
    average = torch.optim.swa_utils.AveragedModel(net)
    one_step(net, net.optimizer, 0, share)
    average.update_parameters(net)
    found["average"] = apart(average.module, net)
    net, plain, alone = pair()
    for step in range(6):  # frozen, and thawed
        for changing in (net.module, plain):
            changing.layers[2].requires_grad_(step not in (2, 3))
        one_step(net, net.optimizer, step, share)
        one_step(plain, alone, step)
    found["frozen"] = apart(net, plain)
    net, plain, alone = pair(MODELS["frozen"])
    for step in range(4):  # thawed, and given to the optimizer
        if step == 2:
            for changing, optimizer in ((net.module, net.optimizer), (plain, alone)):
                optimizer.add_param_group({"params": list(changing.layers[2].requires_grad_(True).parameters())})
        one_step(net, net.optimizer, step, share)
        one_step(plain, alone, step)
    found["added"] = apart(net, plain)
    net(x).sum().backward()
    found["added, freed"] = all(p.grad is None for p in net.parameters())
    twin = copy.deepcopy(net)
    twin(x).sum().backward()
    lists = [net.parameters, lambda: list(net.parameters()), net.module.parameters, lambda: next(net.parameters())]
    lists += [twin.parameters]
    clips = [nn.utils.clip_grad_norm_, nn.utils.clip_grad_value_]
    found["clip"] = [message_of(lambda a=a, p=p: a(p(), 0.1)) for p in lists for a in clips]
    plain = copy.deepcopy(net.module)
    found["clip a plain copy"] = message_of(lambda: nn.utils.clip_grad_norm_(plain.parameters(), 0.1))
    norm = net.clip_grad_norm_(0.1)
    shards = torch.cat([piece.grad for piece in net.optimizer.flat.pieces])
    square = shards.square().sum()
    dist.all_reduce(square)
    found["own clip"] = norm.item() > 1 and abs(square.sqrt().item() - 0.1) < 1e-6
    whole = net.full_params()
    found["full_params"] = list(whole) == [name for name, _ in net.module.named_parameters()]
    net.optimizer.step()
    with net.no_sync():
        net(x).sum().backward()
    found["clip on one rank"] = message_of(lambda: nn.utils.clip_grad_norm_(net.parameters(), 0.1))
    net.zero_grad()
    found["full_params, copied"] = not any(torch.equal(p, whole[name]) for name, p in net.module.named_parameters())
    second = ShardedGradients(net.module, net.optimizer)  # takes the first one's place
    found["first"] = message_of(lambda: net(x))
    one_step(second, net.optimizer, 4, share)
    thawed = sharded(MODELS["frozen"]())
    thawed.module.requires_grad_(True)
    found["thawed"] = message_of(lambda: thawed(x))
    found["nested"] = message_of(lambda: sharded(nn.Sequential(second)))
    table = sharded(nn.Sequential(nn.Embedding(4, 4, sparse=True)), "sgd")
    found["sparse"] = message_of(lambda: table(torch.tensor([1])).sum().backward())
    moved = sharded(mlp()).float()
    moved(x.float()).sum().backward()
    found["cast"] = message_of(moved.optimizer.step)
    return found


def test_it_changes_later_as_one_process_does(on_two):
    for *_, found in on_two:
        numbers = [case for case, value in found.items() if isinstance(value, float)]
        assert len(numbers) == 8 and not [case for case in numbers if not found[case] < TOLERANCE], found
        for case in ("best model", "added, freed", "own clip", "full_params", "full_params, copied"):
            assert found[case], case


def test_what_would_be_wrong_later_is_refused(on_two):
    for *_, found in on_two:
        for way in ("deepcopy", "pickle", "torch.save"):
            assert "the module was called itself" in found["guarded", way]
        assert "the module was called itself" in found["first"]
        assert all("Call model.clip_grad_norm_(max_norm)" in message for message in found["clip"]), found["clip"]
        assert found["clip a plain copy"] == found["clip on one rank"] == ""
        assert "layers.2.weight was frozen, or not there, when the model was wrapped" in found["thawed"]
        assert "expected a plain model, but got a ShardedGradients" in found["nested"]
        assert "RuntimeError: parameter 0, (4, 4), has a sparse gradient" in found["sparse"]
        assert "has left the flat buffer that it was put into" in found["cast"]
