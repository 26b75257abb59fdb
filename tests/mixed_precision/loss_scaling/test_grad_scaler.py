"""`GradScaler`: step for step what torch's does, in random scripts; agreement of ranks; what users do wrong."""

import copy
import itertools
import math
import random
import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn

import dtlearn
from dtlearn.memory import StorageLedger
from dtlearn.mixed_precision import MasterWeights
from dtlearn.mixed_precision.loss_scaling.grad_scaler import GradScaler, all_finite, next_scale
from dtlearn.models import GPT, GPTConfig, next_token_loss
from tests.devices import run_ranks

BLOCKS, SCRIPTS, ACTIONS = 4, 75, 40
ROWS = torch.tensor([1, 3, 1])  # one of them twice: the sparse gradient is not coalesced
GOOD_LOOP = ["zero_grad", "backward", "unscale", "step", "update"]


class Part(nn.Module):
    """Parameters of one optimizer: float32, bfloat16 and float64, one frozen, one empty, and sparse gradients."""

    def __init__(self, sparse, generator):
        super().__init__()
        wide, small, exact = (torch.randn(size, generator=generator) for size in (3, 2, 2))
        self.wide, self.small, self.exact = map(nn.Parameter, (wide, small.bfloat16(), exact.double()))
        self.frozen, self.empty = nn.Parameter(torch.ones(1), requires_grad=False), nn.Parameter(torch.zeros(0))
        table = torch.randn(5, 2, generator=generator)
        self.table = nn.Embedding.from_pretrained(table, freeze=False, sparse=sparse)

    def forward(self, coefficient):
        rows = self.table(ROWS).flatten()
        parts = [self.wide.square(), self.small, self.exact, rows, self.frozen, self.empty]
        return torch.cat(parts).sum() * coefficient


OPTIMIZERS = [
    lambda p: torch.optim.SGD(p, lr=0.1),
    lambda p: torch.optim.Adam(p, lr=0.1),
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
]


class Run:
    """A script's subject: a scaler, ours or torch's, with its own copies of the models and optimizers."""

    def __init__(self, make_scaler, options, count):
        generator = torch.Generator().manual_seed(0)
        self.make = lambda: make_scaler(**options)
        self.scaler = self.make()
        self.parts = [Part(number == 0, generator) for number in range(count)]
        self.parameters = [list(part.parameters()) for part in self.parts]
        self.optimizers = [make(own) for make, own in zip(OPTIMIZERS, self.parameters, strict=False)]

    def do(self, action, which, value):
        """Returns the kind of error, if there is one."""
        optimizer, part = self.optimizers[which], self.parts[which]
        try:
            match action:
                case "backward":
                    self.scaler.scale(part(value)).backward()
                case "zero_grad":
                    optimizer.zero_grad()
                case "unscale":
                    self.scaler.unscale_(optimizer)
                case "step":
                    self.scaler.step(optimizer)
                case "update":
                    self.scaler.update()
                case "set":
                    self.scaler.update(value)
                case "set to tensor":
                    self.scaler.update(torch.tensor(value))
                case "resume":
                    state, self.scaler = self.scaler.state_dict(), self.make()
                    self.scaler.load_state_dict(state)
        except (AssertionError, RuntimeError, ValueError):
            return "refused"
        return ""

    def tensors(self, which):
        """Weights and gradients of an optimizer, as bytes: NaN equals NaN, and -0 is not 0."""
        parameters = self.parameters[which]
        gradients = [p.grad for p in parameters if p.grad is not None]
        values = [g._values() if g.is_sparse else g for g in gradients]
        return [t.detach().view(torch.uint8).numpy().tobytes() for t in parameters + values]


