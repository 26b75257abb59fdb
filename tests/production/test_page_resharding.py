"""The page reads the same boxes as `sharing.resharding`, for every pair of layouts, and gives the same values."""

import itertools

import pytest
import torch

from dtlearn.production import page_resharding as page
from dtlearn.sharing.resharding import Box, Piece, plan_reads, read_into

SHAPE = (12, 8, 4)
LAYOUTS = [page.split(SHAPE, dim, ranks) for dim in range(3) for ranks in (1, 2, 4)] + [page.split(SHAPE, 0, 5)]
WHOLE = torch.arange(12 * 8 * 4.0).view(SHAPE)


def parts(layout):
    everything = Box((0, 0, 0), SHAPE)
    return [WHOLE[page.place(box, everything)].clone() for box in layout]


@pytest.mark.parametrize(("saved", "wanted"), list(itertools.product(LAYOUTS, LAYOUTS))[::4])
def test_every_layout_is_read_from_every_other(saved, wanted):
    files = parts(saved)
    for rank, expected in enumerate(parts(wanted)):
        assert torch.equal(page.load(rank, saved, wanted, files), expected)
        piece = Piece(SHAPE, (wanted[rank],))
        reads = plan_reads([{"w": Piece(SHAPE, (box,))} for box in saved], {"w": piece})["w"]
        ours = [(r.writer, r.box.start, r.box.stop) for r in page.plan(saved, wanted) if r.reader == rank]
        assert sorted(ours) == sorted((r.saved, r.start, r.stop) for r in reads)
        real = torch.empty(wanted[rank].shape)
        read_into(real, reads, files)
        assert torch.equal(real, expected)


def test_the_docstring_shows_what_it_plans():
    reads = page.plan(page.split((4, 4), 0, 2), page.split((4, 4), 1, 2))
    assert [(r.writer, r.box.start, r.box.stop) for r in reads if r.reader == 1] == [
        (0, (0, 2), (2, 4)),
        (1, (2, 2), (4, 4)),
    ]


@pytest.mark.parametrize(("length", "ranks"), [(5, 2), (5, 4), (2, 4), (6, 3)])
def test_parts_are_those_of_chunk_and_none_is_lost(length, ranks):
    """With 5 rows on 4 ranks the last one has none."""
    rows = torch.arange(length)
    chunks = [*rows.chunk(ranks), *[rows[:0]] * ranks][:ranks]
    layout = page.split((length, 3), 0, ranks)
    assert [rows[box.start[0] : box.stop[0]].tolist() for box in layout] == [chunk.tolist() for chunk in chunks]
    assert all(page.plan(layout, page.split((length, 3), dim, 2)) for dim in range(2))


def test_what_two_ranks_have_saved_is_refused():
    """Counted twice: 48 elements, and 24 of them again."""
    saved = page.split(SHAPE, 0, 2)
    wants = 12 * 8 * 4
    with pytest.raises(ValueError, match=f"rank 0 wants {wants} elements, and {3 * wants // 2} were saved"):
        page.plan([*saved, saved[1]], page.split(SHAPE, 0, 1))


def test_a_missing_file_is_named():
    saved = page.split(SHAPE, 0, 4)[:3]
    with pytest.raises(ValueError, match="rank 1 wants 192 elements, and 96 were saved"):
        page.plan(saved, page.split(SHAPE, 0, 2))


def test_a_wrong_overlap_would_be_seen(monkeypatch):
    saved, wanted = page.split(SHAPE, 0, 2), page.split(SHAPE, 1, 2)
    monkeypatch.setattr(page, "place", lambda box, inside: tuple(map(slice, box.shape)))
    assert not torch.equal(page.load(1, saved, wanted, parts(saved)), parts(wanted)[1])
