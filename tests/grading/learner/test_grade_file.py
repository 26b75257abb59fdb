import pytest

from dtlearn.grading.learner import attempts, grade_file
from dtlearn.grading.learner.exercise_files import files_of
from dtlearn.runtime.agent.client import get_agent
from tests.grading.small_course import ID, RIGHT, STUB, WRONG, answer_file, small_course


@pytest.fixture
def course(tmp_path):
    return small_course(tmp_path / "kurs ü")


@pytest.fixture
def exercise(course):
    return course.exercise(ID)


@pytest.fixture
def file(course, exercise):
    return answer_file(course)


def kept(course):
    return attempts.listing(attempts.attempts_folder(course.root, ID))


def test_an_answer_is_graded_and_kept(course, exercise, file):
    file.write_text(WRONG)
    seen = []
    verdict = grade_file.grade_file(course, exercise, seed=3, progress=lambda *step: seen.append(step[1:]))
    assert (verdict.state, verdict.code, verdict.attempt, verdict.seed) == ("failed", "DTL-VALUE-FACTOR", 1, 3)
    assert seen == [(1, 2), (2, 2)]
    (attempt,) = kept(course)
    assert attempt.path.read_text() == WRONG and attempt.verdict == verdict
    file.write_text(RIGHT)
    assert grade_file.grade_file(course, exercise).attempt == 2


def test_a_text_can_be_graded_without_being_kept(course, exercise):
    verdict = grade_file.grade_file(course, exercise, source=RIGHT, keep=False)
    assert verdict.passed and verdict.attempt == 0
    assert kept(course) == []


def test_where_there_are_gpus_a_verdict_says_why_it_is_of_the_cpu(course, exercise, monkeypatch):
    hello = get_agent().hello()
    for num_gpus, expected in ((0, []), (8, [grade_file._ON_THE_CPU])):
        monkeypatch.setattr(get_agent(), "_hello", {**hello, "num_gpus": num_gpus})
        verdict = grade_file.grade_file(course, exercise, source=RIGHT, keep=False)
        assert [note for note in verdict.notes if "GPU" in note] == expected


def test_a_stub_needs_no_ranks_and_is_not_kept(course, exercise, monkeypatch):
    monkeypatch.setattr("dtlearn.grading.judging.grade.CaseRanks", None)
    verdict = grade_file.grade_file(course, exercise)
    assert (verdict.state, verdict.score, verdict.points) == ("not-attempted", 0, 4)
    assert grade_file.grade_file(course, exercise, source=f"\n{STUB}  \n").state == "not-attempted"
    assert kept(course) == []


def test_the_courses_own_answer_is_no_pass_of_the_learners(course, exercise, file, tmp_path):
    copy = tmp_path / "copy.py"
    copy.write_text(grade_file.solution_text(course, exercise))
    for path in (files_of(course, exercise).solution, copy):
        verdict = grade_file.grade_file(course, exercise, path)
        assert verdict.passed and verdict.attempt == 0
        assert "the course's own answer, so it is not kept and counts for nothing" in verdict.notes[-1]
        assert kept(course) == []
    copy.write_text(RIGHT.replace("total", "summed"))  # somebody's own
    assert grade_file.grade_file(course, exercise, copy).attempt == 1
    file.write_text(RIGHT)  # in the exercise's own file it is what a learner wrote, or had to
    assert grade_file.grade_file(course, exercise).attempt == 2


def test_without_solutions_a_stub_is_recognised_when_it_runs(course, exercise):
    files_of(course, exercise).solution.unlink()
    assert grade_file.stub_text(course, exercise) is None
    assert grade_file.grade_file(course, exercise).state == "not-attempted"


def test_what_cannot_be_kept_is_a_note_and_grading_goes_on(course, exercise):
    (course.root / ".dtlearn").write_text("in the way")
    verdict = grade_file.grade_file(course, exercise, source=RIGHT)
    assert verdict.passed and verdict.attempt == 0
    (note,) = verdict.notes
    assert note.startswith("This attempt is not kept")


def test_a_fault_names_the_file_inside_the_course(course, exercise, file, tmp_path):
    file.write_text(RIGHT.replace("total = x.clone()", "1 / 0"))
    verdict = grade_file.grade_file(course, exercise)
    told = "\n".join(verdict.first_fault.details)
    assert "work/ch01_small/average.py" in told and str(tmp_path) not in told
    assert verdict.first_fault.line == RIGHT.splitlines().index("    total = x.clone()") + 1


def test_windows_line_ends_and_a_byte_order_mark_are_read(tmp_path):
    path = tmp_path / "a.py"
    path.write_bytes(b"\xef\xbb\xbfx = 1\r\ny = 2\r\n")
    assert grade_file.read_answer(path) == "x = 1\ny = 2\n"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "does not exist"),
        (b"\xff\xfe", "no text in UTF-8 (byte 0)"),
        (b"a\0b", "holds null bytes"),
        (b"#" * (grade_file.MAX_BYTES + 1), "larger than 1,048,576 bytes"),
    ],
)
def test_what_is_no_answer_is_told(tmp_path, content, says):
    path = tmp_path / "a.py"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.py") as caught:
        grade_file.read_answer(path)
    assert says in str(caught.value)
    with pytest.raises(ValueError, match="is a folder"):
        grade_file.read_answer(tmp_path)


def test_an_exercise_without_a_check_is_told(course, exercise):
    (course.root / "dtlearn/checks/ch01_small/average.py").unlink()
    with pytest.raises(ValueError, match=r"ch01\.average has no check"):
        grade_file.grade_file(course, exercise)


def test_an_answer_is_written_whole_with_the_mode_of_its_file(tmp_path):
    real, link = tmp_path / "real.py", tmp_path / "new" / "link.py"
    grade_file.write_answer(link, "one")
    new = tmp_path / "plain"
    new.touch()
    assert link.read_text() == "one" and link.stat().st_mode == new.stat().st_mode
    link.unlink()
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    grade_file.write_answer(link, "two")
    assert link.is_symlink() and real.read_text() == "two" and real.stat().st_mode & 0o777 == 0o640
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new", "plain", "real.py"]
