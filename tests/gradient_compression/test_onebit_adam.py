"""1-bit Adam: AdamW under data parallelism, then all ranks in one process; frozen variance; bytes; sabotage."""

import copy
import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dtlearn.data_parallel import DistributedDataParallel
from dtlearn.gradient_compression.codecs.sign import PackedSign
from dtlearn.gradient_compression.compressed_all_reduce import CompressedAllReduce
from dtlearn.gradient_compression.onebit_adam import OneBitAdam
from dtlearn.runtime.device import device as here
from tests.devices import run_ranks
from tests.gradient_compression.averaging.runs import TOLERANCE, batch, flat, gradients, make_model

WARM_UP, STEPS, CHUNK = 4, 10, 16
OPTIONS = {"lr": 0.01, "betas": (0.9, 0.99), "weight_decay": 0.1}


def make(model, **options):
    return OneBitAdam(model.parameters(), **OPTIONS, warmup_steps=WARM_UP, codec=PackedSign(CHUNK), **options)


def train(model, optimizer, steps=STEPS, start=0):
    trace = []
    for step in range(start, start + steps):
        gradients(model, [batch(dist.get_rank(), step)])
        optimizer.step()
        trace.append(flat(model).cpu())
    return trace


def signs(x):
    parts = x.split(CHUNK)
    return torch.cat([(2.0 * (part >= 0).double() - 1.0) * part.abs().mean() for part in parts] or [x])


