"""What the check of the bug-hunt lab knows of the programs, held against the programs and against their fixes."""

import runpy

import pytest

from dtlearn.checks.ch16_production import bug_lab
from dtlearn.checks.ch16_production._faults_of_programs import FAULTS, numbers
from dtlearn.course import load_course
from dtlearn.grading.learner.exercise_files import files_of
from dtlearn.production.bug_lab import CAUSES, PROGRAMS, run_program
from tests.course.test_exercises import judged
from tests.production.bug_lab.fixes import FIXES
from tests.production.bug_lab.test_programs import PATIENT, assert_right

EXERCISE = load_course().exercise("ch16.bug_lab")
SOLUTION = files_of(load_course(), EXERCISE).solution
each_program = pytest.mark.parametrize("name", PROGRAMS)


def said_of(**found):
    """The finding for what is said of a program."""
    name = found.pop("program")
    case = next(case for case in bug_lab.CHECK.all_cases(1, 1) if case.params["of"] == name)
    finding = bug_lab.verify(case, [], [found or None], None)
    return finding and (finding.code, finding.text)


def right(name):
    fault = FAULTS[name]
    return {"ranks": list(fault.ranks), "line": min(numbers(name, fault.lines)), "cause": fault.cause}


@each_program
def test_a_fault_fits_its_program(name):
    fault, program = FAULTS[name], PROGRAMS[name]
    assert set(fault.ranks) <= set(range(program.world_size))
    assert {fault.cause, *fault.near} <= set(CAUSES) and fault.cause not in fault.near
    assert not numbers(name, fault.lines) & numbers(name, fault.shows)
    assert len(fault.near) >= 3


@each_program
def test_a_fix_changes_a_line_that_is_right(name):
    lines = PROGRAMS[name].text.splitlines()
    texts = {lines[number - 1].strip() for number in numbers(name, FAULTS[name].lines)}
    assert any(text in old or old.strip() in text for text in texts for old in FIXES[name])


# Lines that mend a program as well, each changed alone; what they become.
OTHER_FIXES = [
    ("checkpoint_thread", "weight += gradient", "weight = weight + gradient"),
    ("checkpoint_thread", "args=(state, step)", "args=({'weight': weight.clone()}, step)"),
    ("detector_logs", "torch.tensor(0.5 + rank)", 'torch.tensor(0.5 + rank), "box": torch.zeros(())'),
    ("resumed_dropout", "dist.broadcast_object_list(file, src=0)", "pass"),
]


@pytest.mark.parametrize(("name", "old", "new"), OTHER_FIXES)
def test_a_line_that_mends_the_program_alone_is_right(name, old, new):
    text = PROGRAMS[name].text
    (line,) = [number for number, one in enumerate(text.splitlines(), 1) if old in one]
    assert said_of(program=name, **{**right(name), "line": line}) is None
    run = run_program(name, text.replace(old, new), timeout=PATIENT)
    assert not run.diagnosis
    assert_right(run.values, name)


def test_a_mean_before_the_gather_is_enough_for_the_metric():
    text = PROGRAMS["loss_metric"].text
    (line,) = [number for number, one in enumerate(text.splitlines(), 1) if "torch.full((256,)" in one]
    assert said_of(program="loss_metric", **{**right("loss_metric"), "line": line}) is None
    text = text.replace("float(rank + step))", "float(rank + step)).mean(0, True)")
    run = run_program("loss_metric", text, timeout=PATIENT)
    assert_right(run.values, "loss_metric")
    assert run.record.nbytes(rank=0) == 4 * 4


def test_each_cause_is_one_of_the_task_and_each_program_has_its_own():
    task = SOLUTION.read_text("utf-8")
    assert all(f'| `"{name}"` | {words} |' in task for name, words in CAUSES.items())
    assert len({fault.cause for fault in FAULTS.values()}) == len(FAULTS) == 10


@each_program
def test_verdicts_on_what_comes_near(name):
    fault = FAULTS[name]
    assert said_of(program=name, **right(name)) is None
    assert said_of(program=name) == ("DTL-VALUE-NONE", f"no fault of {name} is named yet")
    for line in numbers(name, fault.shows):
        code, text = said_of(program=name, **{**right(name), "line": line})
        assert code == "DTL-VALUE-SHOWS" and text.endswith("(the ranks and the cause are right)")
    for cause in fault.near:
        code, text = said_of(program=name, **{**right(name), "cause": cause})
        assert code == "DTL-MISTAKE" and text.endswith("(the ranks and the line are right)")
    code, text = said_of(program=name, **{**right(name), "cause": "straggler"})
    assert "straggler" in text and fault.cause not in text
    victims = [rank for rank in range(PROGRAMS[name].world_size) if rank not in fault.ranks]
    if victims:
        code, text = said_of(program=name, **{**right(name), "ranks": victims})
        assert code == "DTL-VALUE-VICTIM" and text.startswith(fault.only)
        code, text = said_of(program=name, **{**right(name), "ranks": [*fault.ranks, *victims]})
        assert code == "DTL-VALUE-FAULT" and "some of these ranks" in text
    if len(fault.ranks) > 1:
        assert said_of(program=name, **{**right(name), "ranks": [fault.ranks[0]]})[0] == "DTL-VALUE-FAULT"


@each_program
def test_no_verdict_gives_the_answer_away(name):
    fault, texts = FAULTS[name], []
    for line in range(1, len(PROGRAMS[name].text.splitlines()) + 1):
        if found := said_of(program=name, **{**right(name), "line": line}):
            texts.append(found[1])
    texts += [said_of(program=name, **{**right(name), "cause": one})[1] for one in CAUSES if one != fault.cause]
    assert not any(f"'{fault.cause}'" in text for text in texts)
    answers = {f"line {number} " for number in numbers(name, fault.lines)}
    assert not any(answer in text for answer in answers for text in texts)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"ranks": [1], "line": 3}, "got ['line', 'ranks']"),
        ({"ranks": [3], "line": 3, "cause": "groups"}, "numbers from 0 to 2"),
        ({"ranks": [], "line": 3, "cause": "groups"}, "at least one"),
        ({"ranks": [True], "line": 3, "cause": "groups"}, "got [True]"),
        ({"ranks": [1], "line": 99, "cause": "groups"}, "from 1 to 25"),
        ({"ranks": [1], "line": "21", "cause": "groups"}, "got '21'"),
        ({"ranks": [1], "line": 21, "cause": "a barrier"}, "one of the names in the table; got 'a barrier'"),
        ({"ranks": [1], "line": 21, "cause": ["groups"]}, "one of the names in the table"),
    ],
)
def test_what_is_no_answer_is_refused(found, words):
    code, text = said_of(program="sharded_save", **found)
    assert code == "DTL-VALUE-TYPE" and words in text


def test_each_program_is_a_point():
    answer = runpy.run_path(str(SOLUTION))["bug_lab"]
    table = {name: answer(name) for name in list(PROGRAMS)[:3]}
    verdict = judged(EXERCISE, f"def bug_lab(program):\n    return {table!r}.get(program)\n")
    assert (verdict.score, verdict.points) == (3, 10)
