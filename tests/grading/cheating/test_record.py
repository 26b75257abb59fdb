"""Answers that change the record of their calls, or hand in the course's own work: limits, stated and tried."""

from dataclasses import replace

import pytest

from dtlearn.course import load_course
from dtlearn.grading import rules
from dtlearn.grading.check import Finding
from dtlearn.grading.classroom.batch import shut_in
from dtlearn.grading.judging.grade import Answer, grade
from dtlearn.grading.learner.exercise_files import find_check
from dtlearn.runtime.agent.client import close_agent

from .hand_in import CHECK, HEAD, submit
from .rows import LEVELS, tries

COURSE = load_course()
FORGED = """
from dtlearn.runtime.recording.python_calls import PYTHON_CALLS
def mean(x):
    log = PYTHON_CALLS.log
    enter, log.enter = log.enter, lambda *a, **k: -1
    leave, log.leave = log.leave, lambda *a, **k: None
    parts = [torch.empty_like(x) for _ in range(2)]
    dist.all_gather(parts, x)
    log.enter, log.leave = enter, leave
    CLAIM
    return sum(parts) / 2
"""
CLAIM = "leave(enter('all_reduce', None, [x], None, {}, False))"


@tries("rewrites the record of its calls, where rules or budgets judge calls and bytes")
@pytest.mark.parametrize("level", LEVELS)
def test_a_rule_on_calls_believes_a_forged_record(level):
    """A limit: an all_gather is left out of it, and an all_reduce that was never made is in it."""

    def reduces(case, given, record):
        return None if record.select(op="all_reduce").events else Finding("DTL-RULE-CALLS", "no all_reduce")

    ruled = replace(CHECK, rules=[reduces, rules.never("all_gather"), rules.most_bytes("12")])
    assert submit(FORGED.replace("CLAIM", CLAIM), level, ruled).passed
    assert submit(FORGED.replace("CLAIM", ""), level, ruled).code == "DTL-RULE-CALLS"  # not believed without it


@tries("rewrites the record of its calls, where rules or budgets judge calls and bytes")
@pytest.mark.parametrize("level", LEVELS)
def test_a_forged_record_makes_no_wrong_value_right(level):
    verdict = submit(FORGED.replace("CLAIM", CLAIM).replace("sum(parts) / 2", "x"), level)
    assert (verdict.state, verdict.score) == ("failed", 0)


# No name that a reading of the text could find.
HIDDEN = """
def NAME(*args):
    names = NAME.__globals__["__buil" + "tins__"]
    names = names if isinstance(names, dict) else names.__dict__
    package = names["__imp" + "ort__"]("dtlearn." + "PACKAGE"[::-1], None, None, ["NAME"])
    return package.NAME(*args)
"""
OPEN = "import dtlearn.PACKAGE\ndef NAME(*args):\n    return dtlearn.PACKAGE.NAME(*args)\n"
OWN_ANSWER = "imports the package's own answer"


def own_answer(text, exercise_id, package, level):
    exercise = COURSE.exercise(exercise_id)
    source = text.replace('"PACKAGE"', repr(package[::-1])).replace("PACKAGE", package).replace("NAME", exercise.name)
    check, answer = find_check(COURSE, exercise), Answer(HEAD + source, "answer.py", exercise.name)
    close_agent()  # that of other tests may have loaded the package; in a class each hand-in has its own
    return grade(exercise, check, answer, seed=1, world_sizes=(2,), isolation=shut_in(COURSE, level))


@tries(OWN_ANSWER)
@pytest.mark.parametrize("level", LEVELS)
def test_the_packages_own_answer_is_read_in_the_text(level):
    verdict = own_answer(OPEN, "ch02.broadcast", "collectives", level)
    assert (verdict.code, verdict.score) == ("DTL-RULE-NAME", 0)


@tries(OWN_ANSWER)
@pytest.mark.parametrize("level", LEVELS)
def test_a_hidden_import_of_the_packages_own_answer_finds_it_at_level_1_only(level):
    """A limit at level 1; at level 2 the files are not there."""
    verdict = own_answer(HIDDEN, "ch02.broadcast", "collectives", level)
    if level == 1:
        assert verdict.passed, verdict.first_fault
    else:
        assert (verdict.code, verdict.score) == ("DTL-RAISED", 0), verdict.first_fault
        assert "has no attribute 'broadcast'" in verdict.first_fault.headline


@tries(OWN_ANSWER)
@pytest.mark.parametrize("level", LEVELS)
def test_chapter_8s_package_is_in_memory_at_every_level(level):
    """A limit: the grader measures with parts of it, so it is loaded before an answer is known."""
    verdict = own_answer(HIDDEN, "ch08.checkpoint", "memory", level)
    assert verdict.passed, verdict.first_fault


def test_what_a_rule_rules_out_lies_where_it_says():
    for chapter in COURSE.chapters:
        for exercise in chapter.exercises:
            hides = [folder for rule in find_check(COURSE, exercise).reads for folder in getattr(rule, "folders", ())]
            assert hides and all((COURSE.root / folder).is_dir() for folder in hides), exercise.id
