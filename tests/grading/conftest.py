"""For the tests of the grader: a course in a temporary folder with one small exercise, answers right and wrong."""

import textwrap

import pytest
import torch

from dtlearn.course import Course, Exercise, load_course
from dtlearn.grading.check import Check

MANIFEST = """
[[chapter]]
slug = "ch01_ranks"
title = "Ranks"
question = "How?"
builds_on = []
minutes = 1
ranks = 2
status = "ready"

[[chapter.exercise]]
id = "ch01.mean"
title = "The mean over ranks"
points = 4
world_sizes = [1, 2]
hints = ["a", "b", "c"]
"""

RIGHT = """
import torch.distributed as dist

def mean(x):
    total = x.clone()
    dist.all_reduce(total)
    return total / dist.get_world_size()
"""


def inputs(case):
    g = case.generator()
    return [{"x": torch.randn(3, generator=g)} for _ in range(case.world_size)]


def on_rank(answer, x):
    return answer(x)


def expected(case, given):
    return [sum(i["x"] for i in given) / case.world_size] * case.world_size


CHECK = Check(on_rank, inputs, expected, seconds=5)


@pytest.fixture
def course(tmp_path) -> Course:
    (tmp_path / "course.toml").write_text(MANIFEST)
    return load_course(tmp_path)


@pytest.fixture
def exercise(course) -> Exercise:
    return course.exercise("ch01.mean")


@pytest.fixture
def check() -> Check:
    return CHECK


@pytest.fixture
def right() -> str:
    return RIGHT


@pytest.fixture
def answers() -> dict[str, str]:
    """Answers by what is wrong with them."""
    return {
        "right": RIGHT,
        "summed": RIGHT.replace(" / dist.get_world_size()", ""),
        "hangs": RIGHT.replace("    dist.all_reduce", "    if dist.get_rank():\n        dist.all_reduce"),
        "crashes": RIGHT.replace("    total = x.clone()", "    import os\n    os._exit(0)"),
        "loops": RIGHT.replace("    total = x.clone()", "    while True:\n        pass"),
        "stub": textwrap.dedent('def mean(x):\n    raise NotImplementedError("ch01.mean: average")\n'),
        "syntax": "def mean(x)\n    return x\n",
    }
