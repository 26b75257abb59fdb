import pytest

from dtlearn.viz.network.sent_bytes import sent_by, sent_bytes, sent_words
from tests.viz.records import all_reduce_run, chain_run, event, record

PAIR = record([event(0, 0, "isend", 0, 1, nbytes=500, peer=1)], [event(1, 0, "isend", 0, 1, nbytes=500, peer=0)])


def test_only_sends_count():
    assert sent_by(chain_run()) == [1000, 0]


def test_the_busiest_rank_is_named_and_panels_have_one_scale():
    figure = sent_bytes({"chain": chain_run(), "pair": PAIR}, "Bytes")
    left, right = figure.axes
    assert left.get_title(loc="left") == "chain: rank 0 sends 1 kB"
    assert right.get_title(loc="left") == "pair: every rank sends 500 bytes"
    assert left.get_ylim() == right.get_ylim()
    assert [bar.get_height() for bar in left.patches] == [1000, 0]
    assert sent_words({"pair": PAIR}) == "pair: rank 0 sends 500 bytes, rank 1 sends 500 bytes."


def test_a_record_without_messages_is_refused():
    with pytest.raises(ValueError, match="at least one message"):
        sent_bytes({"all": all_reduce_run()}, "x")
