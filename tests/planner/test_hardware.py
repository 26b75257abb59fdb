"""Names of accelerators as papers write them, and clusters as users do."""

import pytest

from dtlearn.planner.hardware import ACCELERATORS, Cluster, find_accelerator, parse_cluster


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("A100", "A100-80GB"),
        ("A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA A100 80 GB", "A100-80GB"),
        ("H100-SXM", "H100-80GB"),
        ("H100 96GB HBM2e, 500W", "H100-96GB"),
        ("V100-SXM2", "V100-32GB"),
        ("V100 16GB", "V100-16GB"),
        ("h200", "H200"),
        ("TPU v4", "TPUv4"),
    ],
)
def test_an_accelerator_is_found_as_it_is_written(text, name):
    assert find_accelerator(text).name == name


def test_an_unknown_accelerator_is_named_with_those_that_are_known():
    with pytest.raises(ValueError, match=r"unknown GPU 'H101'; did you mean H100.*Known are.*A100-80GB") as error:
        find_accelerator("H101")
    assert "make an Accelerator" in str(error.value)


def test_a_cluster_is_a_number_and_a_chip():
    assert parse_cluster("384xA100-80GB") == Cluster(ACCELERATORS["A100-80GB"], 384, 8)
    assert parse_cluster("64 x H100/4").node == 4
    assert parse_cluster("8xH100", 12.5e9).chip.network == 12.5e9


@pytest.mark.parametrize("text", ["A100", "0xA100", "8A100x", "x8"])
def test_what_is_no_cluster_is_refused(text):
    with pytest.raises(ValueError, match="cluster"):
        parse_cluster(text)


def test_a_network_without_bandwidth_is_refused():
    with pytest.raises(ValueError, match="above 0"):
        parse_cluster("8xA100", 0.0)


def test_every_number_is_that_of_a_chip():
    for chip in ACCELERATORS.values():
        assert 1e13 < chip.peak < 1e16
        assert 0 < chip.attention <= chip.ceiling < 1
        assert chip.network <= chip.link < chip.bandwidth
