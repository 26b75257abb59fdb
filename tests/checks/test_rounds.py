import pytest

from dtlearn.checks.rounds import beside_the_ring, in_a_ring, most_rounds
from dtlearn.grading.check import Case
from tests.grading.scripts import record


def judged(rule, *scripts, nbytes=4):
    return rule(Case("a case", len(scripts), seed=1), [], record(*scripts, nbytes=nbytes))


def test_too_many_rounds_are_named_with_their_messages():
    rule = most_rounds("ceil(log2(N))")
    assert judged(rule, "s1 s2", "r0 s3", "r0", "r1") is None
    found = judged(rule, "s1", "r0 s2", "r1 s3", "r2")
    assert (found.code, found.rank) == ("DTL-RULE-ROUNDS", 2)
    assert found.text == "3 messages follow one another (0 to 1, 1 to 2, 2 to 3); 2 in a row are enough"
    found = judged(rule, "s1 s2 s3", "r0", "r0", "r0")
    assert "(0 to 1, 0 to 2, 0 to 3)" in found.text
    long = judged(most_rounds("2"), "s1 s1 s1 s1 s1 s1 s1 s1", "r0 r0 r0 r0 r0 r0 r0 r0")
    assert long.text.startswith("8 messages") and "0 to 1, ...)" in long.text


def test_who_receives_from_anyone_is_told_to_name_the_rank():
    made = record("s1", "r0")
    made = type(made)(2, tuple(type(e)(**{**vars(e), "peer": None if e.op == "recv" else 1}) for e in made))
    found = most_rounds("9")(Case("a case", 2, seed=1), [], made)
    assert found.code == "DTL-RULE-CALLS" and "name the rank to receive from" in found.text


@pytest.mark.parametrize(
    ("scripts", "wrong"),
    [(("s1", "r0 s2", "r1 s0"), None), (("s1 s2", "r0", "r0"), "rank 0 sends to rank 2; in this ring it may send")],
)
def test_a_ring_sends_to_the_right(scripts, wrong):
    found = judged(in_a_ring(), *scripts)
    assert found is None if wrong is None else (found.code == "DTL-RULE-ROUTE" and wrong in found.text)


@pytest.mark.parametrize(
    ("scripts", "said"),
    [
        (("s1 r2", "r0 s2", "r1 s0"), ""),
        (("i1 r1", "i2 r2", "i0 r0"), "in this ring rank 0 may receive from rank 2 only, its left neighbour"),
        (("i1 r2", "i0 r0", "i0 r1"), "in this ring rank 1 may send to rank 2 only, its right neighbour"),
    ],
)
def test_messages_beside_the_ring_are_named(scripts, said):
    assert beside_the_ring(Case("a case", 3, seed=1), [], record(*scripts)) == said
