"""The head's port: who may come in, what is asked and answered, and how a node is missed. Nodes are played here."""

import contextlib
import json
import threading
import time

import pytest
import zmq

from dtlearn.runtime.errors import HostLost, LaunchError
from dtlearn.runtime.lab.config import HeadConfig
from dtlearn.runtime.lab.head.port import HeadPort, ahead_of
from dtlearn.runtime.lab.loop import call
from dtlearn.runtime.lab.token import make_token


class PlayedNode:
    """The node's end of a connection; answers pings from a thread until it is closed."""

    def __init__(self, port: HeadPort, token=None, server=None, curve=True, answers=True):
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.sndtimeo = 1000  # ms
        token = token or port.token
        if curve:
            self.socket.curve_serverkey = (server or token.head_public).encode()
            self.socket.curve_publickey = token.node_public.encode()
            self.socket.curve_secretkey = token.node_secret.encode()
        self.socket.connect(f"tcp://{port.address}")
        self.heard = []
        self.answers, self.open = answers, True
        self.thread = threading.Thread(target=self.serve)

    def join(self, host="alpha"):
        self.send({"do": "join", "host": host})
        self.thread.start()
        return self

    def send(self, header, data=b""):
        with contextlib.suppress(zmq.Again):  # a connection that the head refuses may take nothing, for ever
            self.socket.send_multipart([json.dumps(header).encode(), data])

    def serve(self):
        while self.open:
            if not self.socket.poll(20):
                continue
            header = json.loads(self.socket.recv_multipart()[0])
            if "ping" in header and self.answers:
                self.send({"pong": header["ping"], "clock": time.monotonic_ns() + 5 * 10**9})
            elif "ping" not in header:
                self.heard.append(header)
                if header["do"] == "echo":
                    self.send({"id": header["id"], "text": header["text"]})
                elif header["do"] == "fail":
                    self.send({"id": header["id"], "error": "no space left"})

    def close(self):
        self.open = False
        self.thread.join()
        self.context.destroy(linger=0)


@pytest.fixture
def port(tmp_path):
    config = HeadConfig("127.0.0.1", tuple(range(47710, 47760)), tmp_path / "lab.token", patience=2.0, wait=5.0)
    admit = {"beta": "beta is too old"}.get
    made = HeadPort(config, lambda said: admit(said["host"]), lambda host, cause: f"{host} is gone: {cause}")
    yield made
    made.close()


@pytest.fixture
def node(port):
    made = []

    def make(**options):
        made.append(PlayedNode(port, **options))
        return made[-1]

    yield make
    for one in made:
        if one.thread.ident is None:
            one.thread.start()
        one.close()


def wait_for(port, done, seconds=5.0):
    deadline = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline:
        with port.changed:
            port.changed.wait(0.02)
    return done()


def test_a_node_with_the_token_joins_and_its_clock_is_known(port, node):
    node().join()
    assert wait_for(port, lambda: "alpha" in port.nodes)
    node = port.nodes["alpha"]
    assert abs(node.ahead_ns + 5 * 10**9) <= node.within_ns + 10**6 and 0 < node.within_ns < 10**9


def test_a_node_that_has_joined_is_told_to_load_and_may_be_waited_for(port, node):
    played = node().join()
    assert wait_for(port, lambda: {"do": "load"} in played.heard)
    joined = port.nodes["alpha"]
    assert not joined.loaded.done()
    played.send({"loaded": 3})
    assert joined.loaded.result(10) == 3


def test_who_waits_for_a_node_that_cannot_load_hears_why(port, node):
    played = node().join()
    assert wait_for(port, lambda: {"do": "load"} in played.heard)
    joined = port.nodes["alpha"]
    played.send({"bye": "torch is broken"})
    with pytest.raises(HostLost, match="alpha is gone: torch is broken"):
        joined.loaded.result(10)


def test_an_answer_comes_back_and_an_error_is_told_with_its_host(port, node):
    node().join()
    assert wait_for(port, lambda: "alpha" in port.nodes)
    node = port.nodes["alpha"]
    assert node.ask({"do": "echo", "text": "hello"})["text"] == "hello"
    with pytest.raises(LaunchError, match="host alpha: no space left"):
        node.ask({"do": "fail"})
    with pytest.raises(LaunchError, match=r"host alpha did not answer 'silence' within 0.1 s"):
        node.ask({"do": "silence"}, 0.1)


