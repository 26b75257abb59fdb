"""Stage 1: the run of one process and of torch's, with torch's protocol, bytes and memory by formula."""

import copy
import io
import pickle

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dtlearn.memory import record_step
from dtlearn.mixed_precision import GradScaler
from dtlearn.models import MLP
from dtlearn.zero import FlatParameters, ZeroRedundancyOptimizer, clip_grad_norm_, plan_whole_tensors
from dtlearn.zero.stages import flat_parameters
from tests.data_parallel.runs import MODELS, data, loss_of, message_of, seeded_by_rank
from tests.devices import run_ranks
from tests.zero.stages.runs import MODES, OPTIMIZERS, TOLERANCE, distance, reference, sharded, train, wrapped

# Every optimizer in the two main modes; every mode with AdamW; models with their peculiarities.
CASES = [("mlp", optimizer, mode) for optimizer in OPTIMIZERS for mode in ("averaged", "local")]
CASES += [("mlp", "adamw", mode) for mode in MODES if mode not in ("averaged", "local")]
CASES += [(name, "adamw", mode) for name in ("tied", "frozen", "twice") for mode in ("averaged, buckets", "local")]
CASES += [("types", "momentum", "averaged, buckets"), ("types", "momentum", "local, whole tensors")]
ON_DEVICES = [("mlp", "adamw", mode) for mode in ("averaged, whole tensors", "local", "naive")]
ON_DEVICES += [("tied", "adagrad", "averaged, buckets"), ("types", "momentum", "local, whole tensors")]


def distances(cases):
    return {case: distance(sharded(*case), reference(*case[:2])) for case in cases}


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
def test_parity_with_one_process(num_ranks, device):
    cases = CASES if num_ranks in (2, 4) else [case for case in CASES if case[2] != "torch's"]  # slow to import
    if device != "cpu":
        cases = ON_DEVICES
    for of_rank in run_ranks(distances, num_ranks, cases, device=device, timeout=120.0):
        for case, worst in of_rank.items():
            assert worst < (1e-6 if case[0] == "types" else TOLERANCE), case  # float32 in the middle


def no_gather(patch):
    patch.setattr(flat_parameters, "all_gather_single", lambda *args, **options: None)


def no_reduction(patch):
    def keeps_its_own(shard, full, group):
        shard.copy_(full[dist.get_rank() * len(shard) :][: len(shard)])

    patch.setattr(flat_parameters, "reduce_scatter_single", keeps_its_own)


def not_divided(patch):
    flatten = FlatParameters.flatten
    patch.setattr(FlatParameters, "flatten", lambda self, b, grads: flatten(self, b, grads) * self.num_ranks)


def gradients_of_another_shard(patch):
    set_gradients = FlatParameters.set_gradients
    patch.setattr(FlatParameters, "set_gradients", lambda self, b, shard: set_gradients(self, b, shard.roll(1)))


def nobody_averages(patch):
    """ "averaged" without DDP: each shard is moved by the gradients of one rank's batch. It would be refused."""
    patch.setattr(ZeroRedundancyOptimizer, "_require_averaged", lambda self: True)
    patch.setitem(MODES, "local", (ZeroRedundancyOptimizer, {"gradients": "averaged"}, False))


def one_bucket_left_out(patch):
    shard = ZeroRedundancyOptimizer.shard_gradients
    patch.setattr(ZeroRedundancyOptimizer, "shard_gradients", lambda self: (self.mark_reduced(1), shard(self)))


SABOTAGES = {
    no_gather: "averaged",
    no_reduction: "local",
    not_divided: "local",
    gradients_of_another_shard: "local",
    nobody_averages: "local",
    one_bucket_left_out: "local, buckets",
}


def sabotaged():
    """With SGD: Adam divides a factor of the gradients out again."""
    expected, distances = reference("mlp", "momentum"), {}
    for sabotage, mode in SABOTAGES.items():
        with pytest.MonkeyPatch.context() as patch:
            sabotage(patch)
            distances[sabotage.__name__] = distance(sharded("mlp", "momentum", mode), expected)
    return distances, distance(sharded("mlp", "momentum", "local, buckets"), expected)


