import pytest

from dtlearn.memory.ledger.record import MemoryRecord
from dtlearn.viz.memory.module_map import NOBODY, Tile, bytes_by_module, module_map, tiles
from tests.viz.memory.records import MILLION, record


def test_tiles_have_the_areas_and_fill_the_whole():
    whole = Tile(1, 2, 6, 4)
    areas = [6, 6, 4, 3, 2, 2, 1]  # the example of the paper
    placed = tiles(areas, whole)
    assert [round(t.width * t.height, 6) for t in placed] == areas
    assert min(t.x for t in placed) == 1 and min(t.y for t in placed) == 2
    assert max(t.x + t.width for t in placed) == pytest.approx(7)
    assert max(t.y + t.height for t in placed) == pytest.approx(6)
    overlaps = [
        (a, b)
        for i, a in enumerate(placed)
        for b in placed[:i]
        if min(a.x + a.width, b.x + b.width) - max(a.x, b.x) > 1e-9
        and min(a.y + a.height, b.y + b.height) - max(a.y, b.y) > 1e-9
    ]
    assert not overlaps
    assert [(t.width, t.height) for t in placed[:2]] == [(3, 2), (3, 2)], "as in the paper: two of 3 by 2 first"


def test_areas_that_are_not_above_0_are_refused():
    assert tiles([], Tile(0, 0, 1, 1)) == []
    with pytest.raises(ValueError, match="above 0"):
        tiles([1, 0], Tile(0, 0, 1, 1))


def test_bytes_are_those_of_the_peak_or_of_a_tick_by_module_and_category():
    assert bytes_by_module(record()) == {
        "blocks.0": {"parameters": 2 * MILLION, "activations": 3 * MILLION},
        NOBODY: {"temporaries": 4 * MILLION},
        "blocks.1": {"gradients": MILLION},
    }
    assert bytes_by_module(record(), at=0) == {"blocks.0": {"parameters": 2 * MILLION}}
    assert list(bytes_by_module(record(), depth=2)) == ["blocks.0.up", NOBODY, "blocks.1"]
    with pytest.raises(ValueError, match="depth"):
        bytes_by_module(record(), depth=0)


def test_every_module_has_a_frame_and_its_bytes_in_words():
    fig = module_map(record(), "t", "a GPT")
    (ax,) = fig.axes
    words = [text.get_text() for text in ax.texts]
    assert "blocks.0\n5.00 MB, 50 %" in words and "no module\n4.00 MB, 40 %" in words
    assert any(text.startswith("a GPT; 10.0 MB") and "in backward" in text for text in words)
    assert len(ax.patches) == 4 + 3, "a tile per category and a frame per module"


def test_small_modules_have_a_shorter_name_or_none():
    # A million to one: the small module is a line at the edge.
    ax = module_map(record(activation=10**12)).axes[0]
    assert [text.get_text() for text in ax.texts if text.get_text().startswith("blocks.1")] == []


def test_a_record_without_bytes_has_no_map():
    with pytest.raises(ValueError, match="alive at the peak"):
        module_map(MemoryRecord((), (), 0))
