"""PowerSGD: torch's own hook within rounding, the plain mean at full rank, bytes by formula, bad input, sabotage."""

import logging

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as torchs

import dtlearn
from dtlearn.gradient_compression.powersgd import exchange
from dtlearn.gradient_compression.powersgd.hook import powersgd_hook
from dtlearn.gradient_compression.powersgd.state import PowerSGDState
from tests.data_parallel.runs import SMALL, Paths, distance
from tests.data_parallel.test_ddp import mine
from tests.devices import run_ranks
from tests.gradient_compression.runs import ONE_BUCKET, WRAPS, Empty, loss_of, small, train, wrapped_with

TOLERANCE = 1e-5  # float32; measured 5e-7 after 6 steps


class SeedOf:
    """In the place of the numbers that torch's state draws its seeds from."""

    def __init__(self, seed):
        self.seed = seed

    def randint(self, limit):
        return self.seed


def of_torch(matrix_rank, error_feedback=True):
    """torch's hook on torch's DDP, in one bucket: gloo runs its chains of calls in the order in which they end."""
    logging.disable()  # it tells its settings
    state = torchs.PowerSGDState(
        None, matrix_approximation_rank=matrix_rank, start_powerSGD_iter=2, use_error_feedback=error_feedback
    )
    state.rng = SeedOf(0)
    return train(wrapped_with("torch", state, torchs.powerSGD_hook, cap=ONE_BUCKET))


def of_ours(matrix_rank, wrap="ours", cap=SMALL, **options):
    state = PowerSGDState(matrix_rank, start_step=2, **options)
    return train(wrapped_with(wrap, state, powersgd_hook, cap=cap))


def parity():
    plain = train(wrapped_with("ours"))
    found, apart = {}, {}
    for matrix_rank in (1, 2, 3):
        theirs = of_torch(matrix_rank)
        apart[matrix_rank] = distance(theirs, plain)
        for wrap in WRAPS:
            for cap in (SMALL, ONE_BUCKET):
                found[matrix_rank, wrap, cap] = distance(of_ours(matrix_rank, wrap, cap), theirs)
    found["no feedback"] = distance(of_ours(1, error_feedback=False), of_torch(1, error_feedback=False))
    apart["no feedback"] = distance(of_ours(1, error_feedback=False), of_torch(1))
    apart["cold start"] = distance(of_ours(1, warm_start=False), of_torch(1))
    return found, apart


@pytest.mark.parametrize("world_size", [2, 4])
def test_it_is_torchs_hook(world_size):
    for found, apart in run_ranks(parity, world_size, device="cpu", timeout=110):
        assert len(found) == 3 * 6 + 1 and max(found.values()) < TOLERANCE, found
        assert min(apart.values()) > 100 * TOLERANCE, apart


def full_rank(wraps):
    plain = train(wrapped_with("ours"))
    return [
        distance(train(wrapped_with(wrap, PowerSGDState(16, min_compression_rate=0.01), powersgd_hook)), plain)
        for wrap in wraps
    ]


def test_at_full_rank_it_is_the_mean():
    assert all(max(found) < TOLERANCE for found in run_ranks(full_rank, 3, list(WRAPS), device="cpu"))


def test_on_another_device(other_device):
    assert all(max(found) < TOLERANCE for found in run_ranks(full_rank, 2, ["ours", "views"], device=other_device))


def two_steps():
    train(wrapped_with("ours", PowerSGDState(2, start_step=1), powersgd_hook), steps=2)


def test_bytes_by_the_record_are_those_of_the_formula():
    record = run_ranks(two_steps, 2, device="cpu", record=True).record
    shapes = [tuple(p.shape) for p in small().parameters()]
    for rank in (0, 1):
        sent = [event.nbytes for event in record.select(rank=rank, phase="backward", op="all_reduce")]
        plain, (*ps, q_first, q_second) = sent[:2], sent[2:]  # a bucket's Qs go when the next one's Ps have gone
        assert sum(plain) == 4 * sum(torch.Size(shape).numel() for shape in shapes)
        assert sum(ps) + q_first + q_second == PowerSGDState(2).nbytes(shapes) < sum(plain)
        assert [q_first, q_second] == [4 * 2 * 16, 4 * 2 * 6]


def wide_model():
    """Buckets of several matrices of one shape, of others, and of none."""
    return nn.Sequential(nn.Linear(6, 24), *(nn.Linear(24, 24) for _ in range(3)), nn.Linear(24, 4))


def orders():
    """The calls of a step with several buckets, on this rank."""
    state = PowerSGDState(2)
    model = wrapped_with("ours", state, powersgd_hook, make=wide_model, cap=2 * SMALL)
    loss_of(model, 0).backward()
    return len(model.buckets), len(state.qs)


