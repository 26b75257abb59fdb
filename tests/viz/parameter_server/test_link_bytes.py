import pytest

from dtlearn.viz.parameter_server.link_bytes import bytes_on_links, link_bytes
from tests.viz.records import event, record

LINKS = {"1 server": [(4e6, 4e6), (1e6, 1e6), (1e6, 1e6)], "ring": [(1.5e6, 1.5e6)] * 3}
SERVERS = {"1 server": 1, "ring": 0}
FORMULA = {"1 server": [8e6, 2e6, 2e6], "ring": [3e6] * 3}


def test_messages_are_counted_at_both_ends_and_collectives_are_not():
    run = record(
        [event(0, 0, "isend", 0, 1, peer=1, nbytes=300), event(0, 1, "recv", 1, 2, peer=1, nbytes=100)],
        [
            event(1, 0, "irecv", 0, 1, peer=0, nbytes=300),
            event(1, 1, "send", 1, 2, peer=0, nbytes=100),
            event(1, 2, "all_reduce", 2, 3, nbytes=999),
        ],
    )
    assert bytes_on_links(run) == [(300, 100), (100, 300)]
    assert bytes_on_links(run, steps=2) == [(150, 50), (50, 150)]


def test_bars_marks_and_the_hot_link():
    fig = link_bytes(LINKS, SERVERS, FORMULA, "t", "l")
    server, ring = fig.axes
    assert [bar.get_height() for bar in server.patches] == [4, 4, 1, 1, 1, 1]
    assert [list(line.get_ydata()) for line in server.lines] == [[8, 8], [2, 2], [2, 2]]
    assert [(t.get_text(), t.get_fontweight()) for t in server.texts] == [("8.00", "bold"), ("2.00", "normal")]
    assert [label.get_text() for label in server.get_xticklabels()] == ["S0", "W0", "W1"]
    assert [label.get_text() for label in ring.get_xticklabels()] == ["0", "1", "2"]
    assert [(t.get_text(), t.get_fontweight()) for t in ring.texts] == [("3.00", "normal")]


def test_other_ways_are_refused():
    for arguments in (({}, {}, {}), (LINKS, SERVERS, {"ring": [1.0]}), (LINKS, {"ring": 0}, FORMULA)):
        with pytest.raises(ValueError, match="of the same ways are needed"):
            link_bytes(*arguments)
