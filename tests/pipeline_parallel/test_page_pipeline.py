"""The page is PipelineRunner, to the last bit, and one process; it sends what it says, and keeps what schedules say."""

import inspect
import weakref

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dtlearn.pipeline_parallel import gpipe, make_schedule, one_f_one_b, page_pipeline
from dtlearn.pipeline_parallel.checking.theory import peak_live
from dtlearn.pipeline_parallel.runner.runner import PipelineRunner
from dtlearn.runtime.record.training_steps import part
from dtlearn.runtime.recording.phases import phase
from tests.devices import run_ranks
from tests.pipeline_parallel.runs import (
    OPTIMIZERS,
    SMALL_GPT,
    TOLERANCE,
    WIDTH,
    batches,
    distance,
    first_ranks,
    loss_of,
    reference,
    snapshot,
    stages_of,
)


def plain_tuples(rank, num_ranks, num_microbatches):
    """1F1B as an answer to the exercise yields it."""
    return ((stage, str(op), k) for stage, op, k in one_f_one_b(rank, num_ranks, num_microbatches))


GENERATORS = {"gpipe": gpipe, "1f1b": plain_tuples}
SIZES = [(2, 4), (4, 8), (4, 2), (1, 2), (3, 5)]
CASES = [
    (name, kind, p, m, optimizer)
    for kind in GENERATORS
    for p, m in SIZES
    for name, optimizer in (("sequential", "plain"), ("gpt", "adamw"))
]
STEPS, ROWS = 3, 2  # rows of a micro-batch
SHAPES = {"sequential": (ROWS, WIDTH), "gpt": (ROWS, 5, SMALL_GPT.hidden_size)}
MESSAGE_BYTES = {name: 8 * torch.Size(shape).numel() for name, shape in SHAPES.items()}
STEPPERS = {**OPTIMIZERS, "adamw": lambda p: torch.optim.AdamW(p, lr=0.01)}

# Sabotage: edits of the page.
EDITS = {
    "no division by m": {" / len(targets)": ""},
    "no gradient is sent": {
        "y.backward(receive(rank + 1) if rank < last else None)": "y.sum().backward()",
        "send(x.grad, rank - 1)": "pass",
    },
}


def edited(edits):
    """The page's function with some of its text replaced."""
    source = inspect.getsource(page_pipeline)
    for old, new in edits.items():
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    names = {}
    exec(source, names)
    return names["run_schedule"]


def page_steps(name, kind, p, m, optimizer, group, run=page_pipeline.run_schedule):
    """After each step what this rank has, gradients and parameters, and its loss."""
    rank = dist.get_rank(group)
    stage = stages_of(name, p)[0][rank]
    stepper = STEPPERS[optimizer](stage.parameters())
    for inputs, targets in batches(name, ROWS * m, STEPS):
        stepper.zero_grad()
        actions = GENERATORS[kind](rank, p, m)
        losses = run(
            actions, stage, inputs.chunk(m), targets.chunk(m), loss_of(name), SHAPES[name], groups=(group, group)
        )
        stepper.step()
        yield snapshot([stage]), sum(losses)


def runner_steps(name, kind, p, m, optimizer, group):
    """The same by the real runner."""
    runner = PipelineRunner(make_schedule(kind, p, m), stages_of(name, p)[0], loss_of(name), group=group)
    stepper = STEPPERS[optimizer](runner.parameters())
    for inputs, targets in batches(name, ROWS * m, STEPS):
        stepper.zero_grad()
        loss = runner.step(inputs, targets).loss
        stepper.step()
        yield snapshot(runner.modules.values()), loss


def equals_runner(case, group):
    """Whether all tensors are the runner's, bit by bit; and the largest difference of the losses."""
    equal, apart = True, 0.0
    for (mine, loss), (theirs, expected) in zip(page_steps(*case, group), runner_steps(*case, group), strict=True):
        equal &= mine.keys() == theirs.keys() and all(torch.equal(mine[key], theirs[key]) for key in mine)
        apart = max(apart, 0.0 if expected is None else abs(loss - expected).item())
    return equal, apart


def away_from_one_process(name, kind, p, m, group, **options):
    """The largest difference to the run of one process."""
    whole = reference(name, "plain", ROWS * m, STEPS)
    steps = page_steps(name, kind, p, m, "plain", group, **options)
    return max(distance(mine, tensors) for (mine, _), (_, tensors) in zip(steps, whole, strict=True))


