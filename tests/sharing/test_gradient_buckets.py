"""The plan: torch's own for any sizes; each fault of a plan is named."""

import random
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist

from dtlearn.sharing.gradient_buckets import MIB, Bucket, describe, plan_buckets, validate_buckets

DTYPES = [torch.float32, torch.float64, torch.float16]


def random_sizes(rng, num_dtypes):
    numel = [rng.choice([1, 3, 10, 40, 200]) for _ in range(rng.randint(1, 40))]
    return [torch.empty(n, dtype=rng.choice(DTYPES[:num_dtypes])) for n in numel]


@pytest.mark.parametrize("num_dtypes", [1, 3])
def test_the_plan_is_that_of_torch(num_dtypes):
    rng = random.Random(5)
    for _ in range(300):
        tensors = random_sizes(rng, num_dtypes)
        nbytes, kinds = [t.nbytes for t in tensors], [t.dtype for t in tensors]
        first, cap = rng.randint(1, 900), rng.randint(1, 2000)
        buckets = plan_buckets(nbytes, cap=cap, first_cap=first, kinds=kinds)
        validate_buckets(buckets, nbytes, kinds)
        last = len(tensors) - 1
        theirs, _ = dist._compute_bucket_assignment_by_size(tensors[::-1], [first, cap])
        theirs = [tuple(last - place for place in bucket) for bucket in theirs]
        mine = [bucket.parameters for bucket in buckets]
        if num_dtypes == 1:
            assert mine == theirs
        # With several kinds torch sorts by the gradient that comes first; what is complete then waits.
        assert sorted(mine) == sorted(theirs)
        assert [min(bucket) for bucket in mine] == sorted((min(bucket) for bucket in mine), reverse=True)


def test_what_a_plan_is_made_from():
    tensors = [torch.zeros(3, 5), torch.zeros((), dtype=torch.float16), torch.zeros(0)]
    cpu = torch.device("cpu")
    assert describe(tensors) == ([60, 2, 0], [(torch.float32, cpu), (torch.float16, cpu), (torch.float32, cpu)])


def test_a_bucket_closes_at_its_cap():
    plan = plan_buckets([10, 10, 10, 10, 10], cap=20, first_cap=10)
    assert [bucket.parameters for bucket in plan] == [(4,), (3, 2), (1, 0)]
    assert [bucket.nbytes for bucket in plan] == [10, 20, 20]
    assert [b.parameters for b in plan_buckets([10, 10, 10], cap=20, first_cap=None)] == [(2, 1), (0,)]
    assert [b.nbytes for b in plan_buckets([5, 500, 5], cap=20)] == [510]  # the first cap is 1 MiB
    assert [b.nbytes for b in plan_buckets([30 * MIB, MIB // 2, 30 * MIB])] == [30 * MIB, 30 * MIB + MIB // 2]


def test_an_order_other_than_backwards():
    plan = plan_buckets([1, 2, 3, 4], cap=5, first_cap=5, order=[2, 0, 3, 1])
    assert [bucket.parameters for bucket in plan] == [(2, 0, 3), (1,)]


def test_kinds_never_mix_and_what_is_complete_goes_first():
    plan = plan_buckets([8, 8, 8, 8], cap=16, first_cap=16, kinds="abba")
    assert [(b.parameters, b.kind, b.index) for b in plan] == [((2, 1), "b", 0), ((3, 0), "a", 1)]


def test_a_cap_of_one_byte_gives_each_parameter_its_own_bucket():
    assert [b.parameters for b in plan_buckets([4, 4, 4], cap=1, first_cap=1)] == [(2,), (1,), (0,)]


def test_no_parameters_no_buckets():
    assert plan_buckets([]) == []
    validate_buckets([], [])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"cap": 0}, "cap must be 1 byte or more"),
        ({"first_cap": 0}, "cap must be 1 byte or more"),
        ({"cap": 0, "first_cap": None}, "cap must be 1 byte or more"),
        ({"kinds": "ab"}, "each of the 3 parameters once"),
        ({"order": [0, 1]}, "each of the 3 parameters once"),
        ({"order": [0, 1, 1]}, "each of the 3 parameters once"),
    ],
)
def test_wrong_arguments_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        plan_buckets([1, 2, 3], **wrong)


GOOD = [Bucket(0, (3, 2), 7), Bucket(1, (1, 0), 3)]


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (GOOD[::-1], "bucket 1 is launched at place 0"),
        ([*GOOD, Bucket(2, (), 0)], "bucket 2 is empty"),
        ([GOOD[0], Bucket(1, (1, 0, 4), 3)], "holds parameter 4, but there are only 4"),
        ([GOOD[0], Bucket(1, (1, 0, -1), 3)], "holds parameter -1"),
        ([GOOD[0], Bucket(1, (1, 0, 3), 7)], "parameter 3 is in buckets 0 and 1"),
        ([GOOD[0], Bucket(1, (1, 1, 0), 5)], "parameter 1 is in buckets 1 and 1"),
        ([GOOD[0], replace(GOOD[1], nbytes=4)], "bucket 1 says 4 bytes; its parameters have 3"),
        ([GOOD[0], Bucket(1, (1,), 2)], "parameter 0 is in no bucket"),
        ([Bucket(0, (3, 2, 1, 0), 10)], "bucket 0 mixes kinds"),
    ],
)
def test_each_fault_of_a_plan_is_named(plan, message):
    sizes, kinds = [1, 2, 3, 4], "aabb"
    validate_buckets(GOOD, sizes, kinds)
    with pytest.raises(ValueError, match=message):
        validate_buckets(plan, sizes, kinds)
