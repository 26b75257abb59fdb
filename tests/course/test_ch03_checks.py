"""What the checks of chapter 3 expect is what torch does."""

import functools

import pytest
import torch
import torch.distributed as dist

from dtlearn.checks.ch03_data_parallel import bug_hunt, plan_buckets
from dtlearn.course import load_course
from dtlearn.grading.judging.compare import difference
from dtlearn.grading.learner.exercise_files import find_check

COURSE = load_course()


def torch_plan(nbytes, dtypes, bucket_cap, first_bucket_cap):
    """By the function with which DDP plans its buckets anew after the first step, when it knows the order."""
    order = list(reversed(range(len(nbytes))))
    kinds = [getattr(torch, dtypes[i]) for i in order]
    tensors = [torch.empty(nbytes[i] // dtype.itemsize, dtype=dtype) for i, dtype in zip(order, kinds, strict=True)]
    caps = [first_bucket_cap, bucket_cap]
    plan, _ = dist._compute_bucket_assignment_by_size(tensors, caps, [False] * len(tensors), order)
    return plan


@pytest.mark.parametrize("seed", range(5))
def test_the_buckets_are_those_of_torch(seed):
    exercise = COURSE.exercise("ch03.plan_buckets")
    check = find_check(COURSE, exercise)
    for case in check.all_cases(1, seed):
        given = check.inputs(case)
        (plan,) = plan_buckets.expected(case, given)
        made = torch_plan(**given[0])
        # With several dtypes torch appends what is open at the end in no particular order.
        assert sorted(made) == sorted(plan), case.name
        assert made == plan or len(set(given[0]["dtypes"])) > 1, case.name
        ready = [bucket[-1] for bucket in plan]
        assert ready == sorted(ready, reverse=True)


@functools.cache
def hunted(world_size, seed):
    """The cases of the hunt: inputs and what is right, by name."""
    check = find_check(COURSE, COURSE.exercise("ch03.bug_hunt"))
    cases = [(case, check.inputs(case)) for case in check.all_cases(world_size, seed)]
    return {case.name: (case, given, bug_hunt.expected(case, given)) for case, given in cases}


@functools.cache
def mistaken(world_size, seed, name):
    """How the runs with mistakes end in one of them; two tests look at it."""
    case, given, _ = hunted(world_size, seed)[name]
    return bug_hunt.mistakes(case, given)


@pytest.mark.parametrize("world_size", [2, 3, 4])
@pytest.mark.parametrize("seed", range(4))
def test_each_bug_of_the_hunt_shows_in_its_case(world_size, seed):
    shows = {
        "the order of the samples": ("DTL-VALUE-EPOCH", "DTL-VALUE-SEED"),
        "long gradients": ("DTL-VALUE-CLIP", "DTL-VALUE-START"),
        "the validation loss": ("DTL-VALUE-OWN-LOSS",),
        "an early end": ("DTL-VALUE-EPOCH", "DTL-VALUE-SEED", "DTL-VALUE-CLIP", "DTL-VALUE-OWN-LOSS", "DTL-VALUE-STOP"),
    }
    for name, (_, _, right) in hunted(world_size, seed).items():
        for mistake in mistaken(world_size, seed, name):
            differ = any(difference(e, v, 1e-5, 1e-6) for e, v in zip(right, mistake.values, strict=True))
            single = "; and " not in mistake.text
            assert differ or not single or mistake.code not in shows[name], (name, mistake.text)
            assert not differ or not single or mistake.code != "DTL-VALUE-STOP" or name == "an early end"


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(4))
def test_training_in_the_hunt_ends_early_and_the_ranks_own_losses_would_end_it_elsewhere(world_size, seed):
    _, given, right = hunted(world_size, seed)["an early end"]
    losses, target = right[0]["losses"], given[0]["numbers"]["target"]
    assert len(losses) == 3 < given[0]["numbers"]["epochs"]
    assert losses[-1] < target <= min(losses[:-1])
    if world_size > 1:  # else a run that goes by each rank's own loss would not hang
        (ends,) = [m.values for m in mistaken(world_size, seed, "an early end") if "one rank's own loss" in m.text]
        assert len(ends[0]["losses"]) < len(losses)