class Kept(torch.autograd.Function):
    """The identity, which keeps an object in the graph: a node, while autograd keeps it."""

    @staticmethod
    def forward(ctx, y, alive):
        ctx.kept = nn.Identity()
        alive.add(ctx.kept)
        return y.view_as(y)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class Counted(nn.Module):
    """Counts the micro-batches whose graphs are there."""

    def __init__(self, stage):
        super().__init__()
        self.stage, self.alive, self.most = stage, weakref.WeakSet(), 0

    def forward(self, x):
        return Kept.apply(self.stage(x), self.alive)

    def watch(self, actions):
        for action in actions:
            yield action
            self.most = max(self.most, len(self.alive))


def one_step(num_groups):
    rank, groups = dist.get_rank(), [dist.new_group() for _ in range(num_groups)]
    ((inputs, targets),) = batches("sequential", ROWS * 8, 1)
    actions, stage = GENERATORS["1f1b"](rank, 4, 8), stages_of("sequential", 4)[0][rank]
    data = inputs.chunk(8), targets.chunk(8), loss_of("sequential"), SHAPES["sequential"]
    page_pipeline.run_schedule(actions, stage, *data, groups=(groups[0], groups[-1]))


def test_nccl_needs_a_group_for_each_direction():
    assert "batch_isend_irecv" in run_ranks(one_step, 4, 1).advice[0]
    assert run_ranks(one_step, 4, 2).advice == ()


def most_live(kind, p, m):
    """The most micro-batches that this rank keeps at once."""
    rank = dist.get_rank()
    stage = Counted(stages_of("sequential", p)[0][rank])
    ((inputs, targets),) = batches("sequential", ROWS * m, 1)
    actions = stage.watch(GENERATORS[kind](rank, p, m))
    page_pipeline.run_schedule(
        actions, stage, inputs.chunk(m), targets.chunk(m), loss_of("sequential"), SHAPES["sequential"]
    )
    return stage.most


def on_a_rank():
    torch.manual_seed(dist.get_rank())
    groups, rank = {p: first_ranks(p) for p in range(1, 5)}, dist.get_rank()
    equal = {case: equals_runner(case, groups[case[2]]) for case in CASES if rank < case[2]}
    away = {
        (name, kind, p, m): away_from_one_process(name, kind, p, m, groups[p])
        for name in SHAPES
        for kind in GENERATORS
        for p, m in SIZES
        if rank < p
    }
    broken = {
        words: away_from_one_process("sequential", "1f1b", 4, 8, None, run=edited(edits))
        for words, edits in EDITS.items()
    }
    live = {(kind, m): most_live(kind, 4, m) for kind in GENERATORS for m in (2, 8)}
    with phase("sent"):
        list(page_steps("gpt", "1f1b", 4, 8, "plain", None))
    return equal, away, broken, live


@pytest.fixture(scope="module")
def on_four():
    return run_ranks(on_a_rank, 4, device="cpu", record=True, timeout=120)


def test_it_is_the_runner_to_the_last_bit(on_four):
    for rank, (found, *_) in enumerate(on_four):
        assert len(found) == sum(rank < case[2] for case in CASES)
        assert all(equal and apart < TOLERANCE for equal, apart in found.values()), found


def test_so_it_is_on_another_device(other_device):
    cases = [case for case in CASES if case[1:4] == ("1f1b", 2, 4)]

    def on_device():
        return [equals_runner(case, None) for case in cases]

    for found in run_ranks(on_device, 2, device=other_device):
        assert len(found) == 2 and all(equal and apart < TOLERANCE for equal, apart in found), found


def test_it_is_one_process(on_four):
    for _, away, *_ in on_four:
        assert max(away.values()) < TOLERANCE, away


@pytest.mark.parametrize("words", EDITS)
def test_what_would_break_it_is_found(on_four, words):
    assert max(broken[words] for _, _, broken, _ in on_four) > 1e-3


def test_messages_and_bytes_are_the_formula(on_four):
    record = part(on_four.record, "sent")
    for rank in range(4):
        sent = [(event.peer, event.nbytes) for event in record.select(rank=rank) if event.sends]
        peers = [peer for peer in (rank - 1, rank + 1) if 0 <= peer < 4]
        one = MESSAGE_BYTES["gpt"]
        assert sorted(sent) == sorted((peer, one) for peer in peers for _ in range(8 * STEPS))
    assert {event.op for event in record} == {"isend", "recv"}


def test_it_keeps_what_the_schedule_says(on_four):
    for rank, (*_, live) in enumerate(on_four):
        assert live == {(kind, m): peak_live(kind, 4, m)[rank] for kind in GENERATORS for m in (2, 8)}