def random_script(rng):
    """Options of a scaler, a number of optimizers, and actions: mostly a training loop, with mistakes in it."""
    options = {
        "init_scale": rng.choice([2.0**16, 2.0**4, 3.75, 2.0**125]),
        "growth_factor": rng.choice([2.0, 1.5, 4.0]),
        "backoff_factor": rng.choice([0.5, 0.3]),
        "growth_interval": rng.choice([1, 2, 3]),
    }
    count, script = rng.choice([1, 1, 2, 3]), []
    while len(script) < ACTIONS:
        for action in GOOD_LOOP:
            everyone = range(count) if action != "update" else [0]
            for which in everyone:
                coefficient = rng.choice([math.inf, math.nan, 1e35] + 12 * [10 ** rng.uniform(-8, 8)])
                if action != "unscale" or rng.random() < 0.5:
                    script += [(action, which, coefficient)] * rng.choice([0, 1, 1, 1, 1, 1, 1, 1, 1, 2])
        if rng.random() < 0.15:
            script.append((rng.choice(["set", "set to tensor"]), 0, rng.choice([1.0, 512.0, 2.9])))
        if rng.random() < 0.15:
            script.append(("resume", 0, 0.0))
    return options, count, script


def first_difference(seed, ours=GradScaler):
    """Where a script's trajectories part, "" if nowhere; and what happened in it."""
    options, count, script = random_script(random.Random(seed))
    mine = Run(ours, options, count)
    theirs = Run(lambda **options: torch.amp.GradScaler("cpu", **options), options, count)
    seen = {"refused": 0, "scales": set()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of losses that are not finite
        for number, action in enumerate(script):
            results = mine.do(*action), theirs.do(*action)
            state, torch_state = mine.scaler.state_dict(), theirs.scaler.state_dict()
            tensors = mine.tensors(action[1]), theirs.tensors(action[1])
            if results[0] != results[1] or state != torch_state or tensors[0] != tensors[1]:
                return f"script {seed}, action {number} {action}: {results} {state} {torch_state}", seen
            seen["refused"] += results[0] == "refused"
            seen["scales"].add(state["scale"])
    return "", seen


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS), ids=[f"{SCRIPTS} scripts, block {b}" for b in range(BLOCKS)])
def test_random_scripts_have_torchs_trajectory(block):
    results = [first_difference(seed) for seed in range(block * SCRIPTS, (block + 1) * SCRIPTS)]
    assert [difference for difference, _ in results if difference] == []
    # They were not all quiet: scales moved, and mistakes were refused on both sides.
    assert sum(len(seen["scales"]) > 2 for _, seen in results) > SCRIPTS * 0.9
    assert sum(seen["refused"] > 0 for _, seen in results) > SCRIPTS * 0.3


class NeverGrows(GradScaler):
    def update(self, new_scale=None):
        super().update(new_scale)
        self._growth_tracker = 0


class ForgetsOthers(GradScaler):
    """The last optimizer's overflow only."""

    def update(self, new_scale=None):
        self._overflow = dict(list(self._overflow.items())[-1:])
        super().update(new_scale)


class StepsAlways(GradScaler):
    def was_skipped(self, optimizer):
        return False


@pytest.mark.parametrize("broken", [NeverGrows, ForgetsOthers, StepsAlways])
def test_the_scripts_find_a_broken_scaler(broken):
    assert any(first_difference(seed, broken)[0] for seed in range(30))


def test_scale_takes_what_torchs_takes():
    mine, theirs = GradScaler(3.0), torch.amp.GradScaler("cpu", init_scale=3.0)
    half = torch.tensor(2.0, dtype=torch.float16)
    nested = [torch.ones(2), (half, torch.ones(1).bfloat16())]
    for scaler in (mine, theirs):
        scaled = scaler.scale(nested)
        assert type(scaled) is list and type(scaled[1]) is tuple
        assert scaled[0].tolist() == [3, 3] and scaled[1][0].item() == 6
        assert [scaled[1][0].dtype, scaled[1][1].dtype] == [torch.float32, torch.bfloat16]
        assert [t.item() for t in scaler.scale(t for t in [half, half])] == [6, 6]
    with pytest.raises(ValueError, match="takes a tensor or an iterable of tensors, not a float"):
        mine.scale(1.0)
    with pytest.raises(ValueError, match="not a str"):
        mine.scale(["loss"])


def test_disabled_it_does_nothing():
    weight = nn.Parameter(torch.ones(1))
    optimizer, scaler = torch.optim.SGD([weight], lr=1.0), GradScaler(enabled=False)
    scaler.scale(weight.sum()).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    scaler.load_state_dict({"anything": 1})
    assert (weight.item(), scaler.get_scale(), scaler.state_dict()) == (0.0, 1.0, {})


