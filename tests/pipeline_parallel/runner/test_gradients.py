"""Copies of a parameter and copies of a model stay equal, and the sums are made once a step."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import dtlearn
from dtlearn.pipeline_parallel import Compute, make_schedule, split_gpt, tied_embedding
from dtlearn.pipeline_parallel.runner.gradients import TiedParameter
from dtlearn.pipeline_parallel.runner.runner import PipelineRunner
from dtlearn.runtime.recording.phases import phase
from tests.devices import run_ranks
from tests.pipeline_parallel.runner.pipelines import away_from_reference, pipeline
from tests.pipeline_parallel.runs import (
    MODELS,
    OPTIMIZERS,
    TIED_GPT,
    TOLERANCE,
    batches,
    distance,
    even,
    loss_of,
    message_of,
    reference,
    snapshot,
    stages_of,
)

SCHEDULE = make_schedule("1f1b", 2, 2)
TIED_CASES = ("1f1b", "zb_h1", "zbv", "interleaved")


class NotSummed(PipelineRunner):
    """Sabotage: each of the two ranks steps with its own part of the tied gradient."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._tied = None


def tied():
    """How far each schedule is from one process; one step over two; and with the sum left out."""
    found = {kind: away_from_reference(pipeline("tied", kind, 2, 4), "tied", 5) for kind in TIED_CASES}
    found["accumulated"] = accumulated()
    return found, away_from_reference(pipeline("tied", "1f1b", 2, 2, runner=NotSummed), "tied", 5)


def accumulated():
    """The same batch twice without `zero_grad` is twice the gradient."""
    runner = pipeline("tied", "1f1b", 2, 2)
    ((inputs, targets),) = batches("tied", 5, 1)
    runner.step(inputs, targets)
    runner.step(inputs, targets)
    for parameter in runner.parameters():
        parameter.grad /= 2
    mine = {name: value for name, value in snapshot(runner.modules.values()).items() if name.endswith(".grad")}
    _, tensors = reference("tied", "plain", 5, 1)[0]
    return distance(mine, tensors, tied_embedding(TIED_GPT, 2))


def begins_unequal():
    """The second copy takes the values of the first."""
    torch.manual_seed(dist.get_rank())
    stages = split_gpt(MODELS["tied"](), even(8, 2))
    runner = PipelineRunner(make_schedule("gpipe", 2, 1), stages, loss_of("tied"), tied=tied_embedding(TIED_GPT, 2))
    (copy,) = runner._tied.copies
    return copy.detach()


@pytest.fixture(scope="module")
def on_two():
    return run_ranks(lambda: (tied(), begins_unequal()), 2, device="cpu", record=True)


def test_tied_copies_are_the_model_of_one_process_on_another_device(other_device):
    def on_device():
        return {kind: away_from_reference(pipeline("tied", kind, 2, 4), "tied", 5) for kind in ("zbv",)}

    for found in run_ranks(on_device, 2, device=other_device):
        assert len(found) == 1 and max(found.values()) < TOLERANCE


@pytest.mark.every_device
def test_replicas_are_the_model_of_one_process_on_another_device(other_device):
    for one, tied, each_microbatch in run_ranks(replicas, 4, device=other_device):
        assert max(one, tied) < TOLERANCE < 1e-3 < each_microbatch


def test_tied_copies_are_the_model_of_one_process(on_two):
    for (found, _), _ in on_two:
        assert len(found) == len(TIED_CASES) + 1 and not {k: away for k, away in found.items() if not away < TOLERANCE}


def test_a_tied_gradient_that_is_not_summed_is_found(on_two):
    assert min(away for (_, away), _ in on_two) > 1e-3


def test_tied_copies_begin_equal(on_two):
    first, second = (copy for _, copy in on_two)
    assert torch.equal(first, second)


def on_one_rank(first=None, second=None):
    """Two stages of one process, with the weights tied."""
    modules = {0: first or nn.Linear(3, 3, bias=False), 1: second or nn.Linear(3, 3, bias=False)}
    return modules, TiedParameter(((0, "weight"), (1, "weight")), (0, 0), modules, 0, None)


def test_tied_copies_on_one_rank_begin_equal_and_get_the_sum():
    first = nn.Linear(3, 3, bias=False)
    before = first.weight.detach().clone()
    modules, tied = on_one_rank(first)
    assert modules[0].weight is not modules[1].weight
    assert torch.equal(modules[0].weight, before) and torch.equal(modules[1].weight, before)
    for count in (1, 2):
        with tied.summed():
            for factor, module in enumerate(modules.values(), 1):
                (factor * module.weight.sum()).backward()
        assert all(torch.equal(module.weight.grad, torch.full((3, 3), 3.0 * count)) for module in modules.values())


def test_a_parameter_that_is_in_both_stages_is_counted_once():
    layer = nn.Linear(3, 3, bias=False)
    _, tied = on_one_rank(layer, layer)
    with tied.summed():
        (layer.weight.sum() + layer.weight.sum()).backward()
    assert torch.equal(layer.weight.grad, torch.full((3, 3), 2.0))


