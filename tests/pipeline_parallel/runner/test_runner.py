"""Every schedule is the run of one process, with all options; what would break it is found."""

import copy
import os
import pickle
import signal
from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import dtlearn
from dtlearn.pipeline_parallel import SCHEDULES, Compute, make_schedule
from dtlearn.pipeline_parallel.runner.runner import PipelineRunner
from dtlearn.runtime.errors import RankError
from tests.devices import run_ranks
from tests.pipeline_parallel.runner.pipelines import away_from_reference, groups_of_first, pipeline
from tests.pipeline_parallel.runs import (
    CLASSES,
    MODELS,
    TOLERANCE,
    batches,
    distance,
    loss_of,
    message_of,
    snapshot,
    stages_of,
)


def exists(kind, p, m):
    return SCHEDULES[kind].shape != "loop" or m % p == 0


# By number of ranks, numbers of micro-batches: all with 2 ranks; with 3 and 4 some that are smaller than it, multiples,
# which loops need, and others. All other orders are validated in tests/pipeline_parallel/schedules/test_make.py.
MICROBATCHES = {1: (1, 3), 2: range(1, 9), 3: (1, 2, 3, 5, 6), 4: (1, 3, 4, 7, 8)}
GRID = [(kind, p, m) for kind in SCHEDULES for p, ms in MICROBATCHES.items() for m in ms if exists(kind, p, m)]
WHOLE_GRID = [(kind, p, m) for kind in SCHEDULES for p in range(1, 5) for m in range(1, 9) if exists(kind, p, m)]


def rows_of(m):
    """A number of rows that odd numbers of micro-batches do not divide."""
    return 2 * m + (m % 2 and m > 1)


def grid(cases, two_steps):
    """How far each schedule that this rank takes part in is from one process.

    Two steps are run for the numbers of micro-batches named; the first also sends shapes.
    """
    groups, found = groups_of_first([1, 2, 3, 4]), {}
    for kind, p, m in cases:
        if dist.get_rank() < p:
            runner = pipeline("sequential", kind, p, m, groups[p])
            steps = 2 if m in two_steps else 1
            found[kind, p, m] = away_from_reference(runner, "sequential", rows_of(m), steps=steps)
    return found


# Models and options beside the plain ones of the grid: model, schedule, m, options.
CASES = [
    ("gpt", "1f1b", 4, {}),
    ("gpt", "zbv", 3, {}),
    ("frozen", "gpipe", 4, {}),
    ("frozen", "zb_h1", 4, {}),
    ("frozen", "1f1b", 3, {"recompute": True}),
    ("gpt", "interleaved", 4, {"recompute": True}),
    ("gpt", "zb_h1", 4, {"recompute": True}),
]


def cases(of=CASES):
    return {
        (name, kind, str(options)): away_from_reference(pipeline(name, kind, 2, m, **options), name, 5, "adam")
        for name, kind, m, options in of
    }


def dropout_is_drawn_once():
    """Whether the gradients with recomputation are those without it: the second pass drops the same activations."""
    found = []
    for recompute in (False, True):
        torch.manual_seed(0)
        stages = [
            nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.Linear(6, CLASSES if last else 6)) for last in (0, 1)
        ]
        stages = [stage.to(dtlearn.device()) for stage in stages]
        runner = PipelineRunner(make_schedule("1f1b", 2, 4), stages, loss_of("sequential"), recompute=recompute)
        ((inputs, targets),) = batches("sequential", 8, 1)
        torch.manual_seed(5)
        runner.step(inputs.float(), targets)
        found.append(torch.cat([parameter.grad.flatten() for parameter in runner.parameters()]))
    return torch.equal(*found) and bool(found[0].abs().sum() > 0)