def test_without_it_the_parity_fails():
    ranks = run_ranks(sabotaged, 2, device="cpu").values
    assert all(intact < TOLERANCE for _, intact in ranks)
    for sabotage in SABOTAGES:
        assert max(distances[sabotage.__name__] for distances, _ in ranks) > 1e-4, sabotage.__name__


# torch's protocol. Each function runs on the ranks, and returns what it found by name.


def two_groups(parameters):
    """Own rates and decay, for the layers of an MLP."""
    first, *rest = list(parameters)
    return [{"params": [first], "lr": 0.1}, {"params": rest[:3], "weight_decay": 0.0}]


def with_everything(make, model, group_of_rest, steps=4):
    """Groups with rates of their own, a scheduler, a group that comes later, and closures."""
    parameters = list(model.module.parameters())
    optimizer = make(two_groups(parameters))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    rank, size = group_of_rest
    for step, (inputs, targets) in enumerate(data("mlp", steps, 12)):
        if step == 2:
            optimizer.add_param_group({"params": parameters[4:], "lr": 0.05})
            scheduler.base_lrs.append(0.05)

        def closure(inputs=inputs, targets=targets):
            optimizer.zero_grad()
            loss = loss_of("mlp")(model(inputs[rank::size]), targets[rank::size])
            loss.backward()
            return loss

        assert optimizer.step(closure).dim() == 0
        scheduler.step()
    return [p.detach().clone() for p in parameters], [group["lr"] for group in optimizer.param_groups]


def protocol():
    rank, size = dist.get_rank(), dist.get_world_size()
    alone = wrapped("mlp", averages=False)
    results = {}
    expected, rates = with_everything(lambda groups: torch.optim.AdamW(groups, lr=0.02), alone, (0, 1))
    for gradients in ("averaged", "local"):
        model = wrapped("mlp", averages=gradients == "averaged")
        mine, own_rates = with_everything(
            lambda groups, g=gradients: ZeroRedundancyOptimizer(groups, torch.optim.AdamW, gradients=g, lr=0.02),
            model,
            (rank, size),
        )
        worst = max((a - b).abs().max().item() for a, b in zip(mine, expected, strict=True))
        results[f"everything, {gradients}"] = worst < TOLERANCE and own_rates == rates
    model = wrapped("frozen")
    optimizer = ZeroRedundancyOptimizer(model.module.named_parameters(), torch.optim.Adam, lr=0.1)
    names = [name for name, _ in model.module.named_parameters()]
    results["names"] = optimizer.param_groups[0]["param_names"] == names
    results["pieces"] = [id(p) for p in optimizer.param_groups[0]["params"]] == [id(p) for p in optimizer.pieces]
    results["frozen ones have no piece"] = all(
        not piece.numel()
        for piece, p in zip(optimizer.pieces, optimizer.parameters, strict=True)
        if not p.requires_grad
    )
    calls = []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    train(model, optimizer, data("mlp", 2, 12), loss_of("mlp"))
    results["hooks"] = calls == [1, 1] and all(piece.grad is None for piece in optimizer.pieces)
    results["full gradients stay"] = all(p.grad is not None for p in model.parameters() if p.requires_grad)
    optimizer.zero_grad(set_to_none=False)
    results["zeros"] = not any(p.grad.any() for p in model.parameters() if p.requires_grad)
    optimizer.zero_grad()
    results["none"] = all(p.grad is None for p in model.parameters())
    return results


def test_groups_schedulers_closures_names_and_hooks():
    for results in run_ranks(protocol, 3, device="cpu"):
        assert all(results.values()), results


def closure_twice():
    """An optimizer that calls its closure twice, between which it moves the weights: the model must see that."""

    class Extragradient(torch.optim.SGD):
        def step(self, closure):
            before = [p.detach().clone() for group in self.param_groups for p in group["params"]]
            loss = closure()
            super().step()
            closure()
            with torch.no_grad():
                for p, value in zip((p for group in self.param_groups for p in group["params"]), before, strict=True):
                    p.copy_(value)
            super().step()
            return loss

    def run(make, model, rank, size):
        optimizer = make(model.module.parameters(), Extragradient, lr=0.1)
        for inputs, targets in data("mlp", 2, 12):

            def closure(inputs=inputs, targets=targets):
                optimizer.zero_grad()
                loss = loss_of("mlp")(model(inputs[rank::size]), targets[rank::size])
                loss.backward()
                return loss

            optimizer.step(closure)
        return [p.detach().clone() for p in model.module.parameters()]

    plain = run(lambda p, cls, **options: cls(p, **options), wrapped("mlp", averages=False), 0, 1)
    mine = run(ZeroRedundancyOptimizer, wrapped("mlp"), dist.get_rank(), dist.get_world_size())
    return max((a - b).abs().max().item() for a, b in zip(mine, plain, strict=True))


