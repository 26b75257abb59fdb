import pytest

from dtlearn.grading.message_chain import longest_chain
from tests.grading.scripts import record


@pytest.mark.parametrize(
    ("scripts", "rounds"),
    [
        (("", ""), 0),
        (("s1", "r0"), 1),
        (("s1 s2 s3", "r0", "r0", "r0"), 3),  # one after the other
        (("i1 i2 i3 w w w", "r0", "r0", "r0"), 3),  # at once, and yet through one port
        (("s1", "r0 s2", "r1 s3", "r2"), 3),  # a chain
        (("s1 s2", "r0 s3", "r0", "r1"), 2),  # a tree
        (("i1 r2 w i1 r2 w", "i2 r0 w i2 r0 w", "i0 r1 w i0 r1 w"), 2),  # a ring of three, two steps
        (("j2 i1 w w j2 i1 w w", "j0 i2 w w j0 i2 w w", "j1 i0 w w j1 i0 w w"), 2),  # with irecv
        (("s1 r2", "r0 s2", "r1 s0"), 3),  # the same ring, blocking: one step takes three
        (("j1 j2 s1 s2 w w", "r0 s0", "r0 s0"), 3),  # 1 answers while 2 is being told
        (("j1 j2 s1 w s2 w", "r0 s0", "r0 s0"), 4),  # 2 is told after 1 has answered
        (("s1 s2", "j2 s2 w r0", "r1 i1 r0 w"), 4),  # 0's message to 1 is taken late; that to 2 is behind it
    ],
)
def test_rounds(scripts, rounds):
    assert len(longest_chain(record(*scripts))) == rounds


def test_the_chain_is_named():
    assert longest_chain(record("s1", "r0 s2", "r1 s3", "r2")) == [(0, 1), (1, 2), (2, 3)]


def test_a_message_without_its_other_half_is_left_out():
    assert longest_chain(record("s1 s1", "r0")) == [(0, 1)]


def test_isends_that_wait_for_different_ranks_can_pass_each_other():
    # 0's first isend is taken only after its second one has done its work.
    assert len(longest_chain(record("i1 i2 w w", "r2 r0", "r0 s1"))) == 3
