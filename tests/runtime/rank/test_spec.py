"""What a rank is told: its environment, on one machine and in a lab, and the files that it writes."""

import sys

from dtlearn.runtime.machine.network import interfaces
from dtlearn.runtime.rank.spec import RankOnNode, RankSpec, stack_file

LAB = RankOnNode(1, 2, 1, 2, "10.0.0.1", "eth7", 0, "127.0.0.1:4000")


def spec(**changes) -> RankSpec:
    values = dict(
        kind="run",
        rank=1,
        world_size=3,
        backend="gloo",
        device="cpu",
        run_dir="/tmp/run",
        env={},
        cwd="/tmp",
        sys_path=[],
        group_timeout=5.0,
        node=vars(RankOnNode.alone(1, 3)),
    )
    return RankSpec(**{**values, **changes})


def test_the_environment_is_that_of_torchrun():
    found = spec().environment()
    assert (found["RANK"], found["LOCAL_RANK"], found["WORLD_SIZE"]) == ("1", "1", "3")
    alone = {"LOCAL_WORLD_SIZE": "3", "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    assert {name: found[name] for name in alone} == alone
    assert found["OMP_NUM_THREADS"] == "1"
    assert found["GLOO_SOCKET_IFNAME"] == ("lo0" if sys.platform == "darwin" else "lo")


def test_a_network_interface_that_the_user_chose_is_kept():
    name = sorted(interfaces())[-1]
    assert spec(env={"GLOO_SOCKET_IFNAME": name}).environment()["GLOO_SOCKET_IFNAME"] == name
    assert spec(env={"NCCL_SOCKET_IFNAME": "=eth7"}).environment()["NCCL_SOCKET_IFNAME"] == "=eth7"


def test_every_rank_has_a_stack_file_of_its_own():
    assert stack_file("/tmp/run", 1) != stack_file("/tmp/run", 2)


def in_a_lab(**env):
    return spec(rank=3, world_size=4, env=env, node=vars(LAB)).environment()


def test_the_environment_is_that_of_torchrun_on_several_nodes():
    found = in_a_lab()
    expected = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1"}
    expected |= {"GROUP_WORLD_SIZE": "2", "ROLE_RANK": "3", "ROLE_WORLD_SIZE": "4", "MASTER_ADDR": "10.0.0.1"}
    assert {name: found[name] for name in expected} == expected


def test_collectives_use_the_interface_of_the_node_unless_another_was_chosen():
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
    assert {in_a_lab()[name] for name in names} == {"eth7"}
    assert in_a_lab(NCCL_SOCKET_IFNAME="ib0")["NCCL_SOCKET_IFNAME"] == "ib0"


def test_torchs_flight_recorder_is_on_everywhere_unless_the_user_said_how():
    assert spec().environment()["TORCH_FR_BUFFER_SIZE"] == in_a_lab()["TORCH_FR_BUFFER_SIZE"] == "256"
    assert in_a_lab(TORCH_FR_BUFFER_SIZE="9")["TORCH_FR_BUFFER_SIZE"] == "9"
