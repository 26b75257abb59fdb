"""A course with one chapter and one exercise, for tests: average a tensor over the ranks."""

import shutil
import subprocess
from pathlib import Path

from dtlearn.course import Course, load_course
from dtlearn.grading.learner.exercise_files import files_of
from dtlearn.grading.learner.stubs import stub_of

ID = "ch01.average"

MANIFEST = """\
[[chapter]]
slug = "ch01_small"
title = "Small"
question = "Why?"
builds_on = []
minutes = 5
ranks = 2
status = "ready"

[[chapter.exercise]]
id = "ch01.average"
title = "The mean over the ranks"
points = 4
world_sizes = [1, 2]
hints = ["Sum first.", "Then divide.", "By the world size."]
"""

SOLUTION = '''\
"""Average a tensor over the ranks."""

import torch
import torch.distributed as dist


def average(x: torch.Tensor) -> torch.Tensor:
    """The mean of x over the ranks."""
    # BEGIN SOLUTION: return the mean over the ranks
    total = x.clone()
    dist.all_reduce(total)
    return total / dist.get_world_size()
    # END SOLUTION
'''
STUB = stub_of(SOLUTION, ID, "average.py")
RIGHT = SOLUTION.replace("    # BEGIN SOLUTION: return the mean over the ranks\n", "").replace(
    "    # END SOLUTION\n", ""
)
WRONG = RIGHT.replace("return total / dist.get_world_size()", "return total")  # summed only
ENDLESS = RIGHT.replace("total = x.clone()", "import time\n    time.sleep(600)")

CHECK = """\
import torch
from dtlearn.grading.check import Check

def inputs(case):
    g = case.generator()
    return [{"x": torch.randn(3, generator=g)} for _ in range(case.world_size)]

def on_rank(answer, x):
    return answer(x)

def expected(case, given):
    total = sum(i["x"] for i in given)
    return [total / case.world_size] * case.world_size

CHECK = Check(on_rank, inputs, expected, cases={"small": {}}, seconds=SECONDS)
"""


def small_course(root: Path, seconds: float = 10.0) -> Course:
    """A whole course in that folder."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "course.toml").write_text(MANIFEST)
    course = load_course(root)
    files = files_of(course, course.exercise(ID))
    check = root / "dtlearn" / "checks" / files.slug / "average.py"
    for path, text in {
        files.solution: SOLUTION,
        files.stub: STUB,
        check: CHECK.replace("SECONDS", str(seconds)),
        files.wrong / "no_division.py": "# expect: DTL-VALUE-FACTOR\n# says: summed\n" + WRONG,
        files.wrong / "nothing.py": "# expect: DTL-VALUE\n" + RIGHT,
        files.wrong / "endless.py": "# expect: DTL-TIMEOUT\n" + ENDLESS,
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return course


def answer_file(course: Course) -> Path:
    """The learner's file of its exercise, which holds the stub yet."""
    path = files_of(course, course.exercise(ID)).answer
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(STUB)
    return path


def commit(root: Path) -> None:
    """Put all of it under git."""
    git = shutil.which("git")
    assert git, "these tests need git"
    who = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
        subprocess.run([git, *who, *arguments], cwd=root, check=True, capture_output=True)
