import pytest

from dtlearn.cli.doctor import nodes as n
from dtlearn.runtime.lab.config import NodeConfig
from dtlearn.runtime.machine.memory import GIB

SAID = {"interface": "eth0", "address": "10.0.0.7", "pid": 5, "num_gpus": 2}
NAME = {"name": "alpha", "addresses": ["10.0.0.7"], "seconds": 0.01, "patience": 3.0}
GPU = "0, NVIDIA H200, 143771, 512, 570.1"
BUSY = "1, NVIDIA H200, 143771, 90000, 570.1"


@pytest.mark.parametrize(
    ("start", "says"),
    [
        ("manual", "Type it there, and read what it says: dtlearn node"),
        ("local", "Type it there"),
        ("ssh", "ssh -o BatchMode=yes alpha true"),
        ("srun", "srun --overlap --nodelist=alpha hostname"),
    ],
)
def test_a_node_that_did_not_join(start, says):
    check = n.check_absent(
        NodeConfig("alpha", 2, start=start), "host alpha did not join: it is off", "dtlearn node ..."
    )
    assert (check.state, check.found) == ("problem", "host alpha did not join: it is off")
    assert says in check.advice


def test_a_message_that_says_what_to_do_gets_no_second_advice():
    why = "host alpha has torch 2.0.0, the head (h) has 2.13.0: install the same version of torch on all hosts"
    assert n.check_absent(NodeConfig("alpha", 2, start="ssh"), why, "").advice == ""


def test_joined():
    found = n.check_joined(NodeConfig("alpha", 2, start="ssh"), SAID, 250_000).found
    assert found == "started ssh, process 5; a round trip takes 0.50 ms"


@pytest.mark.parametrize(
    ("address", "far", "state"), [("10.0.0.7", True, "ok"), ("127.0.0.1", True, "note"), ("127.0.0.1", False, "ok")]
)
def test_interface(address, far, state):
    check = n.check_network({**SAID, "address": address}, far)
    assert (check.state, address in check.found, bool(check.advice)) == (state, True, state != "ok")


@pytest.mark.parametrize(
    ("changed", "far", "state", "says"),
    [
        ({}, True, "ok", "alpha stands for 10.0.0.7"),
        ({"addresses": ["127.0.1.1", "::1"]}, True, "note", "alpha stands for 127.0.1.1, ::1"),
        ({"addresses": ["127.0.1.1", "10.0.0.7"]}, True, "ok", ""),
        ({"addresses": ["fe80::1%eth0"]}, True, "ok", "fe80"),
        ({"addresses": []}, True, "note", "stands for no address"),
        ({"addresses": ["127.0.0.1"]}, False, "ok", ""),
        ({"seconds": None}, True, "note", "takes more than 3 s"),
        ({"seconds": 2.0}, True, "note", "takes 2.0 s"),
    ],
)
def test_host_name(changed, far, state, says):
    check = n.check_name({**NAME, **changed}, "eth0", far)
    assert (check.state, says in check.found, bool(check.advice)) == (state, True, state != "ok")


@pytest.mark.parametrize(
    ("ranks", "free", "state"), [(4, 8 * GIB, "ok"), (4, GIB, "note"), (8, GIB, "problem"), (1, 0, "problem")]
)
def test_memory(ranks, free, state):
    check = n.check_memory(ranks, [16 * GIB, free])
    assert (check.state, bool(check.advice)) == (state, state != "ok")


def test_memory_that_is_not_known_is_a_note():
    assert n.check_memory(4, None).state == "note"


@pytest.mark.parametrize(("cores", "state"), [(4, "ok"), (3, "note")])
def test_cores(cores, state):
    assert n.check_cores(NodeConfig("alpha", 4), cores).state == state


@pytest.mark.parametrize(
    ("gpus", "seen", "lines", "visible", "state", "says"),
    [
        ((), 0, None, None, "ok", "none: ranks run on the CPU"),
        ((), 2, [GPU, BUSY], None, "ok", "torch sees 2; ranks run on the CPU"),
        ((0,), 2, [GPU, BUSY], None, "ok", "0 of 2: NVIDIA H200, 140.4 GiB (0.5 in use)"),
        ((0, 1), 2, [GPU, BUSY], None, "note", "in use"),
        ((0, 1), 2, [GPU, BUSY], "1,0", "ok", "CUDA_VISIBLE_DEVICES=1,0"),
        ((0,), 1, None, None, "ok", "0 of the 1 that torch sees"),
        ((0,), 1, ["0, NVIDIA GB10, [N/A], [N/A], 580.9"], None, "ok", "0 of 1: NVIDIA GB10"),
    ],
)
def test_gpus(gpus, seen, lines, visible, state, says):
    check = n.check_gpus(NodeConfig("alpha", 2, gpus), seen, lines, visible)
    assert (check.state, says in check.found, bool(check.advice)) == (state, True, state != "ok"), check


@pytest.mark.parametrize(
    ("within", "wall", "state", "says"),
    [
        (40_000, 0.1, "ok", "calls are timed to 0.04 ms"),
        (9_000_000, 0.1, "note", "9.00 ms"),
        (40_000, 61.2, "note", "its date is 61 s ahead"),
        (40_000, -3700, "note", "its date is 3700 s behind"),
    ],
)
def test_clock(within, wall, state, says):
    check = n.check_clock(within, wall)
    assert (check.state, says in check.found, bool(check.advice)) == (state, True, state != "ok")
