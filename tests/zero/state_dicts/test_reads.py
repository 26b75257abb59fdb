"""What is read from where: every wanted element once, from the one state that has it."""

import pytest

from dtlearn.zero.partition.flat import plan_flat
from dtlearn.zero.state_dicts.reads import Read, plan_reads

SIZES = {"w": 10, "b": 3, "none": 0, "v": 6}


def pieces(num_ranks, rank, cap=None):
    spans = {s.parameter: (s.start, s.stop) for s in plan_flat(list(SIZES.values()), num_ranks, cap).slices(rank)}
    return {
        name: {"shape": [size], "start": spans.get(n, (0, 0))[0], "stop": spans.get(n, (0, 0))[1]}
        for n, (name, size) in enumerate(SIZES.items())
    }


def span(start, stop):
    return {"shape": [10], "start": start, "stop": stop}


def test_the_example_of_the_docstring():
    saved = [{"w": span(*edges)} for edges in [(0, 3), (3, 6), (6, 9), (9, 10)]]
    assert plan_reads(saved, {"w": span(0, 5)})["w"] == [Read("w", 0, 0, 3, 0), Read("w", 1, 3, 5, 0)]
    assert plan_reads(saved, {"w": span(5, 10)})["w"] == [
        Read("w", 1, 5, 6, 2),
        Read("w", 2, 6, 9, 0),
        Read("w", 3, 9, 10, 0),
    ]


@pytest.mark.parametrize("before", range(1, 7))
@pytest.mark.parametrize("after", range(1, 7))
def test_every_element_is_read_once_and_what_did_not_move_in_one_piece(before, after):
    for cap in (None, 4):
        saved = [pieces(before, rank) for rank in range(before)]
        elements = []
        for rank in range(after):
            wanted = pieces(after, rank, cap)
            for name, reads in plan_reads(saved, wanted).items():
                for read in reads:
                    elements += [(name, element) for element in range(read.start, read.stop)]
                    assert read.start - read.offset == saved[read.saved][name]["start"]
                assert sum(read.stop - read.start for read in reads) == wanted[name]["stop"] - wanted[name]["start"]
                assert before != after or cap or len(reads) <= 1
        assert sorted(elements) == sorted((name, element) for name, size in SIZES.items() for element in range(size))


def test_a_gap_and_an_overlap_are_found():
    wanted = {"w": span(0, 10)}
    with pytest.raises(ValueError, match="element 3 of w is in none of the saved states"):
        plan_reads([{"w": span(0, 3)}, {"w": span(6, 10)}], wanted)
    with pytest.raises(ValueError, match="element 8 of w is in none of the saved states"):
        plan_reads([{"w": span(0, 8)}], wanted)
    with pytest.raises(ValueError, match="element 4 of w is in two of the saved states, also in number 0"):
        plan_reads([{"w": span(4, 10)}, {"w": span(0, 5)}], wanted)
