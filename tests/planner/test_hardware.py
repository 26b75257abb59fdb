"""Names of accelerators as papers write them, and clusters as users do."""

from dataclasses import replace

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
        ("32 x V100", "V100-32GB"),
        ("H100, 80 GB, 400 Gb/s InfiniBand", "H100-80GB"),
    ],
)
def test_an_accelerator_is_found_as_it_is_written(text, name):
    assert find_accelerator(text).name == name


def test_an_unknown_accelerator_is_named_with_those_that_are_known():
    with pytest.raises(ValueError, match=r"unknown GPU 'H101'; did you mean H100.*Known are.*A100-80GB") as error:
        find_accelerator("H101")
    assert "make an Accelerator" in str(error.value)


@pytest.mark.parametrize("text", ["V1000", "B2000", "GH200", "GB200", "H20", "A1000-80GB"])
def test_a_name_that_begins_or_ends_like_a_known_one_is_another(text):
    with pytest.raises(ValueError, match=f"unknown GPU '{text}'; did you mean"):
        find_accelerator(text)


@pytest.mark.parametrize("text", ["A100-60GB", "A100 140GB", "V100 80 GB"])
def test_a_memory_that_no_variant_has_is_refused(text):
    with pytest.raises(ValueError, match=rf"known of {text[:4]} are {text[:4]}-\d+GB, {text[:4]}"):
        find_accelerator(text)


def test_a_cluster_is_a_number_and_a_chip():
    assert parse_cluster("384xA100-80GB") == Cluster(ACCELERATORS["A100-80GB"], 384, 8)
    assert parse_cluster("64 x H100/4").node == 4
    assert parse_cluster("8xH100", 12.5e9).chip.network == 12.5e9


@pytest.mark.parametrize("text", ["A100", "0xA100", "8A100x", "x8"])
def test_what_is_no_cluster_is_refused(text):
    with pytest.raises(ValueError, match="cluster"):
        parse_cluster(text)


@pytest.mark.parametrize("network", [0.0, -1.0, float("nan"), float("inf")])
def test_a_network_without_a_bandwidth_is_refused(network):
    with pytest.raises(ValueError, match="finite bandwidth above 0, got"):
        parse_cluster("8xA100", network)


def test_nodes_that_do_not_divide_the_cluster_are_refused():
    with pytest.raises(ValueError, match=r"64 chips do not fill nodes of 3: take 63 or 66 chips.*64xA100-80GB/2"):
        parse_cluster("64xA100/3")
    with pytest.raises(
        ValueError, match="12 chips do not fill nodes of 8: take 8 or 16 chips, or nodes of one of 1, 2"
    ):
        parse_cluster("12xA100/8")
    assert parse_cluster("12xA100/4").size == 12
    assert parse_cluster("6xA100").node == 8 == parse_cluster("350xA100").node  # the last node is not full


@pytest.mark.parametrize(
    "wrong", [{"size": 8.0}, {"size": "8"}, {"size": 10**30}, {"node": 0}, {"link_latency": -1e-6}]
)
def test_a_cluster_of_other_numbers_is_refused(wrong):
    with pytest.raises(ValueError, match=f"a cluster: {next(iter(wrong))} must be"):
        Cluster(**{"chip": ACCELERATORS["H200"], "size": 8} | wrong)


@pytest.mark.parametrize("wrong", [{"peak": 0.0}, {"memory": float("nan")}, {"link": -1e9}, {"low_peak": -1.0}])
def test_a_chip_of_other_numbers_is_refused(wrong):
    with pytest.raises(ValueError, match=f"accelerator H200: {next(iter(wrong))} must be a number"):
        replace(ACCELERATORS["H200"], **wrong)


def test_every_number_is_that_of_a_chip():
    for chip in ACCELERATORS.values():
        assert 1e13 < chip.peak < 1e16
        assert 0 < chip.attention <= chip.ceiling < 1
        assert chip.network <= chip.link < chip.bandwidth
