"""The rules that only chapter 2 has."""

from dtlearn.checks.ch02_collectives._between_nodes import most_bytes_between
from dtlearn.grading.check import Case
from tests.grading.scripts import record


def judged(rule, *scripts, nbytes=4):
    return rule(Case("a case", len(scripts), seed=1), [], record(*scripts, nbytes=nbytes))


def test_bytes_between_nodes_are_those_of_all_ranks_of_a_node():
    rule = most_bytes_between(lambda case: 2, lambda case, given: 8)
    inside = ("s1 r1", "r0 s0", "s3 r3", "r2 s2")
    assert judged(rule, *inside, nbytes=400) is None
    across = ("r2", "r3", "s0", "s1")
    assert judged(rule, *across) is None
    found = judged(rule, *across, nbytes=8)
    assert (found.code, found.rank) == ("DTL-RULE-BYTES", 2)
    assert found.text.startswith("node 1 (ranks 2 to 3) sent 16 bytes to other nodes; the budget is 8 (2.00x): ")
    assert "the first message of rank 2 goes to rank 0, in another node" in found.text


def test_one_ring_through_all_nodes_is_recognised():
    rule = most_bytes_between(lambda case: 2, lambda case, given: 8)
    assert "one ring, which crosses from node to node" in judged(rule, "s1", "s2", "s3", "s0", nbytes=9).text
