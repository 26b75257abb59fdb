import pytest

from dtlearn.grading import plain_values
from dtlearn.grading.check import Case, Check
from dtlearn.grading.judging.run_case import Answer, run_case
from dtlearn.runtime.errors import RankError, RanksDisagree, RanksTimeout
from dtlearn.runtime.machine.patience import MOST
from dtlearn.runtime.run import Run


def inputs(case):
    return [{"x": float(rank)} for rank in range(case.world_size)]


def on_rank(answer, x):
    return answer(x)


def run(source: str, world_size: int = 2, **options):
    check = Check(on_rank, inputs, lambda case, given: [], **{"seconds": 5.0, **options})
    case = Case("a case", world_size, seed=0)
    return run_case(check, case, inputs(case), Answer("import torch.distributed as dist\n" + source, "f.py", "f"))


def test_each_rank_gets_its_own_inputs_and_its_result_comes_back_as_bytes():
    evidence = run("def f(x):\n    dist.barrier()\n    print('rank', x)\n    return x + 1\n", 3)
    assert evidence.error is None and all(isinstance(data, bytes) for data in evidence.returned)
    assert [plain_values.load(data)["value"] for data in evidence.returned] == [1, 2, 3]
    assert [event.op for event in evidence.record] == ["barrier"] * 3 and evidence.output[2].strip() == "rank 2.0"
    assert 0 < evidence.seconds < 5


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("def f(x):\n    raise KeyError('k')\n", RankError),
        ("def f(x):\n    if x: dist.barrier()\n", RanksDisagree),
        ("import time\ndef f(x):\n    time.sleep(60)\n", RanksTimeout),
    ],
)
def test_what_went_wrong_is_kept(source, error):
    evidence = run(source, seconds=2.0)
    assert type(evidence.error) is error
    assert None in evidence.returned


def test_the_time_limit_of_a_busy_machine_comes_before_that_of_the_processor(monkeypatch):
    """Or a loop without an end would be a crash there, and not a timeout."""
    held_to = []

    def start(*args, limits, **options):
        held_to.append(limits.cpu_seconds)
        return Run(*args, limits=limits, **options)

    monkeypatch.setattr("dtlearn.grading.judging.run_case.Run", start)
    run("def f(x):\n    return x\n", seconds=5.0)
    assert held_to[0] > 5.0 * MOST


def marks_around_a_call(answer, x):
    from dtlearn.runtime.rank.task import mark

    mark("before")
    answer(x)
    mark("after")


@pytest.mark.parametrize("clock", ["", "time.monotonic_ns = lambda: 0\n", "time.monotonic_ns = lambda: 1 << 62\n"])
def test_marks_say_what_was_called_between_them_and_a_rank_is_held(clock):
    check = Check(
        marks_around_a_call, inputs, lambda case, given: [], hold=lambda case, rank, k: 0.3 * (k == rank == 1)
    )
    source = f"import time\nimport torch.distributed as dist\n{clock}def f(x):\n    dist.barrier()\n"
    case = Case("a case", 2, seed=0)
    evidence = run_case(check, case, inputs(case), Answer(source, "f.py", "f"))
    assert evidence.error is None, evidence.error
    assert [(mark.rank, mark.label) for mark in evidence.record.marks] == [
        (r, x) for r in (0, 1) for x in ("before", "after")
    ]
    for before, after, call in zip(
        evidence.record.marks[::2], evidence.record.marks[1::2], evidence.record, strict=True
    ):
        assert before.answered_ns < call.start_ns < call.end_ns < after.came_ns
    held = evidence.record.marks[3]
    assert held.answered_ns - held.came_ns >= 0.3e9


def test_a_rank_that_leaves_sends_nothing():
    evidence = run("import os\ndef f(x):\n    os._exit(0)\n")
    assert isinstance(evidence.error, RankError) and evidence.returned == [None, None]
