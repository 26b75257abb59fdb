"""What stress finds in answers, on real ranks."""

import pytest
import torch

from dtlearn.course import Exercise
from dtlearn.grading.check import Check, Stress
from dtlearn.grading.judging.grade import Answer, grade

EXERCISE = Exercise("ch01.pass_on", "Pass a tensor to the right", 1, (2, 3), ("a", "b", "c"))
RIGHT = """
import torch
import torch.distributed as dist

def pass_on(x):
    rank, size = dist.get_rank(), dist.get_world_size()
    theirs = torch.empty_like(x)
    sending = dist.isend(x, (rank + 1) % size)
    dist.recv(theirs, (rank - 1) % size)
    sending.wait()
    return theirs
"""
SAME_BUFFER = RIGHT.replace("theirs = torch.empty_like(x)", "x = theirs = x.clone()")
UNFILLED = RIGHT.replace("isend(x,", "isend(theirs if rank else x,").replace("dist.recv", "came.wait()  # dist.recv")
UNFILLED = UNFILLED.replace("    sending = ", "    came = dist.irecv(theirs, (rank - 1) % size)\n    sending = ")
ADDED_EARLY = RIGHT.replace("    sending.wait()", "    x += 1\n    sending.wait()\n    x -= 1")


def inputs(case):
    return [{"x": torch.full((3,), float(rank))} for rank in range(case.world_size)]


def on_rank(answer, x):
    return answer(x)


def expected(case, given):
    return [given[rank - 1]["x"] for rank in range(case.world_size)]


def judged(source, poison=True):
    check = Check(on_rank, inputs, expected, stress=Stress(poison=poison))
    return grade(EXERCISE, check, Answer(source, "exercises/pass_on.py", "pass_on"), seed=1)


def test_waiting_before_the_tensor_is_changed_passes():
    assert judged(RIGHT).passed
    assert judged(RIGHT.replace("torch.empty_like(x)", "torch.full_like(x, float('nan'))")).passed


@pytest.mark.parametrize(
    ("source", "how"),
    [
        (SAME_BUFFER, "chance; a receive overwrote it, line"),
        (UNFILLED, "chance; it was sent before the wait() of the irecv that fills it, line"),
        (ADDED_EARLY, "chance, line"),
    ],
    ids=["one buffer for both", "sent before it is filled", "added before wait"],
)
def test_a_tensor_changed_while_it_is_sent_is_named(source, how):
    found = judged(source).first_fault
    assert found.code == "DTL-ASYNC-REUSE" and "changed the tensor of an isend before its wait()" in found.headline
    assert how in found.headline
    assert source.splitlines()[found.line - 1].strip() == "sending.wait()"
