"""The fault table as submissions: every fault between ranks is graded as what it is, at 2, 3 and 4 ranks."""

import textwrap
from dataclasses import replace

import pytest

from dtlearn.course import Exercise
from dtlearn.grading.check import Check
from dtlearn.grading.judging.grade import Answer, grade
from tests.runtime.fault_corpus import FAULTS

EXERCISE = Exercise("ch01.fault", "A program that goes wrong", 1, (2,), ("a", "b", "c"))
FILE = "exercises/ch01_ranks/fault.py"
# Longer than any diagnosis takes: a fault that is only found because time is up fails its test.
SECONDS = 20.0


def on_rank(answer):
    return answer()


CHECK = Check(
    on_rank,
    inputs=lambda case: [{}] * case.world_size,
    expected=lambda case, given: ["all is well"] * case.world_size,
    seconds=SECONDS,
)


def as_submission(program: str) -> str:
    head = "import torch\nimport torch.distributed as dist\n\ndef fault():\n"
    body = "rank, world_size = dist.get_rank(), dist.get_world_size()\n" + program + 'return "all is well"\n'
    return head + textwrap.indent(body, "    ")


# A fault that shows with few and with many ranks shows with 3.
SIZES = [(f, size) for f in FAULTS for size in sorted({*f.sizes, *([3] if len(f.sizes) > 1 else [])})]


@pytest.mark.parametrize(
    ("fault", "world_size"), [pytest.param(fault, size, id=f"{fault.name}-{size}") for fault, size in SIZES]
)
def test_a_submission_with_this_fault_is_named(fault, world_size):
    answer = Answer(as_submission(fault.program), FILE, "fault")
    for seconds in (fault.limit, 3 * fault.limit, 9 * fault.limit):  # "too busy to judge" is no answer: again, longer
        check = replace(CHECK, seconds=seconds)
        verdict = grade(EXERCISE, check, answer, world_sizes=[world_size], seed=1)
        found = verdict.first_fault
        if [one.code for one in verdict.results] != ["DTL-LOAD"]:
            break
    assert found is not None and verdict.score == 0, verdict
    text = "\n".join([found.headline, *found.details, found.advice])
    late = fault.code in ("DTL-LOOP", "DTL-STRAGGLER")
    assert verdict.state in (("timeout",) if late else ("failed", "crashed")), text
    assert found.code == fault.code, text
    assert found.line is None or as_submission(fault.program).splitlines()[found.line - 1].strip()
    for words in fault.says:
        assert words in text, f"{words!r} is not in:\n{text}"
    assert found.seconds < SECONDS / 2, f"{found.seconds:.1f} s: the diagnosis came with the time-out"


def test_the_same_submission_without_a_fault_passes():
    verdict = grade(EXERCISE, CHECK, Answer(as_submission("dist.barrier()\n"), FILE, "fault"), world_sizes=[2, 3, 4])
    assert verdict.passed, verdict
