"""Each student is in exactly one part, and parts are about equally much work."""

import random

import pytest

from dtlearn.grading.classroom.parts.split import split
from dtlearn.grading.classroom.reading.layouts import HandIn


def hand_ins(**several: int) -> list[HandIn]:
    """So many of each student."""
    return [HandIn(who, f"{who}@{k}", ()) for who, number in several.items() for k in range(number)]


def students(part: list[HandIn]) -> set[str]:
    return {one.student for one in part}


@pytest.mark.parametrize("num_parts", [1, 2, 7, 20, 60])
def test_all_of_a_student_is_in_one_part_and_parts_differ_by_one_student(num_parts):
    found = hand_ins(**{f"s{k}": 1 + (k % 5 == 0) for k in range(50)})
    parts = split(found, num_parts, who=str, older_too=False)
    assert len(parts) == num_parts
    assert sorted((one for part in parts for one in part), key=lambda one: one.entry) == sorted(
        found, key=lambda one: one.entry
    )
    sizes = [len(students(part)) for part in parts]
    assert sum(sizes) == 50 and max(sizes) - min(sizes) <= 1


def test_where_older_hand_ins_are_graded_too_they_are_work():
    found = hand_ins(ann=6, bob=1, cid=1, dan=2, eve=2)
    parts = split(found, 2, who=str, older_too=True)
    assert [sorted(students(part)) for part in parts] == [["ann"], ["bob", "cid", "dan", "eve"]]


def test_two_names_of_one_student_are_in_one_part():
    found = [HandIn(name, name, ()) for name in ("ann", "bob", "cid", "zoe")]
    parts = split(found, 4, who={"ann": "1", "bob": "2", "cid": "3", "zoe": "1"}.__getitem__, older_too=False)
    assert [sorted(students(part)) for part in parts] == [["ann", "zoe"], ["bob"], ["cid"], []]


def test_the_order_in_which_they_are_found_does_not_matter():
    found = hand_ins(**{f"s{k}": 1 + k % 3 for k in range(30)})
    mixed = random.Random(0).sample(found, len(found))
    for older_too in (True, False):
        assert split(found, 4, who=str, older_too=older_too) == split(mixed, 4, who=str, older_too=older_too)