def test_a_closure_that_is_called_twice_sees_what_moved():
    assert max(run_ranks(closure_twice, 2, device="cpu")) < TOLERANCE


# State: saved on some ranks, loaded on others, and by the plain optimizer.


def part_of_a_run(name, optimizer, mode, first, last, saved=None, to=0):
    """Steps `first` to `last`, with parameters and state from before; what they are after."""
    make, own_options, averages = MODES[mode]
    optimizer_class, options = OPTIMIZERS[optimizer]
    model = wrapped(name, averages)
    if saved is not None:
        model.module.load_state_dict(saved[0])
        options = {**options, "lr": 9.0}  # the state's own rate counts
    made = make(model.module.parameters(), optimizer_class, **own_options, **options)
    if saved is not None:
        made.load_state_dict(saved[1])
    train(model, made, data(name, 4, 12)[first:last], loss_of(name))
    made.consolidate_state_dict(to)
    state = made.state_dict() if dist.get_rank() == to else message_of(made.state_dict)
    return {key: value.clone() for key, value in model.module.state_dict().items()}, state


RESUMED = [
    ("mlp", "adamw", "averaged"),
    ("mlp", "momentum", "local, whole tensors"),
    ("twice", "adamw", "local, buckets"),
    ("frozen", "adamw", "local"),
]


def parts_of_runs(first, last, all_saved=None, to=0):
    return [
        part_of_a_run(*case, first, last, saved, to)
        for case, saved in zip(RESUMED, all_saved or [None] * len(RESUMED), strict=True)
    ]


def test_a_state_goes_from_4_ranks_to_3_to_1_and_to_the_plain_optimizer():
    saved = run_ranks(parts_of_runs, 4, 0, 2, device="cpu")
    assert all("this rank has a shard of the state only" in part[1] for part in saved[1])
    saved = run_ranks(parts_of_runs, 3, 2, 3, saved[0], 2, device="cpu")[2]
    for case, (parameters, state) in zip(RESUMED, saved, strict=True):
        assert distance([parameters], reference(*case[:2], 4)[2:3]) < TOLERANCE, case
        assert len(state["state"]) == sum(p.requires_grad and p.numel() > 0 for p in MODELS[case[0]]().parameters())
        model, (optimizer_class, options) = MODELS[case[0]](), OPTIMIZERS[case[1]]
        model.load_state_dict(parameters)
        plain = optimizer_class(model.parameters(), **{**options, "lr": 9.0})
        plain.load_state_dict(copy.deepcopy(state))  # the plain one would go on in these tensors
        inputs, targets = data(case[0], 4, 12)[3]
        loss_of(case[0])(model(inputs), targets).backward()
        plain.step()
        assert distance([dict(model.named_parameters())], reference(*case[:2], 4)[3:]) < TOLERANCE, case
    resumed = run_ranks(parts_of_runs, 1, 3, 4, saved, device="cpu")[0]
    for case, (parameters, _) in zip(RESUMED, resumed, strict=True):
        assert distance([parameters], reference(*case[:2], 4)[3:]) < TOLERANCE, case


# With the loss scaler and clipping; bytes and memory; what is refused.


