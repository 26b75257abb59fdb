from dtlearn.runtime.record.record import merge
from dtlearn.viz.tensor_parallel.local_block import LocalBlock
from dtlearn.viz.tensor_parallel.placements import draw_placements, placement_words
from tests.viz.tensor_parallel.layers import call


def block(placement, offset, rows, at_ns):
    return LocalBlock((placement,), ("t",), (2, 2), offset, rows, at_ns)


RANKS = [
    [
        block("Partial()", (0, 0), ((1, 2), (3, 4)), 0),
        block("Shard(0)", (0, 0), ((11, 22),), 10),
        block("Replicate()", (0, 0), ((11, 22), (33, 44)), 20),
        block("Shard(1)", (0, 0), ((11,), (33,)), 30),
        block("Shard(0)", (0, 0), ((11, 22),), 40),
    ],
    [
        block("Partial()", (0, 0), ((10, 20), (30, 40)), 0),
        block("Shard(0)", (1, 0), ((33, 44),), 10),
        block("Replicate()", (0, 0), ((11, 22), (33, 44)), 20),
        block("Shard(1)", (0, 1), ((22,), (44,)), 30),
        block("Shard(0)", (1, 0), ((33, 44),), 40),
    ],
]
RECORD = merge(
    2,
    [
        [
            call(0, "broadcast", -5, "", 8),
            call(1, "reduce_scatter_tensor", 5, "", 16),
            call(2, "all_gather_into_tensor", 15, "", 8),
            call(3, "all_to_all_single", 35, "", 8),
        ],
        [],
    ],
)


def texts(fig):
    return [text.get_text() for text in fig.axes[0].texts]


def test_elements_stand_where_they_are_in_the_whole():
    fig = draw_placements([blocks[:3] for blocks in RANKS], RECORD, "t", "l")
    boxes = {gid: [p for p in fig.axes[0].patches if p.get_gid() == gid] for gid in ("rank 0", "rank 1")}
    assert [len(those) for those in boxes.values()] == [4 + 2 + 4] * 2
    upper, lower = boxes["rank 0"][4], boxes["rank 1"][4]  # the first elements of Shard(0)
    assert abs(lower.get_y() - upper.get_y() - upper.get_height()) < 1e-9
    assert {"rank 0", "rank 1", "Partial()", "Y[T, F] {U_t}", "+", "33"} <= set(texts(fig))


def test_what_was_sent_stands_between_two_states():
    sent = [text for text in texts(draw_placements(RANKS, RECORD)) if "sen" in text]
    assert sent == [
        "reduce-scatter: each rank sends 8 bytes",
        "all-gather: each rank sends 8 bytes",
        "nothing is sent",
        "all-to-all: each rank sends 4 bytes",
    ]
    assert not [text for text in texts(draw_placements(RANKS)) if "sen" in text]


def test_partial_elements_are_explained_where_there_are_some():
    assert len(draw_placements(RANKS).legends[0].get_texts()) == 3
    assert len(draw_placements([blocks[1:] for blocks in RANKS]).legends[0].get_texts()) == 2


def test_words():
    words = placement_words(RANKS, RECORD)
    assert words.startswith("Partial(), Y[T, F] {U_t}: rank 0 a term of the sum, of all elements; rank 1 a term")
    assert "Then reduce-scatter: each rank sends 8 bytes. Shard(0), Y[T_t, F]: rank 0 row 0; rank 1" in words
    assert "Then nothing is sent. Shard(1), Y[T, F_t]: rank 0 column 0; rank 1 column 1." in words
    wide = LocalBlock(("Shard(0)",), ("t",), (4, 2), (2, 0), ((1, 2), (3, 4)), 0)
    assert placement_words([[wide]]).endswith("rank 0 rows 2 to 3.")
    empty = LocalBlock(("Shard(0)",), ("t",), (2, 2), (2, 0), (), 0)
    assert placement_words([[empty]]).endswith("rank 0 nothing.")
