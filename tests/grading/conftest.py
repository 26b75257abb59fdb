"""For the tests of the grader: a small course, answers right and wrong, verdicts made by hand, and golden files.

To write the golden files anew after a wanted change: DTLEARN_UPDATE_GOLDEN=1 pytest tests/grading, then read the
difference in git before you commit it.
"""

import os
import textwrap
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch

from dtlearn.course import Course, Exercise, load_course
from dtlearn.grading.check import Check
from dtlearn.grading.grader_process.client import Graders

from .verdicts import NASTY, hostile_verdict, make_verdicts

GOLDEN = Path(__file__).parent / "golden"

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


CHECK_FILE = """
import torch
from dtlearn.grading.check import Check
def inputs(case):
    g = case.generator()
    return [{"x": torch.randn(3, generator=g)} for _ in range(case.world_size)]
def on_rank(answer, x):
    return answer(x)
def expected(case, given):
    return [sum(i["x"] for i in given) / case.world_size] * case.world_size
CHECK = Check(on_rank, inputs, expected, seconds=5)
"""


def write_course(root: Path) -> None:
    """A course of one exercise, with its check."""
    (root / "dtlearn" / "checks" / "ch01_ranks").mkdir(parents=True)
    (root / "dtlearn" / "checks" / "ch01_ranks" / "mean.py").write_text(CHECK_FILE)
    (root / "course.toml").write_text(MANIFEST)


@pytest.fixture
def course(tmp_path) -> Course:
    write_course(tmp_path)
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


@pytest.fixture(scope="module")
def graders():
    graders = Graders()
    yield graders
    graders.end()


@pytest.fixture
def graded(graders, course):
    """`graded(text, isolation)`: what the processes that grade a class say of an answer, and their memory."""

    def grade(text, isolation, limit=60.0):
        job = {"root": str(course.root), "exercise": "ch01.mean", "hidden": None, "text": text, "file": "mean.py"}
        return graders.grade(limit, **job, isolation=asdict(isolation), seed=7, seconds=60.0)

    return grade


@pytest.fixture
def answers() -> dict[str, str]:
    """Answers by what is wrong with them."""
    return {
        "right": RIGHT,
        "summed": RIGHT.replace(" / dist.get_world_size()", ""),
        "hangs": RIGHT.replace("    dist.all_reduce", "    if dist.get_rank():\n        dist.all_reduce"),
        "crashes": RIGHT.replace("    total = x.clone()", "    import os\n    os._exit(0)"),
        # It sleeps, not to take the processor from others: tests/grading/test_fault_corpus.py has a loop that computes.
        "loops": RIGHT.replace("    total = x.clone()", "    import time\n    while True:\n        time.sleep(0.01)"),
        "stub": textwrap.dedent('def mean(x):\n    raise NotImplementedError("ch01.mean: average")\n'),
        "syntax": "def mean(x)\n    return x\n",
    }


@pytest.fixture
def verdicts():
    return make_verdicts()


@pytest.fixture(params=sorted(NASTY))
def hostile(request):
    """A verdict whose texts are all the same hostile one."""
    return hostile_verdict(NASTY[request.param])


@pytest.fixture
def huge():
    """A verdict with texts of 100 MB."""
    return hostile_verdict("A very long word. " * 5_600_000)


@pytest.fixture
def golden():
    """`golden(name, text)` compares a text with the file of that name."""

    def compare(name, text):
        path = GOLDEN / name
        if os.environ.get("DTLEARN_UPDATE_GOLDEN") == "1":
            path.write_text(text, encoding="utf-8", newline="\n")
        assert path.is_file(), f"{path.name} is missing; write it with DTLEARN_UPDATE_GOLDEN=1"
        assert text == path.read_text(encoding="utf-8")

    return compare


@pytest.fixture
def harmless():
    """`harmless(text)`: nothing in it can steer a terminal, hide, or tell of this machine."""

    def check(text, escapes=False):
        assert not {c for c in text if ord(c) < 32 and c not in ("\n\x1b" if escapes else "\n")}
        assert not {c for c in text if 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000}
        assert not set("\u202e\u2066\u200b\ufffe\uffff") & set(text)
        for secret in ("/home", "lovelace", "Users", "secret-dir"):
            assert secret not in text

    return check


@pytest.fixture
def noon():
    return datetime(2026, 11, 20, 12, 0, 0, 250_000, tzinfo=UTC)


@pytest.fixture
def a_class(verdicts):
    """Verdicts by submission: one exercise, six students."""
    return {
        "ada": [verdicts["optimal"]],
        "bo": [verdicts["value"]],
        "chen": [verdicts["hang"]],
        "dee": [verdicts["hang"]],
        "eve": [verdicts["error"]],
        "finn": [verdicts["stub"]],
    }