def test_every_rank_calls_in_the_same_order():
    result = run_ranks(orders, 3, device="cpu", record=True)
    assert result.values == [(4, 4)] * 3
    calls = [
        [e.nbytes for e in result.record.select(rank=rank, phase="backward", op="all_reduce")] for rank in range(3)
    ]
    assert len(calls[0]) == 4 + 4 and calls[0] == calls[1] == calls[2]


# Bad input


def broken(at):
    """One rank has a gradient that is not finite, in a step; then all goes on as if there had been no such step."""
    runs = []
    for factor_then in (float("nan"), None):
        factors = [factor_then if step == at else 1 for step in range(at + 2)]
        state = PowerSGDState(1)
        model, found = wrapped_with("ours", state, powersgd_hook), []
        for step, factor in enumerate(factors):
            if factor is not None:
                model.zero_grad()
                (loss_of(model, step) * (factor if dist.get_rank() == 0 else 1)).backward()
                found.append([p.grad.clone() for p in model.parameters()])
        runs.append(found)
    finite = [all(bool(g.isfinite().all()) for g in step) for step in runs[0]]
    return finite, max((a - b).abs().max().item() for a, b in zip(runs[0][-1], runs[1][-1], strict=True))


@pytest.mark.parametrize("at", [0, 1])  # 0: the first Qs are there for the first time
def test_a_broken_gradient_is_seen_by_all_and_leaves_no_trace(at):
    for finite, away in run_ranks(broken, 2, at, device="cpu"):
        assert finite == [step != at for step in range(at + 2)] and away == 0


def used_later():
    """A layer without gradients at first, whose Q would stay zero if zeros were not made orthogonal."""
    away = {}
    for wrap in ("ours", "torch"):
        runs = []
        for state in (None, PowerSGDState(4, min_compression_rate=0.1)):
            options = {"make": lambda: Paths().float(), "find_unused_parameters": True}
            model = wrapped_with(wrap, state, powersgd_hook if state else None, **options)
            for step in range(4):
                model.zero_grad()
                model(mine(step).float(), "a" if step < 2 else "ab").square().sum().backward()
            runs.append([p.grad.clone() for p in model.module.parameters() if p.grad is not None])
        away[wrap] = max((a - b).abs().max().item() for a, b in zip(*runs, strict=True))
    return away


def test_a_parameter_may_become_used_later():
    for away in run_ranks(used_later, 2, device="cpu"):
        assert max(away.values()) < 1e-4, away


def empty_bucket():
    model = WRAPS["ours"](Empty().to(dtlearn.device()))
    model.register_comm_hook(PowerSGDState(1), powersgd_hook)
    model(mine(0)).square().sum().backward()
    return len(model.buckets), model.module.none.grad.shape


def test_an_empty_bucket():
    assert run_ranks(empty_bucket, 2, device="cpu").values == [(2, (0,))] * 2


def interrupted():
    """An error in a hook of the model ends a backward pass between two buckets; the next pass is as ever."""
    model = wrapped_with("ours", PowerSGDState(16, min_compression_rate=0.01), powersgd_hook)
    handle = model.module.layers[0].weight.register_hook(lambda gradient: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        loss_of(model, 0).backward()
    handle.remove()
    return distance(train(model), train(wrapped_with("ours")))


def test_after_an_interrupted_pass_the_next_is_whole():
    assert max(run_ranks(interrupted, 2, device="cpu")) < TOLERANCE


def passes(interrupt):
    """A backward pass that an error may end between two buckets, and one more; the record has its calls."""
    model = wrapped_with("ours", PowerSGDState(2), powersgd_hook)
    if interrupt:
        handle = model.module.layers[0].weight.register_hook(lambda gradient: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            loss_of(model, 0).backward()
        handle.remove()
    model.zero_grad()
    loss_of(model, 1).backward()


def test_of_an_interrupted_pass_nothing_is_sent_later():
    calls = []
    for interrupt in (False, True):
        record = run_ranks(passes, 2, interrupt, device="cpu", record=True).record
        calls.append([event.nbytes for event in record.select(rank=0, op="all_reduce")])
    whole, interrupted = calls
    assert len(whole) == 4 and interrupted[-4:] == whole and len(interrupted) == 4 + 1, calls


def failing():
    """What goes wrong after the last all-reduce comes out of backward, and nobody waits for ever."""
    model = wrapped_with("ours", PowerSGDState(2), powersgd_hook)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "all_finite", lambda tensor: 1 / 0)
        with pytest.raises(Exception, match="division by zero"):
            loss_of(model, 0).backward()


def test_an_error_in_the_last_part_is_told():
    run_ranks(failing, 2, device="cpu")
