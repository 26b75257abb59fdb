import pytest

from dtlearn.planner import find_accelerator
from dtlearn.viz.hybrid_parallel.fabric import (
    Fabric,
    FabricLink,
    FabricNode,
    fabric_words,
    hgx_node,
    rail_fabric,
    torus_fabric,
)

H100, TPU = find_accelerator("H100"), find_accelerator("TPUv4")


def kinds(items):
    found = [item.kind for item in items]
    return {kind: found.count(kind) for kind in found}


def test_a_node_has_a_card_for_each_gpu_and_the_planners_bandwidths():
    fabric = hgx_node(H100)
    assert kinds(fabric.nodes) == {"switch": 1, "gpu": 8, "card": 8, "outside": 1}
    assert fabric.degree("switch") == 8 and fabric.degree("gpu 3") == 2
    assert fabric.bandwidths == {"NVLink": H100.link, "network": H100.network}
    assert "450 GB/s" in fabric.rates["NVLink"] and "50 GB/s" in fabric.rates["network"]
    assert "network" not in fabric.boxes["node"], "the other nodes are outside of the box"


def test_a_rail_joins_the_same_gpu_of_every_node_and_no_other():
    fabric = rail_fabric(H100, nodes=4, spines=2)
    for rail in range(8):
        ends = {end for link in fabric.links if f"leaf {rail}" in link.ends for end in link.ends} - {f"leaf {rail}"}
        assert ends == {f"{node} gpu {rail}" for node in range(4)} | {"spine 0", "spine 1"}
    assert kinds(fabric.links) == {"uplinks": 16, "network": 32, "NVLink": 32}
    assert list(fabric.boxes) == ["node 0", "node 1", "node 2", "node 3"]


@pytest.mark.parametrize(("shape", "degree"), [((4, 4), 4), ((4, 4, 4), 6), ((3, 2, 2), 4), ((2, 2), 2)])
def test_every_chip_of_a_torus_has_the_same_number_of_neighbours(shape, degree):
    fabric = torus_fabric(TPU, shape)
    assert {fabric.degree(node.name) for node in fabric.nodes} == {degree}
    assert len({frozenset(link.ends) for link in fabric.links}) == len(fabric.links), "no link stands twice"
    assert len({node.at for node in fabric.nodes}) == len(fabric.nodes), "no chip stands on another"


def test_a_row_is_closed_once():
    wraps = [link for link in torus_fabric(TPU, (4, 3)).links if link.wraps]
    assert sorted(link.kind for link in wraps) == ["axis 0"] * 3 + ["axis 1"] * 4
    assert ("chip 3,0", "chip 0,0") in [link.ends for link in wraps]


def test_words():
    words = fabric_words(rail_fabric(H100))
    assert words.startswith("4 nodes of 8 H100-80GB on 8 rails. Devices: 32 x GPU, 4 x NVLink switch, 8 x leaf switch")
    assert "network, 32: " in words and "50 GB/s each way" in words
    assert "135 GB/s" in fabric_words(torus_fabric(TPU))


def test_bad_input():
    with pytest.raises(ValueError, match="spines must be 1 or more, got 0"):
        rail_fabric(H100, spines=0)
    with pytest.raises(ValueError, match=r"two or three axes of 2 chips or more; got \(4,\)"):
        torus_fabric(TPU, (4,))
    one = FabricNode("a", "gpu", (0, 0))
    with pytest.raises(ValueError, match=r"unknown are \['b'\], \['cable'\]"):
        Fabric("x", (one,), (FabricLink(("a", "b"), "cable"),), {}, {}, {})
