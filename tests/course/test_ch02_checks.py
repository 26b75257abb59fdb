"""The rules that only chapter 2 has."""

import pytest
import torch

from dtlearn.checks.ch02_collectives._between_nodes import across_too_early, most_bytes_between
from dtlearn.checks.ch02_collectives._messages import no_narrower
from dtlearn.checks.ch02_collectives.broadcast import why
from dtlearn.checks.ch02_collectives.hierarchical_all_reduce import CASES
from dtlearn.checks.ch02_collectives.hierarchical_all_reduce import why as why_of_the_nodes
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
    assert found.text.startswith("node 1 (ranks 2 and 3) sent 16 bytes to other nodes; the budget is 8 (2.00x): ")
    assert "the first message of rank 2 goes to rank 0, in another node" in found.text


def test_one_ring_through_all_nodes_is_recognised():
    rule = most_bytes_between(lambda case: 2, lambda case, given: 8)
    assert "one ring, which crosses from node to node" in judged(rule, "s1", "s2", "s3", "s0", nbytes=9).text


def test_messages_with_fewer_digits_than_what_was_given_are_named():
    def judged_for(dtype):
        return judged(no_narrower(lambda given: dtype), "s1", "r0")  # sends float32

    found = judged_for(torch.float64)
    assert (found.code, found.rank) == ("DTL-RULE-DTYPE", 0)
    assert "sends float32; what was given is float64" in found.text
    assert all(judged_for(dtype) is None for dtype in (torch.float32, torch.bfloat16, torch.int32))


@pytest.mark.parametrize(
    ("root", "scripts", "said"),
    [
        (0, ("s1 s2", "r0", "r0"), ""),
        (1, ("s1", "s0", ""), "rank 0 sends before it has received anything, and the root is rank 1"),
        (1, ("r1", "r0", "r0"), "rank 1 is the root, and receives"),
        (
            0,
            ("s1", "r0", "j1"),
            "rank 1 keeps what it received, and passes it on to nobody: has it ended after its recv "
            "(a return or break there), or does only the root send?",
        ),
        (0, ("s1 s2", "r0", "j1"), ""),  # it waits for the wrong rank
        (0, ("", "j0", "j1"), ""),  # rank 1 has nothing to pass on
    ],
)
def test_of_a_broadcast_that_hangs_the_first_calls_are_looked_at(root, scripts, said):
    assert why(Case("a case", 3, seed=1), [{"root": root}], record(*scripts)) == said


def test_what_leaves_a_node_of_one_rank_is_never_too_early():
    assert "rank 0 goes to rank 2" in across_too_early(4, 2, record("s2", "r3", "r0", "s1"))
    assert across_too_early(4, 1, record("s2", "r3", "r0", "s1")) == ""


@pytest.mark.parametrize(
    ("size", "scripts", "said"),
    [
        (2, ("r1 i1", "s0", "s1", "s1"), "rank 2 takes rank 1, the number of its node, as its leader"),
        (3, ("r1", "s0", "s0", "s1", "s1", "s1"), "rank 3 takes rank 1, the number of its node, as its leader"),
        (2, ("s3", "s0", "s1", "s2"), "the first message of rank 0 goes to rank 3"),  # a ring
        (2, ("r1", "s0", "s1", "r2"), "the first message of rank 2 goes to rank 1"),  # rank 3 has not sent
        (3, ("i1", "i0", "i3", "i2", "i5", "i4"), "ranks 2 and 3 are treated as one node"),
        (2, ("i1", "i2", "i0", "i4", "i5", "i3"), "ranks 0-2 are treated as one node"),
        (3, ("i3", "i4", "i5", "i0", "i1", "i2"), "the first message of rank 0 goes to rank 3"),  # nodes and places
    ],
)
def test_first_messages_tell_what_was_taken_for_a_leader_or_for_a_node(size, scripts, said):
    assert across_too_early(len(scripts), size, record(*scripts)).startswith(said)


def test_too_few_chunks_are_named_while_nothing_was_sent():
    def why_in(world_size, *scripts):
        case = Case(
            "a case",
            world_size,
            seed=1,
            params=CASES["one node" if world_size == 2 else "a number of elements that nothing divides"],
        )
        return why_of_the_nodes(case, [], record(*scripts))

    assert "(2; if x is cut into 1, the number of nodes, an index is out of range)" in why_in(2, "", "")
    assert "index" not in why_in(2, "i1", "") + why_in(4, "", "", "", "")
