"""What is read from where: every wanted element once, from the one piece that has it, however tensors were cut."""

import itertools
import math

import pytest
import torch

from dtlearn.sharing.resharding import (
    Box,
    Piece,
    Read,
    even_part,
    flat_piece,
    in_whole,
    plan_reads,
    read_into,
    validate_reads,
    whole_piece,
)

SHAPES = [(10,), (3, 4), (4, 6), (2, 3, 4), (5, 1, 3), (1,), (), (0,), (3, 0)]


def reads_of(saved, wanted):
    return plan_reads([{"w": piece} for piece in saved], {"w": wanted})["w"]


def span(start, stop):
    return flat_piece([10], start, stop)


# A vector, as in ZeRO.


def test_the_example_of_the_docstring():
    saved = [span(*edges) for edges in [(0, 3), (3, 6), (6, 9), (9, 10)]]

    def read(number, start, stop, target):
        return Read("w", number, (start,), (stop,), *saved[number].boxes, *target.boxes)

    assert reads_of(saved, span(0, 5)) == [read(0, 0, 3, span(0, 5)), read(1, 3, 5, span(0, 5))]
    assert reads_of(saved, span(5, 10)) == [
        read(1, 5, 6, span(5, 10)),
        read(2, 6, 9, span(5, 10)),
        read(3, 9, 10, span(5, 10)),
    ]
    assert reads_of(saved, span(4, 4)) == []


@pytest.mark.parametrize(("before", "after"), list(itertools.product(range(1, 7), repeat=2)))
def test_every_element_is_read_once_and_what_did_not_move_in_one_piece(before, after):
    for numel in (0, 1, 5, 10):
        elements = []
        for rank in range(after):
            wanted = even_part([numel], 0, after, rank)
            reads = reads_of([even_part([numel], 0, before, r) for r in range(before)], wanted)
            elements += [element for read in reads for element in range(read.start[0], read.stop[0])]
            assert before != after or len(reads) <= 1
        assert sorted(elements) == list(range(numel))


def test_a_gap_and_an_overlap_are_found():
    with pytest.raises(ValueError, match="element 3 of w is in none of the saved states: a rank's state is missing"):
        reads_of([span(0, 3), span(6, 10)], span(0, 10))
    with pytest.raises(ValueError, match="element 8 of w is in none of the saved states"):
        reads_of([span(0, 8)], span(0, 10))
    with pytest.raises(ValueError, match="element 4 of w is in two of the saved states, also in number 0"):
        reads_of([span(4, 10), span(0, 5)], span(0, 10))
    with pytest.raises(ValueError, match=r"element \(\) of w is in two of the saved states, also in number 1"):
        reads_of([whole_piece(()), whole_piece(())], whole_piece(()))
    assert reads_of([whole_piece(()), Piece((), ())], whole_piece(()))  # the first rank's is read


# Boxes.


@pytest.mark.parametrize("shape", SHAPES)
def test_a_stretch_of_a_tensor_is_a_few_boxes_in_the_order_of_its_elements(shape):
    numbers = torch.arange(math.prod(shape)).reshape(shape)
    for start, stop in itertools.combinations_with_replacement(range(numbers.numel() + 1), 2):
        piece, elements = flat_piece(shape, start, stop), []
        for box in piece.boxes:
            assert box.offset == len(elements)
            elements += numbers[tuple(map(slice, box.start, box.stop))].flatten().tolist()
        assert elements == list(range(start, stop))
        assert len(piece.boxes) <= max(2 * len(shape) - 1, 1)


def test_the_picture_of_a_stretch():
    assert flat_piece((3, 4), 2, 9).boxes == (
        Box((0, 2), (1, 4), 0),
        Box((1, 0), (2, 4), 2),
        Box((2, 0), (3, 1), 6),
    )
    assert flat_piece((3, 4), 0, 12) == whole_piece((3, 4))