def test_a_node_that_may_not_join_hears_why(port, node):
    played = node().join("beta")
    assert wait_for(port, lambda: played.heard)
    assert played.heard == [{"do": "refuse", "reason": "beta is too old"}] and not port.nodes


@pytest.mark.parametrize("wrong", ["no encryption", "another token", "another head"])
def test_who_has_no_token_of_this_head_is_not_heard(port, node, tmp_path, wrong):
    other = make_token(tmp_path / "other")
    if wrong == "no encryption":
        node(curve=False).join()
    elif wrong == "another token":  # knows this head, but not the key that it lets in
        node(token=other, server=port.token.head_public).join()
    else:
        node(server=other.head_public).join()
    node().join("gamma")
    assert wait_for(port, lambda: "gamma" in port.nodes)  # the port lives
    time.sleep(0.3)
    assert set(port.nodes) == {"gamma"} and len(port._by_identity) == 1


def test_a_node_whose_process_ends_is_missed_at_once(port, node):
    played = node().join()
    assert wait_for(port, lambda: "alpha" in port.nodes)
    node = port.nodes["alpha"]
    played.close()
    begun = time.monotonic()
    with pytest.raises(HostLost, match="alpha is gone: its connection closed"):
        node.ask({"do": "silence"}, 10)
    assert time.monotonic() - begun < 1.9 and not port.nodes
    with pytest.raises(HostLost, match="alpha is gone"):
        node.ask({"do": "echo"})
    call(port.loop, lambda: None)
    played.thread = threading.Thread(target=lambda: None)  # so that the fixture can close it again


def test_a_silent_node_is_missed_after_the_patience(port, node):
    played = node().join()
    assert wait_for(port, lambda: "alpha" in port.nodes)
    node, begun = port.nodes["alpha"], time.monotonic()
    played.answers = False
    with pytest.raises(HostLost, match=r"alpha is gone: nothing was heard of it for [23] s"):
        node.ask({"do": "silence"}, 10)
    assert 0.9 < time.monotonic() - begun < 4.5


def test_a_node_is_not_missed_because_we_could_not_run(port, node):
    node().join()
    assert wait_for(port, lambda: "alpha" in port.nodes)

    def wake():  # this process was suspended for 100 s: the pongs have not been read when it looks again
        port._looked -= 100
        port.nodes["alpha"].heard -= 100
        port._beat()

    call(port.loop, wake)
    assert port.nodes["alpha"].ask({"do": "echo", "text": "still here"}, 10)["text"] == "still here"


def test_the_end_of_the_head_reaches_the_nodes(port, node):
    played = node().join()
    assert wait_for(port, lambda: "alpha" in port.nodes)
    port.close()
    deadline = time.monotonic() + 5
    while {"do": "end"} not in played.heard and time.monotonic() < deadline:
        time.sleep(0.01)
    assert {"do": "end"} in played.heard
    port.close = lambda: None


def test_a_taken_port_or_a_foreign_address_is_told(port, tmp_path):
    def config(address, *ports):
        return HeadConfig(address, ports, tmp_path / "lab.token")

    with pytest.raises(LaunchError, match=rf"cannot listen on 127.0.0.1, port {port.number}: .*in use"):
        HeadPort(config("127.0.0.1", port.number), lambda said: None, str)
    with pytest.raises(LaunchError, match="must be an address of this machine"):
        HeadPort(config("192.0.2.1", 47790, 47791), lambda said: None, str)
    other = HeadPort(config("127.0.0.1", port.number, *range(47780, 47800)), lambda said: None, str)
    assert other.number != port.number  # the next free one of a range
    other.close()


def test_the_difference_of_clocks_comes_from_the_fastest_round_trip():
    slow, fast = (1000, 5900, 2000), (3000, 8050, 3100)
    assert ahead_of([slow, fast]) == (3050 - 8050, 50)
