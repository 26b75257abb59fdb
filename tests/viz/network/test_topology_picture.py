import pytest

from dtlearn.collectives.topology import DGX_H100, RACKS_OF_DGX_H100
from dtlearn.viz.network.topology_picture import topology_picture, topology_words


def test_what_stands_beside_the_links_is_the_topologys():
    ax = topology_picture(RACKS_OF_DGX_H100, 64, "Two racks").axes[0]
    texts = [t.get_text() for t in ax.texts]
    assert "800 GB/s each way, 10 us" in texts and "50 GB/s each way, 8 us" in texts
    assert "450 GB/s each way, 3 us" in texts and "rack uplinks: shared by 32 GPUs" in texts
    assert "leaf switch of rack 1" in texts and "leaf switch of rack 2" not in texts
    assert "56\u201363" in texts  # the last node's ranks


def test_words():
    words = topology_words(RACKS_OF_DGX_H100, 64)
    assert words.startswith("2 racks of 4 nodes with 8 GPUs.") and "800 GB/s together, which 32 GPUs share" in words


def test_bad_input():
    with pytest.raises(ValueError, match=r"three levels; .* has 2"):
        topology_picture(DGX_H100, 64, "x")
    with pytest.raises(ValueError, match="40 ranks do not fill racks of 32"):
        topology_picture(RACKS_OF_DGX_H100, 40, "x")
