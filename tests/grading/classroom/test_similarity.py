"""Copies are found under new names, comments and layout; what all share is nobody's."""

from dtlearn.grading.classroom.gradebook import csv_text
from dtlearn.grading.classroom.reading.fingerprints import fingerprints
from dtlearn.grading.classroom.similarity import HEADER, alike_in_class, similar
from dtlearn.grading.classroom.submissions import Submission

COPY = '''
import torch.distributed as dist

def mean(x):
    """My own words."""
    left, right = (dist.get_rank() - 1) % dist.get_world_size(), (dist.get_rank() + 1) % dist.get_world_size()
    total = x.clone()
    for step in range(dist.get_world_size() - 1):
        got = x.clone()
        ops = [dist.P2POp(dist.isend, total, right), dist.P2POp(dist.irecv, got, left)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        total += got if step % 2 == 0 else -got
    return total / (1 + len([left, right, step]))
'''
RENAMED = (
    COPY.replace("left", "before")
    .replace("right", "after")
    .replace("total", "acc")
    .replace("got", "buffer")
    .replace('"""My own words."""', "# nothing copied here")
    .replace("    for step", "\n    # round and round\n    for step")
)
OTHER = """
import torch.distributed as dist

def mean(x):
    parts = [x.new_empty(x.shape) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x)
    while len(parts) > 1:
        parts.append(parts.pop(0) + parts.pop(0))
    return parts[0].div_(float(dist.get_world_size()))
"""


def test_a_copy_with_new_names_and_comments_has_the_same_fingerprints():
    assert fingerprints(COPY) == fingerprints(RENAMED)
    assert len(fingerprints(COPY) & fingerprints(OTHER)) < 0.3 * len(fingerprints(OTHER))


def test_pairs():
    prints = {"ann": fingerprints(COPY), "bob": fingerprints(RENAMED), "eve": fingerprints(OTHER)}
    assert similar(prints, []) == [("ann", "bob", 1.0, len(prints["ann"]))]
    assert not similar(prints, [fingerprints(COPY)])  # it is the course's own solution


def test_what_a_fifth_of_the_class_has_is_the_exercises_way():
    everybody = {f"s{k}": fingerprints(COPY) for k in range(20)}
    assert not similar({**everybody, "eve": fingerprints(OTHER)}, [])
    assert len(similar({f"s{k}": fingerprints(COPY) for k in range(4)}, [])) == 6


def test_texts_that_are_no_python_and_short_ones():
    for text in ("", "def f(x", "'''", "\x00", "((((" * 500, "x = 1\n", "é = '\ud800'"):
        assert isinstance(fingerprints(text), frozenset)
    assert not similar({"a": fingerprints("x = 1\n"), "b": fingerprints("x = 1\n")}, [])


def test_a_class_and_its_table(course, exercise):
    handed_in = [
        Submission(name, prints={"ch01.mean": fingerprints(text)})
        for name, text in {"ann": COPY, "=bob": RENAMED, "ann/old": COPY}.items()
    ]
    rows = alike_in_class(course, [exercise], handed_in)
    assert [row[:4] for row in rows] == [["ch01.mean", "=bob", "ann", 1.0]]
    assert csv_text([HEADER, *rows]).splitlines()[1].startswith('"ch01.mean","\'=bob","ann",1.0,')
