import os
import threading

import pytest

from dtlearn.grading.learner import attempts
from dtlearn.grading.verdict import Verdict


def verdict(state="passed", score=4.0, tier="", attempt=0):
    return Verdict("ch01.average", "T", state, score, 4.0, tier, attempt=attempt)


def graded(folder, text, **fields):
    number, note = attempts.begin(folder, text)
    assert not note
    assert attempts.finish(folder, verdict(**fields, attempt=number)) == ""
    return number


@pytest.fixture
def folder(tmp_path):
    return attempts.attempts_folder(tmp_path, "ch01.average")


def test_attempts_are_numbered_and_kept_with_their_verdicts(folder):
    assert [graded(folder, "one\n", state="failed", score=1), graded(folder, "two é\n")] == [1, 2]
    first, second = attempts.listing(folder)
    assert (first.number, first.path.read_text(), first.verdict.state) == (1, "one\n", "failed")
    assert (second.path.name, second.path.read_text("utf-8"), second.verdict.attempt) == ("0002.py", "two é\n", 2)
    assert not [name for name in os.listdir(folder) if name.startswith(".new-")]
    assert second.path.stat().st_mode & 0o077 == 0


def test_a_text_is_kept_before_it_is_graded(folder):
    attempts.begin(folder, "dies while it is graded")
    (only,) = attempts.listing(folder)
    assert only.verdict is None and not only.honest


def test_a_damaged_verdict_costs_only_itself(folder):
    graded(folder, "one")
    (folder / "0001.json").write_text("{")
    (folder / "notes.txt").write_text("the learner's own")
    assert [a.verdict for a in attempts.listing(folder)] == [None]
    assert attempts.begin(folder, "two")[0] == 2


def test_two_graders_never_share_a_number(folder):
    numbers = []

    def grader(name):
        for i in range(10):
            numbers.append(attempts.begin(folder, f"{name} {i}")[0])

    threads = [threading.Thread(target=grader, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(1, 41))
    assert len({a.path.read_text() for a in attempts.listing(folder)}) == 40


def test_a_file_system_without_hard_links_will_do(folder, monkeypatch):
    def refuse(*_):
        raise OSError(1, "not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert [attempts.begin(folder, "one")[0], attempts.begin(folder, "two")[0]] == [1, 2]
    assert [a.path.read_text() for a in attempts.listing(folder)] == ["one", "two"]
    monkeypatch.setattr(attempts, "_matches", lambda *_: [])  # another grader took the number meanwhile
    assert attempts.begin(folder, "three")[0] == 3


def test_an_unwritable_folder_is_one_note(folder):
    folder.parent.parent.mkdir()
    folder.parent.write_text("a file where the folder should be")
    number, note = attempts.begin(folder, "x")
    assert number == 0
    assert note.startswith("This attempt is not kept: .dtlearn/attempts cannot be written (")
    assert attempts.finish(folder, verdict(attempt=1)).startswith("This attempt is not kept")
    assert attempts.note_hints(folder, 1).startswith("This is not remembered")
    with pytest.raises(OSError):
        attempts.keep_copy(folder, "x")


def test_a_full_disk_leaves_no_half_of_an_attempt(folder, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert "No space left" in attempts.begin(folder, "x")[1]
    assert os.listdir(folder) == []


def test_copies_have_numbers_of_their_own_and_are_not_made_twice(folder):
    graded(folder, "graded")
    assert attempts.keep_copy(folder, "graded").name == "0001.py"
    assert attempts.keep_copy(folder, "other").name == "copy-0001.py"
    assert attempts.keep_copy(folder, "other").name == "copy-0001.py"
    assert attempts.keep_copy(folder, '"""Task."""\n\ngraded').name == "0001.py", "a file that came from a cell"
    assert attempts.keep_copy(folder, "third \udcff").name == "copy-0002.py"
    assert (folder / "copy-0002.py").read_bytes() == b"third \xff"
    assert len(attempts.listing(folder)) == 1


def test_best_and_first(folder):
    assert attempts.best([]) is None and not attempts.passed_at_first([])
    graded(folder, "stub", state="not-attempted", score=0)
    graded(folder, "a", score=4, tier="correct")
    graded(folder, "b", state="failed", score=3)
    graded(folder, "c", score=4, tier="optimal")
    graded(folder, "d", state="error", score=0)
    found = attempts.listing(folder)
    assert attempts.best(found).tier == "optimal"
    assert attempts.passed_at_first(found), "what was not attempted is no attempt"
    assert not attempts.passed_at_first(found[2:])
    assert [a.honest for a in found] == [False, True, True, True, False]


def test_hints(folder):
    assert attempts.hints_taken(folder) == 0
    assert attempts.note_hints(folder, 2) == ""
    assert attempts.hints_taken(folder) == 2
    for damaged in ("{", "[]", '{"taken": "two"}', '{"taken": -1}'):
        (folder / "hints.json").write_text(damaged)
        assert attempts.hints_taken(folder) == 0