def test_a_tied_parameter_may_be_replaced_and_frozen():
    modules, tied = on_one_rank()
    modules[1].weight = nn.Parameter(torch.ones(3, 3))
    with tied.summed():
        sum(module.weight.sum() for module in modules.values()).backward()
    assert torch.equal(modules[1].weight.grad, torch.full((3, 3), 2.0))
    for module in modules.values():
        module.weight.grad = None
        module.requires_grad_(False)
    with tied.summed():
        pass
    assert all(module.weight.grad is None for module in modules.values())


def test_after_an_error_the_tied_gradients_are_those_before():
    modules, tied = on_one_rank()
    modules[0].weight.grad = modules[1].weight.grad = torch.ones(3, 3)
    with pytest.raises(ValueError, match="half way"), tied.summed():
        modules[0].weight.sum().backward()
        raise ValueError("half way")
    assert all(torch.equal(module.weight.grad, torch.ones(3, 3)) for module in modules.values())


def unlike():
    """What ranks say whose copies differ in shape, and of which one is frozen."""
    rank = dist.get_rank()
    told = []
    for size, frozen in ((3 + rank, False), (3, rank == 1)):
        layer = nn.Linear(3, size, bias=False).requires_grad_(not frozen)
        options = {"tied": ((0, "weight"), (1, "weight"))}
        told.append(
            message_of(
                lambda layer=layer, options=options: PipelineRunner(SCHEDULE, {rank: layer}, F.mse_loss, **options)
            )
        )
    return told


def test_copies_that_cannot_be_one_parameter_are_refused_on_both_ranks():
    for shapes, frozen in run_ranks(unlike, 2, device="cpu").values:
        assert "a tied parameter is one in the whole model; its two copies are (" in shapes
        assert "(3, 3), torch.float32" in shapes and "(4, 3), torch.float32" in shapes
        assert "requires_grad=True" in frozen and "requires_grad=False" in frozen


@pytest.mark.parametrize(
    ("tied", "message"),
    [
        (((0, "weight"),), "tied names two of the 2 stages"),
        (((0, "weight"), (2, "weight")), "tied names two of the 2 stages"),
        (((0, "weight"), (1, "wait")), r"stage 1 has no parameter 'wait', which is said to be tied; it has \['weight'"),
    ],
)
def test_a_tie_to_nothing_is_refused(tied, message):
    modules = {number: nn.Linear(2, 2) for number in range(2)}
    with pytest.raises(ValueError, match=message):
        TiedParameter(tied, (0, 0), modules, 0, None)


# Two pipelines of two ranks: 0, 1 and 2, 3.

M, ROWS = 4, 6


class SyncsEachMicrobatch(PipelineRunner):
    """Sabotage: the gradients are averaged after each backward pass, those before once more."""

    def _play(self, steps, stages, transfers, batch):
        return super()._play(self.watched(steps), stages, transfers, batch)

    def watched(self, steps):
        for step in steps:
            yield step
            if isinstance(step, Compute) and step.action.op == "B":
                with phase("sabotage"):
                    for parameter in self.parameters():
                        dist.all_reduce(parameter.grad, group=self._replicas)


def replicas():
    """Each pipeline has every other row of the batch; gradients and losses are those of the whole batch."""
    rank = dist.get_rank()
    pipelines = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    options = {"group": pipelines[rank // 2], "data_parallel_group": groups[rank % 2]}
    found = []
    for name, kind, runner in (
        ("gpt", "1f1b", PipelineRunner),
        ("tied", "zbv", PipelineRunner),
        ("gpt", "1f1b", SyncsEachMicrobatch),
    ):
        torch.manual_seed(rank // 2)  # the second pipeline begins with other values, and takes the first one's
        schedule = make_schedule(kind, 2, M)
        stages = split_gpt(MODELS[name]().to(dtlearn.device()), even(8, schedule.num_stages))
        tied = stages_of(name, schedule.num_stages)[1]
        made = runner(schedule, stages, loss_of(name), tied=tied, **options)
        optimizer = OPTIMIZERS["plain"](made.parameters())
        away = 0.0
        for (inputs, targets), (_, tensors) in zip(
            batches(name, 2 * ROWS, 2), reference(name, "plain", 2 * ROWS, 2), strict=True
        ):
            optimizer.zero_grad()
            made.step(inputs[rank // 2 :: 2], targets[rank // 2 :: 2])
            optimizer.step()
            away = max(away, distance(snapshot(made.modules.values()), tensors, tied))
        found.append(away)
    return found


@pytest.fixture(scope="module")
def on_four():
    return run_ranks(replicas, 4, device="cpu", record=True)


def test_replicas_are_the_model_of_one_process(on_four):
    for one, tied, each_microbatch in on_four:
        assert max(one, tied) < TOLERANCE < 1e-3 < each_microbatch


def test_gradients_are_reduced_once_a_step(on_four):
    for rank in range(4):
        sums = list(on_four.record.select(rank=rank, op="all_reduce", phase=""))
        assert len(sums) == 3 * 2  # three runs of two steps
        assert {event.group for event in sums} == {f"{rank % 2},{rank % 2 + 2}"}
        stage = split_gpt(MODELS["gpt"](), even(8, 2))[rank % 2]
        assert sums[0].nbytes == sum(parameter.nbytes for parameter in stage.parameters())