def scaled_and_clipped():
    """One rank's gradients overflow in a step: all skip it. The others are clipped by the norm over all shards."""
    torch.manual_seed(0)
    runs = []
    for mode in ("plain", "averaged", "local"):
        model = wrapped("mlp", averages=mode == "averaged")
        rank, size = (0, 1) if mode == "plain" else (dist.get_rank(), dist.get_world_size())
        scaler = GradScaler(init_scale=2.0**10, group=None if mode == "plain" else dist.group.WORLD)
        parameters = model.module.parameters()
        optimizer = (
            torch.optim.AdamW(parameters, lr=0.01)
            if mode == "plain"
            else ZeroRedundancyOptimizer(parameters, torch.optim.AdamW, gradients=mode, lr=0.01)
        )
        for step, (inputs, targets) in enumerate(data("mlp", 4, 12)):
            optimizer.zero_grad()
            loss = loss_of("mlp")(model(inputs[rank::size]), targets[rank::size])
            scaler.scale(loss * (torch.inf if step == 1 and rank == size - 1 else 1)).backward()
            if mode == "plain":
                scaler.unscale_(optimizer)
                norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            else:
                optimizer.shard_gradients()
                scaler.unscale_(optimizer)
                norm = clip_grad_norm_(optimizer.pieces, 0.1)
            scaler.step(optimizer)
            scaler.update()
        runs.append(([p.detach().clone() for p in model.parameters()], norm.item(), scaler.get_scale()))
    (plain, norm, scale), *others = runs
    return [
        (max((a - b).abs().max().item() for a, b in zip(plain, mine, strict=True)), abs(norm - n), scale == s == 2.0**9)
        for mine, n, s in others
    ]


def test_with_a_scaler_and_clipping():
    for of_rank in run_ranks(scaled_and_clipped, 3, device="cpu"):
        for worst, of_norm, scales in of_rank:
            assert worst < 1e-7 and of_norm < 1e-6 and scales  # the norm's factor is float32


def memory_and_calls(gradients, cap):
    torch.manual_seed(0)
    model = MLP((10, 20, 3))  # 283 parameters
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, gradients=gradients, cap=cap, lr=0.1)
    batch = torch.randn(4, 10), torch.randint(3, (4,))
    record = record_step(model, optimizer, batch, nn.functional.cross_entropy)
    before_zero_grad = record.phases[-1].start
    live = {name: record.live(name)[before_zero_grad] for name in ("parameters", "gradients", "optimizer state")}
    own = optimizer.flat.partition
    return live, own.numel, own.owned(dist.get_rank()), len(optimizer.pieces)


