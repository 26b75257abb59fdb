"""A rank's place in a lab, as its environment says it."""

from dtlearn.runtime.rank.seat import Seat
from dtlearn.runtime.rank.spec import RankSpec, rank_environment

SEAT = Seat("beta", 1, 2, 1, 2, "10.0.0.1", "eth7", 0, "127.0.0.1:4000")


def environment(**env):
    spec = RankSpec("kernel", 3, 4, "gloo", "cpu", "/tmp/run", env, "/tmp", [], 5.0, seat=vars(SEAT))
    return rank_environment(spec)


def test_the_environment_is_that_of_torchrun_on_several_nodes():
    found = environment()
    expected = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1"}
    expected |= {"GROUP_WORLD_SIZE": "2", "ROLE_RANK": "3", "ROLE_WORLD_SIZE": "4", "MASTER_ADDR": "10.0.0.1"}
    assert {name: found[name] for name in expected} == expected


def test_collectives_use_the_interface_of_the_node_unless_another_was_chosen():
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
    assert {environment()[name] for name in names} == {"eth7"}
    assert environment(NCCL_SOCKET_IFNAME="ib0")["NCCL_SOCKET_IFNAME"] == "ib0"
