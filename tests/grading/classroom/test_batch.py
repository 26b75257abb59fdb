"""A class on real ranks: hanging, crashing and missing submissions, a batch that is cut short and goes on."""

import time

import pytest

from dtlearn.grading.classroom import batch
from dtlearn.grading.classroom.batch import ClassPlan, grade_class
from dtlearn.grading.classroom.store import ResultStore
from dtlearn.grading.classroom.submissions import Submission
from dtlearn.grading.grader_process.client import Graders
from dtlearn.grading.verdict import Result


@pytest.fixture
def plan(course, exercise):
    return ClassPlan(course, [exercise], b"secret", workers=3)


def handed_in(answers):
    return [Submission(name, {"ch01.mean": text}, {"ch01.mean": "mean.py"}) for name, text in answers.items()]


def test_every_submission_gets_its_own_verdict(plan, tmp_path, answers):
    submissions = [*handed_in(answers), Submission("missing")]
    seen = []
    begun = time.monotonic()
    found = grade_class(
        plan, submissions, ResultStore(tmp_path / "out"), lambda who, verdict, done, total: seen.append((done, total))
    )
    codes = {who: (verdict.state, verdict.code) for who, (verdict,) in found.items()}
    assert codes["right"] == ("passed", "")
    assert codes["summed"] == ("failed", "DTL-VALUE-FACTOR")
    assert codes["hangs"] == ("failed", "DTL-COLL-SKIP")
    assert codes["crashes"][0] == "crashed"
    assert codes["loops"][0] == "timeout"
    assert codes["stub"] == ("not-attempted", "DTL-STUB")
    assert codes["syntax"] == ("failed", "DTL-SYNTAX")
    assert codes["missing"] == ("not-attempted", "DTL-MISSING")
    assert seen == [(k, len(submissions)) for k in range(1, len(submissions) + 1)]
    assert time.monotonic() - begun < 60


def test_done_work_is_not_done_again(plan, tmp_path, answers, monkeypatch):
    store = ResultStore(tmp_path / "out")
    submissions = handed_in({"ann": answers["right"], "bob": answers["summed"]})
    first = grade_class(plan, submissions, store)

    def never(*args, **kwargs):
        raise AssertionError("graded again")

    with monkeypatch.context() as patch:
        patch.setattr(batch, "_grade", never)
        assert grade_class(plan, submissions, store) == first
    submissions[1] = handed_in({"bob": answers["right"]})[0]  # handed in anew
    assert grade_class(plan, submissions, store)["bob"][0].passed
    assert grade_class(plan, submissions, store)["ann"] == first["ann"]


def test_a_fault_of_the_grader_is_for_a_person_and_stops_nothing(plan, tmp_path, answers, monkeypatch):
    real = Graders.grade

    def breaks(self, limit, **job):
        if job["text"] == answers["summed"]:
            return Result("", 0, "error", "DTL-GRADER", "planted"), 5
        return real(self, limit, **job)

    monkeypatch.setattr(Graders, "grade", breaks)
    submissions = handed_in({"ann": answers["summed"], "bob": answers["right"]})
    found = grade_class(plan, submissions, ResultStore(tmp_path / "out"))
    assert (found["ann"][0].state, found["ann"][0].code, found["ann"][0].score) == ("error", "DTL-GRADER", 0.0)
    assert found["bob"][0].passed and found["ann"][0].memory == 5 < found["bob"][0].memory


def test_an_interrupt_keeps_what_is_done(plan, tmp_path, answers):
    store = ResultStore(tmp_path / "out")
    submissions = handed_in({"ann": answers["right"], "bob": answers["loops"], "eve": answers["loops"]})

    def interrupt(who, verdict, done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        grade_class(plan, submissions, store, interrupt)
    kept = {who: [path.name for path in store.folder.glob(f"{who}/*.json")] for who in ("ann", "eve")}
    assert len(kept["ann"]) == 1 and '"state": "passed"' in (store.folder / "ann" / kept["ann"][0]).read_text("utf-8")
    assert not kept["eve"]


def test_seeds_are_secret_and_the_same_for_all(plan, course, exercise):
    other = ClassPlan(course, [exercise], b"another secret")
    assert plan.seed(exercise) == plan.seed(exercise)
    assert plan.seed(exercise) != other.seed(exercise)


def test_hidden_checks_count_and_are_marked(plan, course, tmp_path, answers):
    folder = tmp_path / "hidden" / "ch01_ranks"
    folder.mkdir(parents=True)
    text = tmp_path / "hidden" / "ch01_ranks" / "mean.py"
    text.write_text(
        "import torch\nfrom dtlearn.grading.check import Check\n"
        "def inputs(case):\n    return [{'x': torch.full((2,), float(r))} for r in range(case.world_size)]\n"
        "def on_rank(answer, x):\n    return answer(x)\n"
        "def expected(case, given):\n"
        "    return [sum(i['x'] for i in given) / case.world_size] * case.world_size\n"
        "CHECK = Check(on_rank, inputs, expected, cases={'secret': {}})\n"
    )
    hidden = ClassPlan(course, plan.exercises, b"s", hidden=tmp_path / "hidden")
    found = grade_class(hidden, handed_in({"ann": answers["right"]}), ResultStore(tmp_path / "out"))
    results = found["ann"][0].results
    assert [(r.case, r.world_size, r.hidden) for r in results] == [
        ("one case", 1, False),
        ("secret", 1, True),
        ("one case", 2, False),
        ("secret", 2, True),
    ]
    assert found["ann"][0].passed
