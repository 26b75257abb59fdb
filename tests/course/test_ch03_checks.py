"""What the checks of chapter 3 expect is what torch does."""

import pytest
import torch
import torch.distributed as dist

from dtlearn.course import load_course
from dtlearn.grading.locate import find_check

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
        (plan,) = check.expected(case, given)
        made = torch_plan(**given[0])
        # With several dtypes torch appends what is open at the end in no particular order.
        assert sorted(made) == sorted(plan), case.name
        assert made == plan or len(set(given[0]["dtypes"])) > 1, case.name
        ready = [bucket[-1] for bucket in plan]
        assert ready == sorted(ready, reverse=True)
