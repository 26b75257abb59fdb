"""The same step in our runner and in torch.distributed.pipelining's: our orders in both, and torch's in both."""

import copy
from itertools import pairwise

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from dtlearn.pipeline_parallel.runner.runner import PipelineRunner
from dtlearn.pipeline_parallel.schedules.from_torch import torch_schedule
from dtlearn.pipeline_parallel.schedules.make import make_schedule
from dtlearn.runtime.run import run_ranks

from .torch_runner import torch_step

OURS = ["naive", "gpipe", "1f1b", "interleaved", "zb_h1", "zb_h2", "zbv", "v_half", "v_min"]
TORCHS = ["GPipe", "1F1B", "LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"]
SIZES = (2, 4)


def make_modules(num_stages):
    torch.manual_seed(0)
    return [
        nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 4)).double() for _ in range(num_stages)
    ]


def make_schedules(p):
    m = 2 * p  # the least that DualPipeV takes
    every = [make_schedule(name, p, m) for name in OURS] + [torch_schedule(name, p, m) for name in TORCHS]
    # With torch 2.11 its runner sends what stays on a rank to that rank itself, which nobody can receive.
    local = torch.__version__ >= (2, 13)
    return [s for s in every if local or all(a != b for a, b in pairwise(s.placement))]


def gradients(modules):
    return [parameter.grad for stage in sorted(modules) for parameter in modules[stage].parameters()]


def in_both_runners():
    """On 4 ranks, pipelines of the first p: {(p, schedule): (losses and gradients of this rank) by runner}."""
    found = {}
    for p in SIZES:
        torch.manual_seed(7)
        inputs, targets = torch.randn(2, 4 * p, 4, dtype=torch.float64)
        group = dist.new_group(range(p))
        for schedule in make_schedules(p) if dist.get_rank() < p else ():
            whole = make_modules(schedule.num_stages)
            reference = {stage: whole[stage] for stage in schedule.stages_of(dist.get_rank())}
            ours, torchs, unscaled = (copy.deepcopy(reference) for _ in range(3))
            result = PipelineRunner(schedule, ours, F.mse_loss, group=group).step(inputs, targets)
            losses = torch_step(schedule, torchs, F.mse_loss, inputs, targets, group=group)
            loss = F.mse_loss(nn.Sequential(*whole)(inputs), targets)
            loss.backward()
            found[p, schedule.name] = {
                "ours": ([] if result.losses is None else result.losses.tolist(), gradients(ours)),
                "torch's": (losses, gradients(torchs)),
                "one process": (loss.item(), gradients(reference)),
            }
            if p == 2 and schedule.name == "torch 1F1B":  # planted: the loss is not divided by m
                torch_step(schedule, unscaled, F.mse_loss, inputs, targets, group=group, scale_grads=False)
                found["planted"] = {"torch's": ([], gradients(unscaled)), "ours": ([], gradients(ours))}
    return found


def test_every_order_gives_the_same_losses_and_gradients_in_both_runners():
    ranks = run_ranks(in_both_runners, max(SIZES), device="cpu", timeout=100).values
    for found in ranks[:2]:
        planted = found.pop("planted")
        torch.testing.assert_close(planted["torch's"][1], [gradient * 4 for gradient in planted["ours"][1]])
    for p in SIZES:
        for name in (schedule.name for schedule in make_schedules(p)):
            for rank in range(p):
                cases = ranks[rank].pop((p, name))
                for other in ("torch's", "one process"):
                    torch.testing.assert_close(cases["ours"][1], cases[other][1], msg=f"p={p}, {name}, {other}")
                torch.testing.assert_close(cases["ours"][0], cases["torch's"][0])
                if losses := cases["ours"][0]:
                    torch.testing.assert_close(sum(losses) / (2 * p), cases["one process"][0])

    assert not any(ranks)
