import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import FancyArrowPatch

from dtlearn.planner import find_accelerator
from dtlearn.viz.hybrid_parallel.fabric import hgx_node, rail_fabric, torus_fabric
from dtlearn.viz.hybrid_parallel.fabric_picture import fabric_picture
from dtlearn.viz.style import rank_color
from tests.viz.hybrid_parallel.boxes import cut_off, overlapping

H100, TPU = find_accelerator("H100"), find_accelerator("TPUv4")


def drawn(ax, kind):
    return [line for line in ax.lines if line.get_gid() == kind]


def test_every_device_and_every_link_is_drawn_once():
    fabric = rail_fabric(H100, nodes=3, spines=2)
    (ax,) = fabric_picture(fabric).axes
    devices = [patch.get_gid() for patch in ax.patches if patch.get_gid() != "box"]
    assert sorted(devices) == sorted(node.kind for node in fabric.nodes)
    assert [patch.get_gid() for patch in ax.patches].count("box") == 3
    for kind in fabric.rates:
        assert len(drawn(ax, kind)) == sum(link.kind == kind for link in fabric.links)


def test_links_to_a_leaf_have_the_colour_of_its_rail():
    (ax,) = fabric_picture(rail_fabric(H100)).axes
    colors = [to_hex(line.get_color()) for line in drawn(ax, "network")]
    assert {color: colors.count(color) for color in colors} == {to_hex(rank_color(rail)): 4 for rail in range(8)}


def test_bandwidths_stand_at_a_link_and_in_the_legend():
    fig = fabric_picture(hgx_node(H100))
    (ax,) = fig.axes
    labels = {text.get_gid(): text for text in ax.texts if text.get_gid()}
    assert {gid: text.get_text() for gid, text in labels.items()} == {
        "bandwidth NVLink": "450 GB/s",
        "bandwidth network": "50 GB/s",
    }
    for kind in ("NVLink", "network"):
        x, y = labels[f"bandwidth {kind}"].get_position()
        last = drawn(ax, kind)[-1]
        assert set(last.get_xdata()) == {x} and min(last.get_ydata()) < y < max(last.get_ydata())
    (legend,) = fig.legends
    assert "network: from node to node, 50 GB/s each way for a GPU" in [text.get_text() for text in legend.get_texts()]


def test_a_row_of_a_flat_torus_is_closed_by_an_arc_and_of_a_deep_one_by_two_stubs():
    (flat,) = fabric_picture(torus_fabric(TPU, (4, 4))).axes
    assert sum(isinstance(patch, FancyArrowPatch) for patch in flat.patches) == 8 and not drawn(flat, "wrap")
    (deep,) = fabric_picture(torus_fabric(TPU, (4, 4, 4))).axes
    assert len(drawn(deep, "wrap")) == 2 * 48
    assert len(drawn(deep, "axis 0")) == 48 and not [text for text in deep.texts if text.get_text()]


@pytest.mark.parametrize(
    "fabric",
    [hgx_node(H100), rail_fabric(H100), rail_fabric(H100, 2, 4, 1), torus_fabric(TPU), torus_fabric(TPU, (3, 2, 2))],
)
def test_labels_do_not_lie_on_each_other(fabric):
    fig = fabric_picture(fabric)
    texts = [*fig.axes[0].texts, *fig.legends[0].get_texts()]
    assert not overlapping(fig, texts) and not cut_off(fig, texts)
    boxes = [patch.get_window_extent() for patch in fig.axes[0].patches]
    assert min(box.x0 for box in boxes) >= 0 and max(box.x1 for box in boxes) <= fig.bbox.width