def ignores():
    """The distance to one process with padding, by torch's loss and one of our own, and with weights of classes."""
    ((inputs, targets),) = batches("sequential", 8, 1)
    targets[[0, 1, 4, 6]] = -100
    weight = torch.rand(CLASSES, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    cases = {
        "torch's": (F.cross_entropy, {}),
        "own": (own_loss, {"num_terms": lambda targets: int((targets != -100).sum())}),
        "weighted": (nn.CrossEntropyLoss(weight, label_smoothing=0.1), {"recompute": True}),
    }
    found = {}
    for name, (loss_fn, options) in cases.items():
        stages, _ = stages_of("sequential", 2)
        runner = PipelineRunner(make_schedule("zb_h1", 2, 3), stages, loss_fn, **options)
        loss = runner.step(inputs, targets).loss
        torch.manual_seed(0)
        whole = MODELS["sequential"]()
        expected = loss_fn(whole(inputs), targets)
        expected.backward()
        evaluated = runner.evaluate(inputs, targets)
        losses = [] if loss is None else [abs(loss - expected).item(), abs(evaluated - expected).item()]
        found[name] = max(distance(snapshot(runner.modules.values()), snapshot([whole])), *losses, 0.0)
    return found


def own_loss(outputs, targets):
    return F.cross_entropy(outputs, targets)


class FailsOnce(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 1:
            raise ValueError("a bad batch")
        return x


def after_an_error():
    """The messages of a runner after an error: first of one alone, with no messages under way, then of one of two."""
    ((inputs, targets),) = batches("sequential", 4, 1)
    stages = [nn.Sequential(FailsOnce(), stage) for stage in stages_of("sequential", 2)[0]]
    attempts = []
    if dist.get_rank() == 0:
        alone = dist.new_group([0], use_local_synchronization=True)
        schedule = make_schedule("1f1b", 1, 2)
        only = PipelineRunner(
            schedule, [nn.Sequential(FailsOnce(), *stages_of("sequential", 1)[0])], own_loss, group=alone
        )
        attempts += [message_of(lambda: only.step(inputs, targets)) for _ in range(2)]
    runner = PipelineRunner(make_schedule("1f1b", 2, 2), stages, own_loss)
    if dist.get_rank() == 0:
        attempts += [message_of(partial(act, inputs, targets)) for act in (runner.step, runner.step, runner.evaluate)]
    return attempts


def copies():
    """How far a copy of a runner, and one of its stages, are from it; and whether they leave its gradients alone."""
    ((inputs, targets),) = batches("sequential", 8, 1)
    stages, _ = stages_of("sequential", 2)
    one = PipelineRunner(make_schedule("zb_h1", 2, 4), stages, own_loss)
    one.step(inputs, targets)
    gradients = [parameter.grad.clone() for parameter in one.parameters()]
    best, twin = copy.deepcopy(one.modules), pickle.loads(pickle.dumps(one))
    apart = []
    for runner in (PipelineRunner(make_schedule("1f1b", 2, 2), best, own_loss), twin):
        for parameter in runner.parameters():
            parameter.grad = None
        runner.step(inputs, targets)
        apart += [(p.grad - g).abs().max().item() for p, g in zip(runner.parameters(), gradients, strict=True)]
    untouched = all(torch.equal(p.grad, g) for p, g in zip(one.parameters(), gradients, strict=True))
    return max(apart), untouched


def evaluation():
    """Losses and outputs of batches of several sizes, between steps, and the modes of the modules."""
    runner, found = pipeline("gpt", "1f1b", 2, 3), []
    (inputs, targets), other = batches("gpt", 7, 2)
    part = next(iter(runner.modules.values())).train()
    for x, y in ((inputs, targets), (inputs[:3], targets[:3]), other):
        found.append((runner.evaluate(x, y), runner.predict(x)))
        runner.step(inputs, targets)
    return found, part.training, not any(stage.live for stage in runner._stages.values())


# Sabotage: what the parity test is to find.


class NotDivided(PipelineRunner):
    """The loss of a micro-batch counts as if it were that of the batch."""

    def _play(self, steps, stages, transfers, batch):
        return super()._play(steps, stages, transfers, replace(batch, shares=(1.0,) * len(batch.shares)))


class EqualShares(PipelineRunner):
    """Each micro-batch counts 1/m, though one has more rows."""

    def _play(self, steps, stages, transfers, batch):
        m = self.schedule.num_microbatches
        return super()._play(steps, stages, transfers, replace(batch, shares=(1 / m,) * len(batch.shares)))


class WrongTargets(PipelineRunner):
    """Each row has the target of the row before."""

    def _play(self, steps, stages, transfers, batch):
        return super()._play(
            steps, stages, transfers, replace(batch, targets=tuple(targets.roll(1, 0) for targets in batch.targets))
        )


class ForgetsWeights(PipelineRunner):
    """W is left out."""

    def _play(self, steps, stages, transfers, batch):
        steps = [step for step in steps if not (isinstance(step, Compute) and step.action.op == "W")]
        return super()._play(steps, stages, transfers, batch)


SABOTAGE = {"1f1b": (NotDivided, EqualShares, WrongTargets), "zb_h1": (ForgetsWeights,)}


def sabotaged():
    return {
        runner.__name__: away_from_reference(pipeline("sequential", kind, 2, 3, runner=runner), "sequential", 7)
        for kind, runners in SABOTAGE.items()
        for runner in runners
    }


@pytest.fixture(scope="module")
def on_four():
    return run_ranks(lambda: grid(GRID, (3, 4, 8)), 4, device="cpu", timeout=240).values


@pytest.fixture(scope="module")
def on_two():
    return run_ranks(
        lambda: (cases(), dropout_is_drawn_once(), evaluation(), sabotaged(), ignores(), copies(), after_an_error()),
        2,
        device="cpu",
    ).values


def too_far(found):
    return {case: away for case, away in found.items() if not away < TOLERANCE}


def test_every_schedule_is_the_run_of_one_process(on_four):
    for rank, found in enumerate(on_four):
        assert len(found) == sum(p > rank for _, p, _ in GRID) and not too_far(found)


@pytest.mark.whole_grid
def test_every_schedule_over_all_ranks_and_micro_batches_is_the_run_of_one_process():
    of_ranks = run_ranks(lambda: grid(WHOLE_GRID, range(1, 9)), 4, device="cpu", timeout=110).values
    for rank, found in enumerate(of_ranks):
        assert len(found) == sum(p > rank for _, p, _ in WHOLE_GRID) and not too_far(found)


# Schedules that cut and send in different ways, and options, on devices: with recomputation the random state is the
# device's.
ON_DEVICES = [("gpt", "1f1b", 4, {}), ("frozen", "zb_h1", 4, {}), ("gpt", "interleaved", 4, {"recompute": True})]


def test_so_it_is_on_another_device(other_device):
    for found, is_equal in run_ranks(lambda: (cases(ON_DEVICES), dropout_is_drawn_once()), 2, device=other_device):
        assert len(found) == 3 and not too_far(found) and is_equal


def test_so_it_is_with_other_models_and_options(on_two):
    for found, is_equal, *_ in on_two:
        assert len(found) == len(CASES) and not too_far(found) and is_equal


def test_what_would_break_it_is_found(on_two):
    for *_, found, _, _, _ in on_two:
        assert len(found) == 4 and min(found.values()) > 1e-4, found


def test_evaluation_is_that_of_the_model(on_two):
    (_, _, (on_first, *_), *_), (_, _, (on_last, training, nothing_kept), *_) = on_two
    assert training and nothing_kept and on_first == [(None, None)] * 3
    torch.manual_seed(0)
    model = MODELS["gpt"]()
    (inputs, targets), other = batches("gpt", 7, 2)
    with torch.no_grad():
        for (x, y), (loss, outputs) in zip(((inputs, targets), (inputs[:3], targets[:3]), other), on_last, strict=True):
            assert torch.allclose(outputs, model(x), rtol=0, atol=TOLERANCE)
            assert abs(loss - loss_of("gpt")(model(x), y)) < TOLERANCE


def test_micro_batches_count_by_the_terms_of_their_loss(on_two):
    for *_, found, _, _ in on_two:
        assert len(found) == 3 and not too_far(found)


def test_runners_may_share_stages_and_be_copied(on_two):
    for *_, (apart, untouched), _ in on_two:
        assert apart < TOLERANCE and untouched


def test_after_an_error_there_is_no_step_that_could_take_old_messages(on_two):
    (*_, (alone, again, failed, *later)), (*_, nothing) = on_two
    assert "a bad batch" in alone and again == "" and "a bad batch" in failed and nothing == []
    assert len(later) == 2 and all(
        "an earlier step ended in an error, and messages of it may" in text for text in later
    )


class Killed(nn.Module):
    """Its rank is killed at its third micro-batch."""

    def __init__(self, stage):
        super().__init__()
        self.stage, self.calls = stage, 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.stage(x)


def with_a_kill():
    schedule = make_schedule("1f1b", 2, 4)
    stages, _ = stages_of("sequential", 2)
    stages[1] = Killed(stages[1])
    ((inputs, targets),) = batches("sequential", 8, 1)
    PipelineRunner(schedule, stages, loss_of("sequential")).step(inputs, targets)


def test_a_rank_that_is_killed_is_named_with_the_action_that_others_wait_for():
    with pytest.raises(RankError) as error:
        run_ranks(with_a_kill, 2, device="cpu")
    message = str(error.value)
    assert "rank 1 was killed by signal 9" in message
    # Where rank 0 hears of it first: posting a message, or waiting for one.
    posting = "rank 0 of the pipeline was in an exchange, in which it sends to rank 1 what 1F"
    waiting = "rank 0 of the pipeline was in action 0B"
    assert posting in message or waiting in message, message


def test_the_parameters_are_those_of_this_ranks_stages():
    def numbers():
        runner = pipeline("sequential", "zbv", 2, 1)
        names = [name for module in runner.modules.values() for name, _ in module.named_parameters()]
        return list(runner.modules), len(runner.parameters()), names[:1]

    assert run_ranks(numbers, 2, device="cpu").values == [([0, 3], 8, ["0.0.weight"]), ([1, 2], 8, ["2.0.weight"])]


def passes_of_stages():
    """How often each stage of this rank computes its activations, if stages 1 and 2 of four recompute."""
    schedule, calls = make_schedule("interleaved", 2, 4), {}
    stages, _ = stages_of("sequential", 4)
    for number, stage in enumerate(stages):
        stage.register_forward_hook(lambda *_, number=number: calls.update({number: calls.get(number, 0) + 1}))
    runner = PipelineRunner(schedule, stages, loss_of("sequential"), recompute={1, 2})
    return calls, away_from_reference(runner, "sequential", 7, steps=1)


def test_only_the_stages_named_recompute():
    (first, away), (second, other) = run_ranks(passes_of_stages, 2, device="cpu").values
    assert first | second == {0: 4, 1: 8, 2: 8, 3: 4} and max(away, other) < TOLERANCE
