import dtlearn
from dtlearn.grading.learner import attempts
from tests.grading.small_course import ID, small_course


def test_live_it_reads_and_headless_it_is_always_the_same(tmp_path, monkeypatch):
    course = small_course(tmp_path)
    monkeypatch.setattr("dtlearn.notebook.exercises.progress.load_course", lambda: course)
    attempts.note_hints(attempts.attempts_folder(course.root, ID), 2)
    assert "0 of 3" in str(dtlearn.progress())
    monkeypatch.setenv("DTLEARN_HEADLESS", "0")
    assert "2 of 3" in str(dtlearn.progress())
