from dataclasses import replace

import pytest
import torch

from dtlearn.gradient_compression.codecs.qsgd import QSGD
from dtlearn.gradient_compression.codecs.sign import PackedSign
from dtlearn.gradient_compression.comparing import run as comparing
from dtlearn.gradient_compression.comparing.methods import METHODS, PERIOD, WARM_UP, hooked
from dtlearn.gradient_compression.comparing.run import MethodRun, compare, train_in_turns
from dtlearn.gradient_compression.comparing.tasks import digits_task
from dtlearn.gradient_compression.traffic import (
    all_reduced,
    compressed_all_reduce,
    gathered,
    payload_bytes,
    powersgd,
    sent_bytes,
)
from dtlearn.models import MLP, num_parameters, train_reference
from dtlearn.runtime.link.link import Link
from dtlearn.sharing.comm_hooks import allreduce_hook
from tests.devices import run_ranks

N, STEPS = 2, PERIOD + 1
NUMEL = num_parameters(MLP())
SHAPES = [tuple(p.shape) for p in MLP().parameters()]
PAIRS = gathered(8 * -(-NUMEL // 100))
SIGNS = gathered(PackedSign().nbytes(NUMEL))
FORMULAS = {  # of step 2, where the methods that begin differently have begun, and of the last one
    "no compression": (all_reduced(NUMEL),) * 2,
    "fp16": (all_reduced(NUMEL, 2),) * 2,
    "QSGD": (gathered(QSGD().nbytes(NUMEL)),) * 2,
    **dict.fromkeys(("random-k", "top-k", "top-k, no feedback"), (PAIRS, PAIRS)),
    **dict.fromkeys(("sign", "sign, no feedback"), (SIGNS, SIGNS)),
    "DGC": (gathered(8 * 5628), PAIRS),  # the ratio of the first stage is 0.01^(1/3)
    "PowerSGD": (powersgd(SHAPES, 2),) * 2,
    **dict.fromkeys(("local SGD", "DiLoCo", "streaming DiLoCo"), ([], [])),
    "post-local SGD": (all_reduced(NUMEL), []),
}


@pytest.fixture(scope="module")
def runs():
    return {run.name: run for run in compare(list(METHODS), "digits", STEPS, num_ranks=N)}


def with_a_variance():
    """How many elements had a gradient in the warm-up of 1-bit Adam: a pixel that is always white has none."""
    task = digits_task()
    run = train_reference(
        MLP, lambda p: torch.optim.AdamW(p, lr=task.adam_lr, eps=1e-4), task.batches(WARM_UP), task.loss
    )
    gradients = [torch.cat([g.flatten() for g in step.gradients.values()]) for step in run.steps]
    return int(torch.stack(gradients).any(0).sum())


def test_each_method_sends_what_its_formula_says(runs):
    onebit = all_reduced(NUMEL), compressed_all_reduce(with_a_variance(), N, PackedSign().nbytes)
    formulas = {**FORMULAS, "1-bit Adam": onebit}
    assert STEPS == WARM_UP + 1 and set(runs) == set(formulas) == set(METHODS)
    for name, (early, late) in formulas.items():
        assert (runs[name].payload[1], runs[name].payload[-1]) == (payload_bytes(early), payload_bytes(late)), name
        assert runs[name].sent[-1] == pytest.approx(sent_bytes(late, N)), name


def test_rare_averaging_sends_all_parameters_when_the_ranks_meet(runs):
    for name in ("local SGD", "DiLoCo"):
        assert runs[name].payload[PERIOD - 1] == 4 * NUMEL + 8  # with the look whether parameters differ
        assert sum(runs[name].payload) == runs[name].payload[PERIOD - 1]
    streaming = runs["streaming DiLoCo"].payload
    assert [step for step, nbytes in enumerate(streaming) if nbytes] == [PERIOD // 2 - 1, PERIOD - 1]
    assert sum(streaming) == 4 * NUMEL + 8


def test_without_compression_it_is_the_run_of_one_process(runs):
    task = digits_task()
    reference = train_reference(MLP, task.optimizer, task.batches(STEPS), task.loss)
    assert runs["no compression"].losses == pytest.approx(reference.losses, rel=1e-5)
    assert all(run.losses[0] == pytest.approx(reference.losses[0], rel=1e-5) for run in runs.values())


def test_only_seconds_differ_from_run_to_run(runs):
    again = compare(["random-k", "1-bit Adam"], "digits", STEPS, num_ranks=N)
    for run in again:
        assert replace(run, seconds=()) == replace(runs[run.name], seconds=())
        assert len(run.seconds) == STEPS and min(run.seconds) > 0


def test_a_method_and_a_link_of_ones_own():
    mine = hooked("mine", lambda: None, allreduce_hook)
    link = Link(0.0, 1e6)
    (run,) = compare([mine], digits_task(), 2, num_ranks=N, link=link)
    assert run.name == "mine" and run.label.endswith(link.label)
    assert min(run.seconds) >= 4 * NUMEL / 1e6  # 2 (N-1)/N b at 1 MB/s


def test_every_method_trains_the_gpt_too():
    found = {run.name: run for run in compare(list(METHODS), "GPT", STEPS, num_ranks=N)}
    assert set(found) == set(METHODS)
    for name, run in found.items():
        assert run.losses[0] == pytest.approx(found["no compression"].losses[0], rel=1e-5), name
        assert run.losses[-1] < run.losses[0] and run.held_out < run.losses[0], (name, run.losses, run.held_out)


def test_error_feedback_is_not_optional():
    task = replace(digits_task(), optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.5))
    ends = {run.name: sum(run.losses[-5:]) / 5 for run in compare(["top-k", "top-k, no feedback"], task, 30)}
    assert ends["top-k"] < 0.8 * ends["top-k, no feedback"]


def test_it_runs_on_the_device(device, runs):
    names = [name for name in METHODS if name not in ("QSGD", "random-k")]  # which draw other numbers there
    values = run_ranks(train_in_turns, N, [METHODS[name] for name in METHODS], "digits", 2, device=device).values
    for number, name in enumerate(METHODS):
        assert len({v[number][1] for v in values}) == 1, name  # all judge one model: where they differ, their average
        if name in names:
            mean = [sum(of_ranks) / N for of_ranks in zip(*(v[number][0] for v in values), strict=True)]
            assert mean == pytest.approx(runs[name].losses[:2], rel=1e-3), name


def test_places_on_the_axes():
    run = MethodRun("a", (3.0, 2.0, 1.0, 1.0), (4, 4, 4, 4), (2.0, 2.0, 0.0, 2.0), (0.5, 0.25, 0.25, 1.0), 1.0, "")
    assert run.sent_before == [0, 2, 4, 4] and run.seconds_before == [0, 0.5, 0.75, 1.0]
    assert (run.steps_to(2.0, window=1), run.steps_to(1.5, window=2), run.steps_to(1.0, window=2)) == (2, 3, 4)
    assert run.steps_to(0.5, window=1) is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((["magic"],), "expected a method of no compression, fp16"),
        ((["fp16"], "cats"), "expected a task of GPT, digits; got 'cats'"),
        (([],), "expected one method or more"),
        ((["fp16", "fp16"],), "each with a name of its own"),
        ((["fp16"], "GPT", 0), "expected a number of steps from 1, got 0"),
    ],
)
def test_bad_input(arguments, words):
    with pytest.raises(ValueError, match=words):
        compare(*arguments)


def test_a_batch_that_ranks_cannot_share():
    batch = next(digits_task().batches(1))
    with pytest.raises(ValueError, match="5 ranks cannot share a batch of 96 evenly"):
        comparing._share(batch, 0, 5)
