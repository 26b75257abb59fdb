import argparse

import pytest

from dtlearn.cli.arguments import num_ranks, port, positive


def test_good_values_are_numbers():
    assert (num_ranks("2"), num_ranks("64"), positive("1"), port("8888")) == (2, 64, 1, 8888)


@pytest.mark.parametrize("text", ["0", "1", "65", "-2", "2.5", "many", ""])
def test_wrong_numbers_of_ranks(text):
    with pytest.raises(argparse.ArgumentTypeError, match="ranks"):
        num_ranks(text)


@pytest.mark.parametrize("text", ["0", "-1", "x"])
def test_wrong_counts(text):
    with pytest.raises(argparse.ArgumentTypeError, match="1 or more"):
        positive(text)


@pytest.mark.parametrize("text", ["0", "65536", "http"])
def test_wrong_ports(text):
    with pytest.raises(argparse.ArgumentTypeError, match="from 1 to 65535"):
        port(text)