def by_paper(ranks, preconditioned=False):
    """All ranks in one process, on flat vectors: parameters by step, and the last variance."""
    model = make_model()
    x = flat(model)
    (lr, (beta1, beta2), decay), n = OPTIONS.values(), len(x)
    m, v = torch.zeros_like(x), torch.zeros_like(x)
    size = -(-n // (8 * ranks)) * 8
    worker, server, trace = x.new_zeros(ranks, n), x.new_zeros(n), []
    for step in range(1, STEPS + 1):
        nn.utils.vector_to_parameters(x.clone(), model.parameters())
        g = []
        for rank in range(ranks):
            gradients(model, [batch(rank, step - 1)])
            g.append(torch.cat([p.grad.reshape(-1) for p in model.parameters()]))
        g = torch.stack(g)
        if step <= WARM_UP:
            m = beta1 * m + (1 - beta1) * g.mean(0)
            v = beta2 * v + (1 - beta2) * g.mean(0) ** 2
            corrected = v / (1 - beta2**step)
        else:
            root = corrected.sqrt() + 1e-8 if preconditioned else 1.0
            given = (beta1 * m + (1 - beta1) * g) / root + worker  # (ranks, n)
            sent = torch.stack([torch.cat([signs(part) for part in row.split(size)]) for row in given])
            mean = sent.mean(0) + server
            m = torch.cat([signs(part) for part in mean.split(size)])
            worker, server = given - sent, mean - m
            m = m * root
        x = x * (1 - lr * decay) - lr * (m / (1 - beta1**step)) / (corrected.sqrt() + 1e-8)
        trace.append(x)
    return trace, v


def one_run():
    model = make_model().to(here())
    optimizer = make(model)
    variances, trace = [], []
    for step in range(STEPS):
        trace += train(model, optimizer, 1, step)
        variances.append(torch.cat([optimizer.state[p]["exp_avg_sq"].reshape(-1) for p in model.parameters()]).cpu())
    ddp = DistributedDataParallel(make_model().to(here()))
    adamw = torch.optim.AdamW(ddp.parameters(), **OPTIONS)
    model = make_model().to(here())
    return trace, variances, train(ddp, adamw), train(model, make(model, preconditioned=True))


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_warm_up_is_adamw_and_then_all_ranks_are_one_process(ranks, device):
    run = run_ranks(one_run, ranks, device=device)
    expected, variance = by_paper(ranks)
    other, _ = by_paper(ranks, preconditioned=True)
    for trace, variances, adamw, preconditioned in run:
        assert max(float((a - b).abs().max()) for a, b in zip(preconditioned, other, strict=True)) < TOLERANCE
        assert max(float((a - b).abs().max()) for a, b in zip(trace[:WARM_UP], adamw, strict=False)) < TOLERANCE
        assert max(float((a - b).abs().max()) for a, b in zip(trace, expected, strict=True)) < TOLERANCE
        assert float((trace[WARM_UP] - adamw[WARM_UP]).abs().max()) > 1e-3  # from there on it is another optimizer
        assert all(torch.equal(v, variances[WARM_UP - 1]) for v in variances[WARM_UP:])
        assert torch.allclose(variances[-1], variance, rtol=1e-9, atol=0)
        assert not torch.equal(variances[0], variances[1]) and all(map(torch.equal, trace, run[0][0]))


class Forgets(CompressedAllReduce):
    """One of the two errors is dropped after each call."""

    dropped = "worker_error"

    def mean(self, x):
        result = super().mean(x)
        getattr(self, self.dropped).zero_()
        return result


class ForgetsTheServers(Forgets):
    dropped = "server_error"


def to_a_target(kind):
    """The distance from the minimum of a quadratic whose coordinates differ in scale, after the warm-up and at the end.

    Every rank's gradient has noise of its own, which the mean over ranks and time has not.
    """
    rank, noise = dist.get_rank(), torch.Generator().manual_seed(dist.get_rank())
    scales = torch.logspace(-2, 0, 64, dtype=torch.float64)
    x = nn.Parameter(torch.ones(64, dtype=torch.float64))
    optimizer = OneBitAdam([x], lr=0.02, betas=(0.9, 0.999), warmup_steps=20, codec=PackedSign(64))
    for step in range(300):
        if step == 20:
            optimizer._freeze([x])
            optimizer.all_reduce.__class__ = kind
        shift = (1 if rank else -1) * torch.linspace(0.1, 1, 64, dtype=torch.float64)
        x.grad = scales * (x.detach() + shift + 0.5 * torch.randn(64, generator=noise, dtype=torch.float64))
        optimizer.step()
    return float(x.detach().square().mean().sqrt())


def three():
    return [to_a_target(kind) for kind in (CompressedAllReduce, Forgets, ForgetsTheServers)]


def test_sabotage_a_dropped_error_trains_visibly_worse():
    right, without_workers, without_servers = run_ranks(three, 2, device="cpu")[0]
    assert right < 0.15, (right, without_workers, without_servers)
    assert without_workers > 2 * right and without_servers > 2 * right, (right, without_workers, without_servers)


def with_a_small_variance(preconditioned):
    """The largest step after the warm-up, in learning rates; one element's gradient is a millionth of the others'."""
    x, scale = nn.Parameter(torch.ones(64, device=here())), torch.ones(64, device=here())
    scale[0] = 1e-6
    optimizer = OneBitAdam([x], lr=0.01, warmup_steps=10, preconditioned=preconditioned)
    largest = 0.0
    for step in range(20):
        before = x.detach().clone()
        x.grad = scale * torch.randn(64, generator=torch.Generator().manual_seed(2 * step + dist.get_rank())).to(here())
        optimizer.step()
        largest = max(largest, float((x.detach() - before).abs().max()) / 0.01) if step >= 10 else 0.0
    return largest


def both():
    return with_a_small_variance(False), with_a_small_variance(True)


def test_a_small_variance_is_a_huge_step_unless_preconditioned(device):
    for by_the_paper, preconditioned in run_ranks(both, 2, device=device):
        assert by_the_paper > 1e4 and preconditioned < 10, (by_the_paper, preconditioned)


def for_the_record():
    model = nn.Linear(127, 128).float()
    with torch.no_grad():
        optimizer = OneBitAdam(model.parameters(), warmup_steps=2)
        for step in range(3):
            for p in model.parameters():
                p.grad = torch.full_like(p, dist.get_rank() + step + 1.0)
            optimizer.step()


def test_bytes_of_the_record():
    numel, ranks = 1 << 14, 4
    run = run_ranks(for_the_record, ranks, device="cpu", record=True)
    for rank in range(ranks):
        assert [e.nbytes for e in run.record.select(rank=rank, op="all_reduce")] == [4 * numel] * 2
        assert run.record.nbytes(rank=rank, op="all_to_all_single") == numel // 8 + numel // 256
        gathered = [e.nbytes for e in run.record.select(rank=rank) if e.op.startswith("all_gather")]
        assert gathered == [8, (numel // 8 + numel // 256) // ranks]


def resumed():
    """Stopped before and after the end of the warm-up: as without a stop. Errors of others are refused."""
    rank = dist.get_rank()
    model = make_model().to(here())
    whole = train(model, make(model))
    same = []
    for stop in (2, 7):
        model = make_model().to(here())
        optimizer = make(model)
        train(model, optimizer, stop)
        weights, state = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        other = make_model(5).to(here())
        other.load_state_dict(weights)
        again = make(other)
        again.load_state_dict(state)
        same.append(all(map(torch.equal, train(other, again, STEPS - stop, stop), whole[stop:])))
    errors = state["onebit"]["errors"]
    messages = []
    for wrong in (errors | {"num_ranks": 4}, errors | {"rank": 1 - rank}):
        with pytest.raises(ValueError) as error:
            make(other).load_state_dict(state | {"onebit": state["onebit"] | {"errors": wrong}})
        messages.append(str(error.value))
    state["onebit"]["errors"] = None
    again = make(other)
    again.load_state_dict(state)
    other.load_state_dict(weights)
    lost = train(other, again, STEPS - 7, 7)
    return same, messages, torch.equal(lost[-1], whole[-1]), float((lost[-1] - whole[-1]).abs().max())


def test_a_checkpoint_goes_on_with_the_same_bits(device):
    for rank, (same, messages, equal, distance) in enumerate(run_ranks(resumed, 2, device=device)):
        assert same == [True, True]
        assert (
            f"expected the errors of rank {rank} of 2, of 53 elements, but these are of rank {rank} of 4" in messages[0]
        )
        assert f"but these are of rank {1 - rank} of 2" in messages[1]
        assert not equal and distance < 0.1  # without the errors another run, not a broken one


class Sometimes(nn.Module):
    """A table of which only the first rows are used, and a parameter that is used later."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.later = nn.Embedding(6, 3), nn.Parameter(torch.ones(3))

    def forward(self, rows, late=False):
        found = self.table(rows)
        return (found * self.later if late else found).square().sum()


def unused_and_late():
    """Rows without gradients stay as they are; one that is used too late stays, too; a parameter is an error."""
    rank, model = dist.get_rank(), Sometimes().to(here())
    optimizer = OneBitAdam(model.parameters(), lr=0.01, warmup_steps=2)
    before = model.table.weight.detach().clone()

    def step(rows, late=False):
        optimizer.zero_grad()
        (model(torch.tensor(rows, device=here()), late) * (rank + 1)).backward()
        optimizer.step()

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(6):
            step([0, 1, 2])
        step([0, 5])
    after = model.table.weight.detach().clone()
    with pytest.raises(ValueError, match=r"a parameter of shape \(3,\) has its first gradient after the warm-up of 2"):
        step([0], late=True)
    rows = (before != after).all(1).tolist()
    said = [str(w.message) for w in warned if w.filename == __file__]  # that is, it shows where step is called
    return rows, float((before - after).abs().max()), optimizer.all_reduce.worker_error.numel(), said


def test_elements_that_the_warm_up_did_not_use(device):
    for rank, (rows, largest, numel, said) in enumerate(run_ranks(unused_and_late, 2, device=device)):
        assert len(said) == (rank == 0)  # nine elements of three rows, and three of the parameter
        assert not said or said[0].startswith("12 elements had no gradient in the 2 steps of the warm-up")
        assert rows == [True] * 3 + [False] * 3 and numel == 9
        assert largest < 0.2  # 7 steps of about 0.01; plus or minus a scale over eps would be millions


def late_on_one_rank():
    """Every rank raises, nothing is changed, and all go on together."""
    rank, model = dist.get_rank(), Sometimes().to(here())
    optimizer = OneBitAdam(model.parameters(), lr=0.01, warmup_steps=1)

    def step(late=False):
        optimizer.zero_grad()
        (model(torch.tensor([0, 1], device=here()), late) * (rank + 1)).backward()
        optimizer.step()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            step()
    before, error = flat(model), optimizer.all_reduce.worker_error.clone()
    with pytest.raises(ValueError) as raised:
        step(late=rank == 1)
    same = torch.equal(flat(model), before) and torch.equal(optimizer.all_reduce.worker_error, error)
    step()
    return same, optimizer.steps, str(raised.value)


def test_a_late_parameter_on_one_rank_is_an_error_on_all(device):
    (*first, others), (*second, own) = run_ranks(late_on_one_rank, 2, device=device)
    assert first == second == [True, 4]
    assert own.startswith("a parameter of shape (3,) has its first gradient after the warm-up of 1 steps")
    assert others.startswith("expected finite values from every rank") and "as that of shape (3,)" in others


def bad_input():
    rank = dist.get_rank()
    ddp = DistributedDataParallel(make_model().to(here()))
    with pytest.raises(ValueError, match="a DistributedDataParallel averages them already"):
        train(ddp, make(ddp))
    with pytest.raises(ValueError, match="warmup_steps must be 1 or more, got 0"):
        OneBitAdam(ddp.parameters(), warmup_steps=0)
    model = make_model().to(here())
    optimizer = make(model)
    for start in (0, WARM_UP + 1):  # a NaN in the warm-up, and one after it
        if start:
            train(model, optimizer, start)
        before, state = flat(model), copy.deepcopy(optimizer.state_dict())
        gradients(model, [batch(rank, 50)])
        if rank:
            next(model.parameters()).grad[0, 0] = float("nan")
        with pytest.raises(ValueError, match="finite"):
            optimizer.step()
        assert torch.equal(flat(model), before) and optimizer.steps == start
        for name, value in (optimizer.state_dict()["onebit"]["errors"] or {}).items():
            expected = state["onebit"]["errors"][name]
            assert value == expected if isinstance(value, int) else torch.equal(value, expected)
    train(model, optimizer, 1)
    idle = OneBitAdam(make_model().to(here()).parameters(), warmup_steps=1)
    idle.step()
    with pytest.raises(ValueError, match="no parameter had a gradient in the 1 steps of the warm-up"):
        idle.step()
    empty = OneBitAdam(
        [nn.Parameter(torch.empty(0, device=here())), *make_model().to(here()).parameters()], warmup_steps=1
    )
    for p in empty.param_groups[0]["params"]:
        p.grad = torch.full_like(p, rank + 1.0)
    empty.step()
    empty.step()


def test_bad_input(device):
    run_ranks(bad_input, 2, device=device)