@pytest.mark.parametrize(("gradients", "cap"), [("averaged", None), ("local", 100)])
def test_memory_is_the_formula_to_the_byte_and_so_are_the_calls(gradients, cap):
    result = run_ranks(memory_and_calls, 3, gradients, cap, device="cpu", record=True)
    for rank, (live, elements, owned, num_pieces) in enumerate(result):
        assert live == {
            "parameters": 4 * elements,  # whole, and the padding
            "gradients": 4 * 283,  # whole
            "optimizer state": 8 * owned + 4 * num_pieces,  # two moments, and a count of steps each, of empty ones too
        }
        shards = [4 * -(-n // 3) for n in ([283] if cap is None else [200, 83])]
        step = [("reduce_scatter_tensor", 3 * shard) for shard in shards] * (gradients == "local")
        step += [("all_gather_into_tensor", shard) for shard in shards]
        once = [("all_reduce", 16)] * (gradients == "averaged")  # whether the ranks' gradients are alike
        assert [(event.op, event.nbytes) for event in result.record.select(rank=rank)] == once + step * 2  # two steps


def torchs_partition(sizes):
    from torch.distributed.optim import ZeroRedundancyOptimizer as Torchs

    parameters = [nn.Parameter(torch.zeros(size)) for size in sizes]
    numbers = {id(parameter): number for number, parameter in enumerate(parameters)}
    of_ranks = Torchs(parameters, torch.optim.SGD, lr=0.1)._partition_parameters()
    return [[numbers[id(p)] for p in groups[0]["params"]] for groups in of_ranks]


def test_whole_tensors_are_divided_as_torch_divides_them():
    sizes = [12, 3, 40, 7, 7, 1, 8, 22]
    partition = plan_whole_tensors(sizes, 3)
    assert [[p.parameter for p in partition.slices(rank)] for rank in range(3)] == run_ranks(
        torchs_partition, 3, sizes, device="cpu"
    )[0]


def in_a_subgroup():
    group = dist.new_group([1, 2])
    if dist.get_rank() == 0:
        return 0.0
    expected = reference("mlp", "adamw")
    return max(
        distance(sharded("mlp", "adamw", mode, group=group), expected) for mode in ("averaged", "local", "naive")
    )


def test_in_a_group():
    assert max(run_ranks(in_a_subgroup, 3, device="cpu")) < TOLERANCE


def under_torchs_ddp():
    """Built before DDP and after it; with gradients that are views of DDP's buckets, and with micro-batches."""
    rank, size = dist.get_rank(), dist.get_world_size()
    expected, worst = reference("mlp", "adamw"), 0.0
    optimizer_class, options = OPTIMIZERS["adamw"]
    for optimizer_first in (True, False):
        model = seeded_by_rank(MODELS["mlp"])
        optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class, **options) if optimizer_first else None
        ddp = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        optimizer = optimizer or ZeroRedundancyOptimizer(ddp.parameters(), optimizer_class, **options)
        for (inputs, targets), after in zip(data("mlp", 3, 12), expected, strict=True):
            optimizer.zero_grad()
            micro_batches = [slice(rank, 6, size), slice(6 + rank, 12, size)]
            with ddp.no_sync():
                (loss_of("mlp")(ddp(inputs[micro_batches[0]]), targets[micro_batches[0]]) / 2).backward()
            (loss_of("mlp")(ddp(inputs[micro_batches[1]]), targets[micro_batches[1]]) / 2).backward()
            optimizer.step()
            worst = max(worst, distance([dict(model.named_parameters())], [after]))
    return worst


def test_under_torchs_ddp():
    assert max(run_ranks(under_torchs_ddp, 3, device="cpu")) < TOLERANCE


def refused():
    def make(params=None, optimizer_class=torch.optim.Adam, **options):
        return ZeroRedundancyOptimizer(
            nn.Linear(4, 4).parameters() if params is None else params, optimizer_class, **{"lr": 0.1, **options}
        )

    def step_of_a_shard(other):
        optimizer = make()
        for parameter in optimizer.parameters:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        make(other).load_state_dict(optimizer.optim.state_dict())

    def unfrozen():
        layer = nn.Linear(4, 4)
        layer.bias.requires_grad_(False)
        optimizer = make(layer.parameters())
        layer.bias.requires_grad_(True).grad = torch.ones(4)
        optimizer.step()

    def sparse():
        table = nn.Embedding(4, 4, sparse=True)
        optimizer = make(table.parameters())
        table(torch.tensor([1])).sum().backward()
        optimizer.step()

    def not_consolidated_since():
        optimizer = make()
        optimizer.consolidate_state_dict()
        optimizer.step()
        optimizer.state_dict()

    layer = nn.Linear(4, 4)
    return [
        message_of(lambda: make(gradients="summed")),
        message_of(lambda: make(optimizer_class=torch.optim.LBFGS)),
        message_of(lambda: make(optimizer_class=torch.optim.Muon)),
        message_of(lambda: make([{"params": [layer.weight]}, {"params": [layer.bias, layer.weight]}])),
        message_of(lambda: make(layer.parameters()).add_param_group({"params": layer.weight})),
        message_of(lambda: make().load_state_dict(torch.optim.Adam([layer.weight]).state_dict())),
        message_of(lambda: step_of_a_shard(nn.Linear(4, 4).parameters())),
        message_of(unfrozen),
        message_of(sparse),
        message_of(not_consolidated_since),
        message_of(lambda: make([])),
        message_of(lambda: make(lr=-1.0)),
    ]


def test_what_is_refused():
    expected = [
        "ValueError: gradients must be 'averaged' or 'local', got 'summed'",
        "ValueError: LBFGS looks at all parameters together: its state cannot be divided",
        "ValueError: Muon looks at whole matrices, and a flat shard may end inside one: take layout='whole tensors'",
        "ValueError: some parameters appear in more than one parameter group",
        "ValueError: parameter 0, (4, 4), comes twice",
        "ValueError: this state is of 1 parameters, and the optimizer has 2: build it over the same model",
        "and the parameter (4, 4): this is the state of a shard, of this or another number of ranks",
        "RuntimeError: parameter 1, (4,), was frozen when the optimizer was built: it has no place in a shard",
        "RuntimeError: parameter 0, (4, 4), has a sparse gradient",
        "RuntimeError: this rank has a shard of the state only. Call consolidate_state_dict(to=...) on all ranks",
        "ValueError: optimizer got an empty parameter list",
        "ValueError: Invalid learning rate: -1.0",
    ]
    for messages in run_ranks(refused, 2, device="cpu"):
        for message, part in zip(messages, expected, strict=True):
            assert part in message


# Optimizers of one's own, copies, and models that change later: beside the same in one process.


class OwnSGD(torch.optim.Optimizer):
    """As one writes it first: no closure, and a gradient is taken for granted."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p -= group["lr"] * p.grad


class WithOptions(torch.optim.SGD):
    def step(self, closure=None, *, scale):
        for group in self.param_groups:
            for p in group["params"]:
                p.grad.mul_(scale)
        return super().step(closure)


def pair(mode, optimizer_class, **options):
    """A model with a sharded optimizer, and a plain one."""
    make, own_options, averages = MODES[mode]
    model, plain = wrapped("mlp", averages=averages), wrapped("mlp", averages=False)
    return (
        (model, make(model.module.parameters(), optimizer_class, **own_options, **options)),
        (plain, optimizer_class(plain.module.parameters(), **options)),
    )


def one_step(model, optimizer, step, share=slice(None), **kwargs):
    inputs, targets = data("mlp", 6, 12)[step]
    optimizer.zero_grad()
    loss_of("mlp")(model(inputs[share]), targets[share]).backward()
    optimizer.step(**kwargs)


def apart(model, plain):
    pairs = zip(model.module.parameters(), plain.module.parameters(), strict=True)
    return max((a - b).abs().max().item() for a, b in pairs)


def own_optimizers():
    share, found = slice(dist.get_rank(), None, dist.get_world_size()), {}
    for mode in ("averaged", "local, buckets"):
        for optimizer_class, kwargs in ((OwnSGD, {}), (WithOptions, {"scale": 0.5})):
            (model, optimizer), (plain, alone) = pair(mode, optimizer_class, lr=0.1)
            for step in range(2):
                one_step(model, optimizer, step, share, **kwargs)
                one_step(plain, alone, step, **kwargs)
            found[mode, optimizer_class.__name__] = apart(model, plain)
    return found


def frozen_later():
    """Frozen and thawed, with an optimizer that moves what has a gradient of zeros."""
    share, found = slice(dist.get_rank(), None, dist.get_world_size()), {}
    for mode in ("averaged, buckets", "local, buckets", "local, whole tensors"):
        (model, optimizer), (plain, alone) = pair(mode, torch.optim.AdamW, lr=0.01, weight_decay=0.1)
        for step in range(6):
            for changing in (model.module, plain.module):
                changing.layers[0].requires_grad_(step not in (2, 3))
            one_step(model, optimizer, step, share)
            one_step(plain, alone, step)
        found[mode] = apart(model, plain)
    return found


def saved_and_loaded(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "torch.save": saved_and_loaded,
}


def copied():
    """Model, optimizer and scheduler in a copy that goes on by itself, and so does the original."""
    share, group, found = slice(dist.get_rank(), None, dist.get_world_size()), dist.new_group([0, 1, 2]), {}
    for way, make_copy in COPIES.items():
        model, plain = wrapped("mlp", averages=False), wrapped("mlp", averages=False)
        options = {"process_group": group} if way == "deepcopy" else {}  # a group cannot be pickled
        adamw = {"lr": 0.01, "weight_decay": 0.1}
        optimizer = ZeroRedundancyOptimizer(
            model.module.parameters(), torch.optim.AdamW, gradients="local", cap=100, **options, **adamw
        )
        alone = torch.optim.AdamW(plain.module.parameters(), **adamw)
        torch.optim.lr_scheduler.StepLR(optimizer, 1)  # puts a function around `step`
        one_step(model, optimizer, 0, share)
        one_step(plain, alone, 0)
        twin, twins = make_copy((model, optimizer))
        other, others = copy.deepcopy((plain, alone))
        one_step(twin, twins, 1, share)
        one_step(other, others, 1)
        one_step(model, optimizer, 2, share)
        one_step(plain, alone, 2)
        found[way] = max(apart(twin, other), apart(model, plain))
        found[way, "groups"] = twins.param_groups is twins.optim.param_groups and twins.state is twins.optim.state
    saved = pickle.dumps(optimizer)
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, saved)
    found["of rank 0"] = message_of(lambda: pickle.loads(everyone[0]))
    return found


def not_averaged():
    """In the first step; one rank has other gradients, or one has none."""
    found = {}
    for case in ("different", "missing", "NaN"):
        layer = nn.Linear(3, 3)
        optimizer = ZeroRedundancyOptimizer(layer.parameters(), torch.optim.SGD, lr=0.1)
        optimizer.step()  # nobody has a gradient yet
        for parameter in layer.parameters():
            parameter.grad = torch.full_like(parameter, torch.nan if case == "NaN" else 1.0)
            if dist.get_rank() == 1:
                parameter.grad = {"different": parameter.grad * 2, "missing": None, "NaN": parameter.grad}[case]
        found[case] = message_of(optimizer.step)
    return found


def foreign_states():
    def load(state):
        ZeroRedundancyOptimizer(nn.Linear(2, 2).parameters(), torch.optim.Adam, lr=0.1).load_state_dict(state)

    of_sgd = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1).state_dict()
    of_adamw = torch.optim.AdamW(nn.Linear(2, 2).parameters(), lr=0.1).state_dict()
    of_adamw["param_groups"][0].pop("decoupled_weight_decay")  # as older versions of torch
    return [message_of(lambda state=state: load(state)) for state in ({}, None, of_sgd, of_adamw)]


def pieces_updated():
    """In each step of an optimizer, how many pieces have a gradient; and how many are empty, and have a state."""
    found = {}
    for optimizer_class in (OwnSGD, torch.optim.Adam):
        layer, seen = nn.Linear(1, 1), []  # two parameters of an element, three ranks
        optimizer = ZeroRedundancyOptimizer(layer.parameters(), optimizer_class, gradients="local", lr=0.1)
        pieces = optimizer.pieces
        optimizer.optim.register_step_pre_hook(
            lambda *_, s=seen, p=pieces: s.append(sum(q.grad is not None for q in p))
        )
        for _ in range(3):
            layer(torch.ones(1, 1)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        found[optimizer_class.__name__] = seen, sum(not piece.numel() for piece in pieces), len(optimizer.state)
    return found


def lives():
    return own_optimizers(), frozen_later(), copied(), not_averaged(), pieces_updated(), foreign_states()


@pytest.fixture(scope="module")
def of_three():
    return run_ranks(lives, 3, device="cpu", timeout=110)


def test_an_own_optimizer_needs_no_closure_and_its_options_are_handed_on(of_three):
    for found, *_ in of_three:
        assert len(found) == 4 and max(found.values()) < TOLERANCE, found


def test_a_layer_that_is_frozen_later_is_not_moved(of_three):
    for _, found, *_ in of_three:
        assert len(found) == 3 and max(found.values()) < TOLERANCE, found


def test_a_copy_and_its_original_are_two_optimizers(of_three):
    for rank, (_, _, found, *_) in enumerate(of_three):
        message = found.pop("of rank 0")
        assert bool(message) == (rank > 0)
        assert (
            not rank or f"ValueError: expected the shards of rank {rank} of 3, but got those of rank 0 of 3" in message
        )
        for way in COPIES:
            assert found[way] < TOLERANCE and found[way, "groups"], found


def test_gradients_that_nobody_averaged_are_noticed(of_three):
    for *_, found, _, _ in of_three:
        assert found["NaN"] == ""
        for case in ("different", "missing"):
            assert "RuntimeError: expected gradients that are averaged over the ranks" in found[case]
            assert "or build the optimizer with gradients='local'" in found[case]


def test_torchs_optimizers_are_spared_empty_pieces_once_they_have_their_state(of_three):
    for *_, found, _ in of_three:
        seen, num_empty, _ = found["OwnSGD"]  # which may call a collective for each
        assert num_empty >= 1 and seen == [2, 2, 2]
        assert found["Adam"] == ([2, 2 - num_empty, 2 - num_empty], num_empty, 2)


def test_what_is_no_state_of_this_optimizer_is_refused(of_three):
    for *_, messages in of_three:
        empty, none, of_sgd, of_adamw = messages
        assert (
            empty
            == "ValueError: expected the state_dict() of an optimizer, with 'state' and 'param_groups', but got []"
        )
        assert none.endswith("but got NoneType") and of_adamw == ""
        assert "expected the state of Adam, whose groups have ['amsgrad', 'betas'," in of_sgd
        assert "but got groups with ['dampening', 'momentum', 'nesterov']" in of_sgd
