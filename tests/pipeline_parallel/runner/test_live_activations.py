"""What ranks keep while a schedule runs, by the ledger, is what the schedule's formula says."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from dtlearn.memory.ledger.storage_ledger import StorageLedger
from dtlearn.pipeline_parallel import SCHEDULES, Compute, make_schedule, simulate
from dtlearn.pipeline_parallel.checking.theory import peak_live
from dtlearn.pipeline_parallel.runner.runner import PipelineRunner
from dtlearn.pipeline_parallel.runner.stage import PipelineStage
from dtlearn.runtime.run import run_ranks
from tests.data_parallel.runs import settled

P, ROWS, WIDTH = 4, 2, 32
CASES = [("gpipe", 3), ("1f1b", 3), *((kind, 8) for kind in SCHEDULES if kind != "naive")]


def link():
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH)).double()


def mean_loss(outputs, targets):
    return (outputs - targets).square().mean()


class Measured(PipelineRunner):
    """Compares the ledger with what is live and what travels, after each action and when all has arrived."""

    def measure(self, inputs, targets):
        """What differs from the bytes that the live micro-batches should take, and the most of them at once."""
        self.step(inputs, targets)  # from now on the gradients are there, and shapes are known
        self.of_one = {stage: self.bytes_of_one(stage) for stage in self.modules}
        self.wrong, self.most = [], 0
        with StorageLedger() as self.ledger:
            self.step(inputs, targets)
        return self.wrong, self.most

    def bytes_of_one(self, stage):
        """The bytes that one micro-batch keeps after F, and after I."""
        alone = PipelineStage(
            self.modules[stage],
            loss_fn=mean_loss if stage == self._last else None,
            is_first=stage == 0,
            splits_backward=self.schedule.splits_backward,
        )
        gradients = [parameter.grad.clone() for parameter in self.modules[stage].parameters()]
        x = torch.ones(ROWS, WIDTH, dtype=torch.float64)
        with StorageLedger() as ledger:
            outputs = alone.forward(0, x if stage == 0 else x.clone(), *[x] * (stage == self._last))
            gradient, outputs = torch.ones_like(outputs), None
            found = [ledger.now - gradient.nbytes]
            alone.backward_inputs(0, gradient)
            del gradient  # linear layers keep it, the loss does not
            found.append(ledger.now)
        for parameter, before in zip(self.modules[stage].parameters(), gradients, strict=True):
            parameter.grad = before
        return found

    def _play(self, steps, stages, transfers, batch):
        return super()._play(self.watched(steps), stages, transfers, batch)

    def watched(self, steps):
        losses = 0  # of 8 bytes each: what the last stage has made so far
        for step in steps:
            yield step
            if isinstance(step, Compute) and hasattr(self, "ledger"):
                losses += step.action.stage == self._last and step.action.op == "F"
                self.look(step.action, losses)

    def look(self, action, losses):
        travelling = {t.data_ptr(): t.nbytes for t in self._transfers._tensors.values()}
        travelling |= {t.data_ptr(): t.nbytes for _, t in self._transfers._leaving}
        expected = sum(travelling.values()) + 8 * losses
        live = 0
        for number, stage in self._stages.items():
            for saved in stage.live.values():
                live += 1
                expected += self.of_one[number][bool(saved.work)]
        self.most = max(self.most, live)
        if not self.wrong and settled(self.ledger, expected) != expected:
            self.wrong.append((str(action), self.ledger.now, expected))


def measured(schedule, runner=Measured):
    stages = [link() for _ in range(schedule.num_stages)]
    x = torch.ones(ROWS * schedule.num_microbatches, WIDTH, dtype=torch.float64)
    return runner(schedule, stages, mean_loss).measure(x, x)


class NeverFreed(Measured):
    """Sabotage: a graph is kept after its backward pass."""

    def watched(self, steps):
        kept = []
        for step in super().watched(steps):
            if isinstance(step, Compute) and step.action.op == "B":
                kept.append(self._stages[step.action.stage].live[step.action.microbatch].inputs)
            yield step


def one_more_warm_up(m):
    """1F1B in which every rank takes in a micro-batch too many before its first backward pass."""
    right, longer = make_schedule("1f1b", P, m), make_schedule("1f1b", P + 1, m)
    return replace(right, orders=longer.orders[:P])


def on_a_rank():
    found = {(kind, m): measured(make_schedule(kind, P, m)) for kind, m in CASES}
    return found, measured(one_more_warm_up(8))[1], len(measured(make_schedule("1f1b", P, 3), NeverFreed)[0])


@pytest.fixture(scope="module")
def on_four():
    return run_ranks(on_a_rank, P, device="cpu", timeout=120).values


@pytest.mark.slow
def test_ranks_keep_what_the_formula_says(on_four):
    for rank, (found, _, _) in enumerate(on_four):
        for (kind, m), (wrong, most) in found.items():
            assert not wrong, (kind, m, wrong)
            bound = peak_live(kind, P, m)[rank]
            exact = simulate(make_schedule(kind, P, m)).peak_live[rank]  # of the V schedules there is a bound only
            assert most == exact <= bound and (most == bound or kind in ("v_half", "v_min")), (kind, m, rank)
    assert [found["gpipe", 8][1] for found, _, _ in on_four] == [8, 8, 8, 8]
    assert [found["1f1b", 8][1] for found, _, _ in on_four] == [4, 3, 2, 1]


def test_a_warm_up_that_is_too_long_is_found(on_four):
    assert [most for _, most, _ in on_four] == [5, 4, 3, 2]


def test_activations_that_are_never_freed_are_found(on_four):
    for rank, (_, _, wrong) in enumerate(on_four):
        assert (wrong > 0) == (rank > 0)  # the first stage keeps a part of the batch, which was there before
