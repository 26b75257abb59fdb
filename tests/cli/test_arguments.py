import argparse
import socket

import pytest

from dtlearn.cli.arguments import num_ranks, own_address, port, positive


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


@pytest.mark.parametrize("text", ["", "*", "0.0.0.0", "::", "127.0.0.1", "localhost"])
def test_addresses_of_this_machine(text):
    if text == "::" and not socket.has_ipv6:
        pytest.skip("no IPv6 on this machine")
    assert own_address(text) == text


@pytest.mark.parametrize("text", ["8.8.8.8", "256.1.1.1", "no such host", "x" * 300])
def test_addresses_of_others(text):
    with pytest.raises(argparse.ArgumentTypeError, match="leave it out to listen to this machine only"):
        own_address(text)
