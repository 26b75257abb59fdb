"""What a part says of itself, and which parts are no class."""

from dataclasses import replace

import pytest

from dtlearn.grading.classroom.batch import ClassPlan
from dtlearn.grading.classroom.parts.record import Part, check_whole, entries, forget, how_graded, read_part
from dtlearn.grading.classroom.reading.layouts import HandIn

SHARES = [[HandIn("ann", "ann.zip", ())], [HandIn("bob", "bob", ()), HandIn("\udcff", "\udcff", ())], []]


@pytest.fixture
def parts(tmp_path):
    made = [Part(k, 3, HOW, entries(share), tmp_path / str(k)) for k, share in enumerate(SHARES, start=1)]
    for part in made:
        part.folder.mkdir()
    return made


HOW = {"exercises": "ch01.mean", "secret": "abc"}


def test_a_part_is_there_when_it_is_done_and_gone_when_it_is_graded_again(parts):
    part = parts[1]
    with pytest.raises(ValueError, match=r"graded to its end \(it has no part.json\): run that part's command again"):
        read_part(part.folder)
    part.save()
    assert read_part(part.folder) == part
    forget(part.folder)
    with pytest.raises(ValueError, match="graded to its end"):
        read_part(part.folder)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"format": 1}', '{"format": 2}', '{"format": 1, "part": 1, "of": 1}']
)
def test_a_damaged_record_is_no_part(parts, text):
    (parts[0].folder / "part.json").write_text(text)
    with pytest.raises(ValueError, match=r"part\.json"):
        read_part(parts[0].folder)


def test_all_parts_are_a_class_in_any_order(parts):
    check_whole(parts[::-1], {"exercises": "ch01.mean"}, SHARES)


def test_parts_that_are_no_class_are_refused_with_what_to_do(parts):
    first, second, third = parts
    for wrong, words in (
        ([first, third], r"of 3 parts, these are missing: 2. Grade them \(--part 2/3\)"),
        ([first, second, third, replace(second, folder=first.folder)], "part 2 is there more than once: .*/2 and .*/1"),
        ([first, second, replace(third, of=4)], "is one of 3 parts, .*/3 one of 4"),
        ([first, second, replace(third, how={**HOW, "secret": "x"})], "The secret: x there, abc here"),
        ([first, replace(second, entries=("bob",)), third], r"part 2 of 3, .* \(1 difference, such as "),
    ):
        with pytest.raises(ValueError, match=words):
            check_whole(wrong, HOW, SHARES)
    with pytest.raises(ValueError, match=r"otherwise than it is merged. The exercises: ch01.mean there, ch02 here"):
        check_whole(parts, {"exercises": "ch02"}, SHARES)


def test_what_decides_a_verdict_is_in_how_it_was_graded(course, exercise, tmp_path):
    plan = ClassPlan(course, [exercise], b"a secret of the class")
    how = how_graded(course, [exercise], plan)
    assert how_graded(course, [exercise], plan) == how
    assert how_graded(course, [exercise]).items() <= how.items()
    assert "secret of" not in str(how)
    assert how_graded(course, [exercise], replace(plan, secret=b"another of the class"))["secret"] != how["secret"]
    (tmp_path / "hidden" / "ch01_ranks").mkdir(parents=True)
    hidden = replace(plan, hidden=tmp_path / "hidden")
    empty = how_graded(course, [exercise], hidden)["hidden checks"]
    (tmp_path / "hidden" / "ch01_ranks" / "mean.py").write_text("CHECK = 1\n")
    assert len({empty, how["hidden checks"], how_graded(course, [exercise], hidden)["hidden checks"]}) == 3
    check = course.root / "dtlearn" / "checks" / "ch01_ranks" / "mean.py"
    check.write_text(check.read_text() + "# changed\n")
    assert how_graded(course, [exercise], plan)["code of the course"] != how["code of the course"]
