"""The store of a lab, as its process serves it and as ranks see it."""

import socket
import threading

import pytest

from dtlearn.runtime import wire
from dtlearn.runtime.rank import store


@pytest.fixture
def served():
    """Its address; the head's end of its line is closed after the test, and it ends."""
    head, theirs = socket.socketpair()
    server = threading.Thread(target=store.main, args=(None, theirs))
    server.start()
    head.settimeout(30)
    told, _ = wire.receive(head)
    assert told["kind"] == "ready"
    yield f"127.0.0.1:{told['connection']['port']}"
    head.close()
    server.join(30)
    theirs.close()
    assert not server.is_alive()


def test_ranks_find_what_others_left_there(served):
    first, second = (store.connect(served, "run", 20.0) for _ in range(2))
    first.set("address of rank 0", "here")
    assert second.get("address of rank 0") == b"here"


def test_under_another_prefix_there_is_nothing_of_it(served):
    earlier, later = store.connect(served, "cell 1", 20.0), store.connect(served, "cell 2", 20.0)
    earlier.set("key", "old")
    assert not later.check(["key"])
    assert earlier.check(["key"])


def test_who_waits_for_what_never_comes_is_told_in_time(served):
    view = store.connect(served, "run", 0.3)
    with pytest.raises(Exception, match=r"(?i)timeout"):
        view.get("never")


def test_its_port_is_its_own(served):
    """Nobody else can listen there while it serves."""
    _, _, port = served.rpartition(":")
    with pytest.raises(OSError, match=r"in use"):
        socket.create_server(("127.0.0.1", int(port)))
