"""The same losses for every number of ranks, both wrappers, and micro-batches; others if something is missing."""

import pytest
import torch

from dtlearn.train import Options, train
from tests.devices import run_ranks

STEPS = 16  # more than an epoch of either task
TOLERANCE = 1e-5  # float32 sums in another order; measured 5e-7 after 40 steps


def first_steps(task="digits", **options):
    return Options(task=task, max_steps=STEPS, clip=0.5, **options)


@pytest.fixture(scope="module")
def one_rank():
    """The run of one rank, by task."""
    return {task: run_ranks(train, 1, first_steps(task), device="cpu")[0] for task in ("digits", "text")}


def distance(losses, others):
    return max(abs(a - b) for a, b in zip(losses, others, strict=True))


@pytest.mark.parametrize(("task", "world_size"), [("digits", 2), ("digits", 3), ("digits", 4), ("text", 3)])
def test_every_world_size_has_the_losses_of_one_rank(task, world_size, one_rank):
    results = run_ranks(train, world_size, first_steps(task), device="cpu").values
    assert [(r.rank, r.world_size) for r in results] == [(rank, world_size) for rank in range(world_size)]
    assert distance(results[0].losses, one_rank[task].losses) < TOLERANCE
    assert results[0].accuracy == pytest.approx(one_rank[task].accuracy, abs=0.006)  # at most two samples tip over
    for name in ("losses", "digest", "accuracy", "macro_f1"):
        assert len({str(getattr(result, name)) for result in results}) == 1, name


@pytest.mark.parametrize("task", ["digits", "text"])
def test_on_another_device_it_has_the_losses_of_one_rank(task, one_rank, other_device):
    options = first_steps(task, accumulate=2)
    first, second = run_ranks(train, 2, options, device=other_device)
    assert distance(first.losses, one_rank[task].losses) < TOLERANCE and first.digest == second.digest


def test_without_a_group_it_is_the_same_run(one_rank):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as ranks have
    try:
        assert train(first_steps("text")).losses == one_rank["text"].losses
    finally:
        torch.set_num_threads(threads)


def test_ours_is_torchs_bit_by_bit_on_two_ranks():
    """On more ranks torch's other order of buckets may sum in another order."""
    ours, torchs = (
        run_ranks(train, 2, first_steps("text", ddp=ddp, accumulate=2), device="cpu")[0] for ddp in ("ours", "torch")
    )
    assert (ours.losses, ours.digest) == (torchs.losses, torchs.digest)


def test_micro_batches_change_nothing_and_communicate_once(one_rank):
    runs = [run_ranks(train, 2, first_steps(accumulate=n), device="cpu", record=True) for n in (1, 3)]
    assert distance(runs[1][0].losses, one_rank["digits"].losses) < TOLERANCE
    sent = [run.record.nbytes(rank=0, op="all_reduce") for run in runs]
    assert sent[0] == sent[1] > STEPS * 4 * 26_122


def without_wrapper():
    from dtlearn.train import loop

    loop.wrap = lambda model, settings: model
    return train(first_steps())


def test_without_averaging_the_parity_fails(one_rank):
    assert distance(run_ranks(without_wrapper, 2, device="cpu")[0].losses, one_rank["digits"].losses) > 0.01


def test_text_is_learnt():
    result = run_ranks(train, 2, Options(task="text"), device="cpu")[0]
    assert result.step == 144 and result.stopped_by == 0
    assert result.baseline < 0.3 and result.accuracy > 0.75 and result.macro_f1 > 0.75
