"""An exercise and its check, for answers that cheat: the mean over two ranks."""

import textwrap
from dataclasses import replace

from dtlearn.course import Exercise
from dtlearn.grading.check import Check
from dtlearn.grading.judging.grade import Answer, grade
from dtlearn.runtime.machine.isolation import Isolation
from tests.grading.conftest import CHECK as MEAN

EXERCISE = Exercise("ch01.mean", "The mean over ranks", 1, (2,), ("a", "b", "c"))
HEAD = "import os, sys, torch\nimport torch.distributed as dist\n"
CHECK = replace(MEAN, seconds=8)


def submit(body: str, isolation: int | Isolation, check: Check = CHECK, seed: int = 7):
    """The verdict on an answer of that text, after some imports."""
    shut_in = isolation if isinstance(isolation, Isolation) else Isolation(isolation)
    return grade(EXERCISE, check, Answer(HEAD + textwrap.dedent(body), "mean.py", "mean"), seed=seed, isolation=shut_in)