def stretches(shape, parts):
    """As ZeRO cuts a tensor."""
    size = -(-math.prod(shape) // parts)
    edges = [min(part * size, math.prod(shape)) for part in range(parts + 1)]
    return [flat_piece(shape, *pair) for pair in itertools.pairwise(edges)]


def cuts(shape):
    """All ways of a test to cut a tensor, each a list of its pieces."""
    ways = [[whole_piece(shape)], *(stretches(shape, parts) for parts in (2, 3, 5))]
    for dim, parts in itertools.product(range(len(shape)), (2, 3)):
        ways.append([even_part(shape, dim, parts, part) for part in range(parts)])
    return ways


def values_of(piece, full):
    """What a rank has that has this piece, and padding behind it."""
    boxes = [full[tuple(map(slice, box.start, box.stop))].flatten() for box in piece.boxes]
    return torch.cat([*boxes, full.new_full((2,), -1.0)])


@pytest.mark.parametrize("shape", SHAPES)
def test_what_was_cut_in_one_way_is_read_in_any_other(shape):
    """A shard of ZeRO from tensor-parallel parts, and the other way round."""
    full = torch.randn(shape)
    for saved, pieces in itertools.product(cuts(shape), repeat=2):
        tensors = [values_of(piece, full) for piece in saved]
        for wanted in pieces:
            expected = values_of(wanted, full)
            result = torch.full_like(expected, -1.0)
            read_into(result, reads_of(saved, wanted), tensors)
            assert torch.equal(result, expected)


def test_a_missing_part_and_one_that_is_there_twice_are_found_in_any_dim():
    for shape in [(4, 6), (2, 3, 4)]:
        for saved, pieces in itertools.product(cuts(shape), repeat=2):
            for wanted in (piece for piece in pieces if piece.boxes):
                lacking = [piece for piece in saved if reads_of_overlap(piece, wanted)]
                for piece in lacking:
                    left = [other for other in saved if other is not piece]
                    with pytest.raises(ValueError, match=r"element \(.*\) of w is in none"):
                        reads_of(left, wanted)
                    with pytest.raises(ValueError, match=r"element \(.*\) of w is in two .* number \d"):
                        reads_of([*saved, piece], wanted)


def reads_of_overlap(piece, wanted):
    """Whether two pieces have an element in common."""
    counts = torch.zeros(piece.shape)
    for box in (*piece.boxes, *wanted.boxes):
        counts[tuple(map(slice, box.start, box.stop))] += 1
    return bool((counts == 2).any())


def test_the_element_that_is_named_is_the_first_that_is_missing():
    saved = [even_part((4, 6), 1, 3, part) for part in (0, 2)]
    with pytest.raises(ValueError, match=r"element \(0, 2\) of w is in none"):
        reads_of(saved, whole_piece((4, 6)))
    with pytest.raises(ValueError, match=r"element \(2, 3\) of w is in none"):
        reads_of(saved, flat_piece((4, 6), 15, 16))


def test_a_tensor_of_another_shape_is_refused():
    for other in ((4, 8), (24,)):
        with pytest.raises(ValueError, match=r"w is \(4, 6\) here, and .* in number 1 of the saved states"):
            reads_of([even_part((4, 6), 0, 2, 0), whole_piece(other)], whole_piece((4, 6)))


def test_a_plan_from_elsewhere_is_validated():
    saved, wanted = [even_part((4, 6), 1, 2, part) for part in range(2)], whole_piece((4, 6))
    reads = reads_of(saved, wanted)
    validate_reads(reads, "w", wanted, saved)
    with pytest.raises(ValueError, match=r"element \(0, 3\) of w is in none"):
        validate_reads(reads[:1], "w", wanted, saved)
    with pytest.raises(ValueError, match=r"element \(0, 0\) of w is in two"):
        validate_reads([reads[0], *reads], "w", wanted, saved)


def test_parts_that_are_not_contiguous_are_read():
    saved = torch.arange(24.0).reshape(6, 4).t()  # (4, 6)
    result = torch.zeros(2, 6)
    wanted = even_part((4, 6), 0, 2, 1)
    read_into(result, reads_of([whole_piece((4, 6))], wanted), {0: saved})
    assert torch.equal(result, saved[2:])


def test_a_part_of_columns_lies_in_the_whole():
    piece = in_whole(flat_piece((4, 3), 6, 12), (4, 6), 1, 1)
    assert [(box.start, box.stop) for box in piece.boxes] == [((2, 3), (4, 6))]
    assert in_whole(flat_piece((4, 3), 6, 12), (4, 3), None, 0) == flat_piece((4, 3), 6, 12)


def test_rows_of_padding_are_in_no_box():
    """13 rows on 2 ranks are 7 each: of the second part 6 are rows of the whole."""
    assert in_whole(flat_piece((5, 2), 0, 10), (9, 2), 0, 1).boxes == even_part((9, 2), 0, 2, 1).boxes
    boxes = in_whole(flat_piece((7, 16), 5, 112), (13, 16), 0, 1).boxes
    assert [(box.start, box.stop, box.offset) for box in boxes] == [((7, 5), (8, 16), 0), ((8, 0), (13, 16), 11)]
    assert in_whole(flat_piece((7, 2), 12, 14), (13, 2), 0, 1).boxes == ()


def test_only_rows_are_padded():
    with pytest.raises(AssertionError, match="only rows are padded"):
        in_whole(flat_piece((2, 4), 0, 8), (2, 7), 1, 1)