def trained(scaler, losses=(1.0,), parameter=None):
    weight = nn.Parameter(torch.ones(2)) if parameter is None else parameter
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for loss in losses:
        optimizer.zero_grad()
        scaler.scale(weight.float().sum() * loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return weight, optimizer


def test_states_go_from_torchs_to_ours_and_back():
    mine, theirs = GradScaler(growth_interval=3), torch.amp.GradScaler("cpu", growth_interval=3)
    trained(theirs, (1.0, 1.0))
    mine.load_state_dict(theirs.state_dict())
    trained(mine)
    assert mine.get_scale() == 2 * theirs.get_scale()  # the third step without an overflow
    theirs.load_state_dict(mine.state_dict())
    assert theirs.state_dict() == mine.state_dict()


def test_a_fused_optimizer_gets_unscaled_gradients():
    runs = {}
    for name, scaler in {"ours": GradScaler(8.0), "torch's": torch.amp.GradScaler("cpu", init_scale=8.0)}.items():
        weight = nn.Parameter(torch.ones(2))
        optimizer = torch.optim.AdamW([weight], lr=0.1, fused=True)
        for loss in (1.0, math.inf, 2.0):
            optimizer.zero_grad()
            scaler.scale((weight * torch.tensor([loss, 1.0])).sum()).backward()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                scaler.step(optimizer)
            scaler.update()
        runs[name] = weight.tolist(), scaler.get_scale()
    assert runs["ours"] == runs["torch's"] and runs["ours"][1] == 4.0


def train_gpt(scaler, steps=6):
    """A GPT in float16 with float32 masters: losses, scales and the last weights."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(16, 8, 1, 2, 8)).half()
    optimizer = MasterWeights(model.parameters(), torch.optim.AdamW, lr=0.01)
    tokens, history = torch.randint(16, (steps, 4, 9)), []
    for rows in tokens:
        optimizer.zero_grad()
        loss = next_token_loss(model(rows[:, :-1]).float(), rows[:, 1:])
        scaler.scale(loss).backward()
        optimizer.copy_gradients_to_masters()
        scaler.step(optimizer)
        scaler.update()
        history.append((loss.item(), scaler.get_scale()))
    return history, torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def test_a_gpt_in_float16_trains_as_with_torchs():
    options = {"init_scale": 2.0**20, "growth_interval": 2}
    (mine, weights), (theirs, torch_weights) = (
        train_gpt(scaler) for scaler in (GradScaler(**options), torch.amp.GradScaler("cpu", **options))
    )
    assert mine == theirs and torch.equal(weights, torch_weights) and weights.isfinite().all()
    scales = [scale for _, scale in mine]
    assert scales[0] < 2.0**20 and any(b > a for a, b in itertools.pairwise(scales))  # it fell, and it grew


def test_was_skipped_says_so_until_update():
    weight = nn.Parameter(torch.ones(1))
    optimizer, scaler = torch.optim.SGD([weight], lr=1.0), GradScaler(2.0)
    for coefficient in (1.0, 3e38):  # the second overflows by the scale alone
        optimizer.zero_grad()
        scaler.scale((weight * coefficient).sum()).backward()
        assert scaler.step(optimizer) is None
        assert scaler.was_skipped(optimizer) == (coefficient > 1)
        scaler.update()
        assert not scaler.was_skipped(optimizer)
    assert weight.item() == 0.0 and scaler.get_scale() == 1.0


def test_all_finite():
    assert all_finite([]) and all_finite([torch.zeros(0)])
    assert all_finite([torch.full((2,), 3e38), torch.tensor([1e300], dtype=torch.float64), torch.ones(1).bfloat16()])
    for bad in (math.inf, -math.inf, math.nan):
        assert not all_finite([torch.ones(3), torch.tensor([1.0, bad, 0.0]).half()])


def test_finite_gradients_are_looked_at_without_a_copy_of_them():
    gradients = [torch.ones(1000), torch.ones(50, 20)]
    with StorageLedger() as ledger:
        assert all_finite(gradients)
    assert 0 < ledger.peak < 100  # a norm of each


# Agreement.


def one_overflow(agree, overflow_on):
    """Gradients of two steps, the first with an overflow on some ranks; scale and weight after each step."""
    rank = dist.get_rank()
    weight = nn.Parameter(torch.ones(1, device=dtlearn.device()))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scaler = GradScaler(8.0, group=dist.group.WORLD if agree else None)
    states = []
    for step in range(2):
        optimizer.zero_grad()
        scaler.scale((weight * (3e38 if step == 0 and rank in overflow_on else 1.0)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        states.append((scaler.get_scale(), weight.item()))
    return states


@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_agree_on_an_overflow_and_send_four_bytes(world_size, device):
    result = run_ranks(one_overflow, world_size, True, [1], device=device, record=True)
    assert list(result) == [[(4.0, 1.0), (4.0, 0.5)]] * world_size
    for rank in range(world_size):
        sent = result.record.select(rank=rank, op="all_reduce")
        assert [call.nbytes for call in sent] == [4, 4]  # one element a step


def test_without_a_group_ranks_drift_apart_and_send_nothing():
    result = run_ranks(one_overflow, 2, False, [1], device="cpu", record=True)
    assert list(result) == [[(8.0, 0.5), (8.0, 0.0)], [(4.0, 1.0), (4.0, 0.5)]]
    assert not result.record.select(op="all_reduce")


def gradients_on_some(ranks):
    """A rank whose parameters are all frozen takes part; if none has a gradient, all ranks raise."""
    weight = nn.Parameter(torch.ones(1))
    optimizer, scaler = torch.optim.SGD([weight], lr=1.0), GradScaler(8.0, group=dist.group.WORLD)
    loss = scaler.scale(weight.sum())
    if dist.get_rank() in ranks:
        loss.backward()
    try:
        scaler.step(optimizer)
    except RuntimeError as error:
        return str(error)
    scaler.update()
    return weight.item()


def test_a_rank_without_gradients_takes_part():
    assert list(run_ranks(gradients_on_some, 2, [1], device="cpu")) == [1.0, 0.0]
    for message in run_ranks(gradients_on_some, 2, [], device="cpu"):
        assert "none of this optimizer's parameters has a gradient" in message


def on_a_rank_without_parameters():
    """Rank 1 has none in the first group, rank 2 none at all; and a copy decides in the same group."""
    rank, weight = dist.get_rank(), nn.Parameter(torch.ones(1))
    groups = [{"params": [] if rank else [weight]}, {"params": [weight] if rank == 1 else []}]
    optimizer, scaler = torch.optim.SGD(groups, lr=1.0), copy.deepcopy(GradScaler(8.0, group=dist.group.WORLD))
    for factor in (3e38 if rank == 0 else 1.0, 1.0):
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    return scaler.get_scale(), weight.item()


def test_an_empty_parameter_group_takes_part():
    assert list(run_ranks(on_a_rank_without_parameters, 3, device="cpu")) == [(4.0, 0.0), (4.0, 0.0), (4.0, 1.0)]


def test_a_copy_goes_on_by_itself():
    trained(scaler := GradScaler(8.0, growth_interval=2))
    other = copy.deepcopy(scaler)
    trained(other)
    assert (scaler.get_scale(), other.get_scale()) == (8.0, 16.0)


# What users do wrong.


@pytest.mark.parametrize(
    "options", [{"growth_factor": 1.0}, {"backoff_factor": 1.0}, {"backoff_factor": 0.0}, {"growth_factor": math.nan}]
)
def test_factors_that_cannot_work_are_refused(options):
    with pytest.raises(ValueError, match=r"growth_factor must be above 1 and backoff_factor between 0 and 1; got"):
        GradScaler(**options)


def test_the_rule():
    assert next_scale(8.0, 5, overflow=True) == (4.0, 0)
    assert next_scale(8.0, 5, overflow=False) == (8.0, 6)
    assert next_scale(8.0, 1999, overflow=False) == (16.0, 0)
    assert next_scale(2.0**127, 0, overflow=False, growth_interval=1) == (2.0**127, 0)
    assert next_scale(8.0, 5, overflow=False, growth_interval=3) == (8.0, 6)  # passed over: as torch's, never again


def test_a_device_is_refused_as_a_scale():
    with pytest.raises(ValueError, match=r"got 'cuda'\. Unlike torch's, this GradScaler takes no device"):
        GradScaler("cuda")


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan, 1e39, torch.zeros(1), 1e-39])
def test_a_scale_that_cannot_work_is_refused(scale):
    with pytest.raises(ValueError, match="the scale must be a number"):
        GradScaler(scale)
    scaler = GradScaler()
    scaler.scale(torch.ones(1))
    with pytest.raises(ValueError, match="the scale must be a number"):
        scaler.update(scale)
    with pytest.raises(ValueError, match=r"must be one number; got a tensor of shape \(2,\)"):
        scaler.update(torch.ones(2))


def test_unscaling_twice_is_refused():
    weight, optimizer = trained(scaler := GradScaler())
    scaler.scale(weight.sum()).backward()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="divided by the scale twice"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"unscale_\(\) after step\(\)"):
        scaler.unscale_(optimizer)


def test_a_second_step_without_update_is_refused():
    weight, optimizer = trained(scaler := GradScaler())
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"call update\(\) after it"):
        scaler.step(optimizer)


def test_update_without_step_and_a_step_without_gradients_are_refused():
    _, optimizer = trained(scaler := GradScaler())
    with pytest.raises(RuntimeError, match=r"call step\(\) or unscale_\(\) before it"):
        scaler.update()
    optimizer.zero_grad()
    with pytest.raises(RuntimeError, match=r"was backward\(\) called"):
        scaler.step(optimizer)


@pytest.mark.parametrize("call", ["unscale_", "step", "update"])
def test_nothing_was_scaled(call):
    arguments = [] if call == "update" else [torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)]
    with pytest.raises(RuntimeError, match=r"before anything was scaled: call scaler.scale\(loss\).backward\(\) first"):
        getattr(GradScaler(), call)(*arguments)


def test_a_closure_is_refused():
    _, optimizer = trained(scaler := GradScaler())
    for arguments in ([lambda: 1.0], []):
        with pytest.raises(RuntimeError, match="takes no closure"):
            scaler.step(optimizer, *arguments, **({} if arguments else {"closure": None}))


def test_float16_gradients_are_refused():
    with pytest.raises(ValueError, match="give their optimizer to MasterWeights"):
        trained(GradScaler(1.0), parameter=nn.Parameter(torch.ones(2).half()))


def test_a_state_of_another_version_is_refused_as_a_whole():
    scaler = GradScaler(8.0)
    with pytest.raises(RuntimeError, match="was not enabled"):
        scaler.load_state_dict({})
    state = {**scaler.state_dict(), "scale": 2.0}
    del state["_growth_tracker"]
    for wrong in ({"loss_scale": 2.0, "unskipped": 3}, state, {**state, "_growth_tracker": 0, "hysteresis": 1}):
        with pytest.raises(ValueError, match=r"not the state of a GradScaler: it has \[.* take its scale"):
            scaler.load_state_dict(wrong)
    assert scaler.get_scale() == 8.0


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_before_scaling(loss):
    with pytest.warns(RuntimeWarning, match="before it was scaled: this step is skipped"):
        weight, _ = trained(scaler := GradScaler(8.0), (loss,))
    assert weight.tolist() == [1, 1] and scaler.get_scale() == 4.0
    with pytest.raises(ValueError, match="no scale can help: look at the batch"):
        trained(GradScaler(error_if_nonfinite=True), (1.0, loss))
    trained(GradScaler(8.0), (1e38,))  # an overflow by the scale: no warning


def test_gradients_that_overflow_at_every_scale_end_in_an_error():
    """torch's goes on: once the scale is 0, 0 times infinity is in the weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with pytest.raises(RuntimeError, match="overflowed at every scale, down to 6e-39"):
            trained(GradScaler(), (math.nan,) * 200)
    weight, _ = trained(torch.amp.GradScaler("cpu", init_scale=2.0**-140), (1.0,))
    assert not weight.isfinite().any()
