"""`lab.toml`: what it may say, and the message for every mistake in it."""

import pytest

from dtlearn.runtime.lab.config import read_lab

GOOD = """
[head]
address = "192.168.1.10"

[[node]]
host = "alpha"
slots = 2

[[node]]
host = "beta"
slots = 3
start = "ssh"
python = "/opt/venv/bin/python"
interface = "eth1"
directory = "/srv/course"
env = { NCCL_DEBUG = "INFO" }
"""


@pytest.fixture
def read(tmp_path):
    """Reads a lab from text."""

    def from_text(text: str):
        (tmp_path / "lab.toml").write_text(text)
        return read_lab(tmp_path / "lab.toml")

    return from_text


def test_a_lab_is_read_with_its_defaults(read, tmp_path):
    lab = read(GOOD)
    assert (lab.head.address, lab.head.ports, lab.head.token_file) == ("192.168.1.10", (47600,), tmp_path / "lab.token")
    assert (lab.head.patience, lab.head.wait) == (15.0, 120.0)
    alpha, beta = lab.nodes
    assert (alpha.host, alpha.ranks, alpha.gpus, alpha.start, alpha.python, alpha.env) == (
        "alpha",
        2,
        (),
        "manual",
        None,
        {},
    )
    assert (beta.start, beta.python, beta.interface) == ("ssh", "/opt/venv/bin/python", "eth1")
    assert (beta.directory, beta.env) == ("/srv/course", {"NCCL_DEBUG": "INFO"})


def test_ranks_are_numbered_node_by_node(read):
    lab = read(GOOD)
    assert lab.size == 5
    assert [lab.node_of(rank) for rank in range(5)] == [0, 0, 1, 1, 1]
    assert [lab.ranks_of(node) for node in range(2)] == [[0, 1], [2, 3, 4]]


def test_slots_are_ranks_on_the_cpu(read):
    lab = read(GOOD)
    assert str(lab.place()) == "gloo on CPU: 2 nodes of lab.toml"
    assert lab.place("cpu").devices == ("cpu",) * 5
    with pytest.raises(ValueError, match=r'device="cuda", but .* gives some nodes no `gpus`'):
        lab.place("cuda")
    with pytest.raises(ValueError, match="device must be one of"):
        lab.place("tpu")


def test_gpus_are_ranks_with_nccl(read):
    lab = read(GOOD.replace("slots = 2", "gpus = 2").replace("slots = 3", "gpus = [4, 6]"))
    assert [node.gpus for node in lab.nodes] == [(0, 1), (4, 6)]
    # CUDA counts the GPUs that a node's ranks may see from 0.
    assert (lab.place().backend, lab.place().devices) == ("nccl", ("cuda:0", "cuda:1", "cuda:0", "cuda:1"))
    assert lab.place("cpu").backend == "gloo"


def test_a_range_of_ports_and_a_token_elsewhere(read, tmp_path):
    lab = read(GOOD.replace("[[node]]", 'port = "50000-50002"\ntoken_file = "/secret/token"\n[[node]]', 1))
    assert lab.head.ports == (50000, 50001, 50002)
    assert str(lab.head.token_file) == "/secret/token"


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("[head]", "[heads]", "the file does not know heads; it knows head, node"),
        ("[head]", "head", "is not valid TOML"),
        ('address = "192.168.1.10"', "", r"\[head\] needs `address`"),
        ("192.168.1.10", "lab-server", "numeric IPv4 address such as 192.168.1.10; got 'lab-server'"),
        ("192.168.1.10", "0.0.0.0", "that of one interface, not 0.0.0.0"),
        ('"192.168.1.10"', "7", "`address` must be text; got 7"),
        ('"192.168.1.10"', '"192.168.1.10"\nport = 70000', "`port` must be a port from 1 to 65535"),
        ('"192.168.1.10"', '"192.168.1.10"\nport = "9-8"', "`port` must be a port from 1 to 65535"),
        ('"192.168.1.10"', '"192.168.1.10"\npatience = 0.1', "`patience` of 2 seconds or more"),
        ('host = "alpha"', "", r"\[\[node\]\] number 1 needs `host`"),
        ('host = "alpha"', 'host = "-oProxy"', "does not start with -; got '-oProxy'"),
        ('host = "alpha"', 'host = "beta"', r"each host has one \[\[node\]\]; beta has more"),
        ("slots = 3", "", r"number 2 needs either `slots` .* or `gpus`"),
        ("slots = 3", "slots = 3\ngpus = 3", "needs either `slots`"),
        ("slots = 3", "gpus = 3", "either all nodes have `gpus`"),
        ("slots = 3", "gpus = [1, 1]", "list of different GPU numbers"),
        ("slots = 3", "slots = true", "`slots` must be a whole number; got True"),
        ("slots = 3", "slots = 0", "must take at least 1 rank; got 0"),
        ("slots = 3", "slots = 100", "whole number from 1 to 64; got 102"),
        ('"ssh"', '"telnet"', "`start` must be one of manual, local, ssh, srun; got 'telnet'"),
        ('"INFO"', "1", "`env` must have text values; NCCL_DEBUG has 1"),
        ("interface", "interfaces", "does not know interfaces; it knows directory, env, gpus"),
    ],
)
def test_a_mistake_is_told_with_its_place(read, old, new, text):
    assert old in GOOD
    with pytest.raises(ValueError, match=text) as error:
        read(GOOD.replace(old, new, 1))
    assert "lab.toml" in str(error.value) or "number of ranks" in str(error.value)


def test_a_lab_without_nodes_or_without_a_file_is_told(read, tmp_path):
    with pytest.raises(ValueError, match="the file needs `node`"):
        read('[head]\naddress = "10.0.0.1"')
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        read_lab(tmp_path / "missing.toml")
