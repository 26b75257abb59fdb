"""The interface that leads to another machine; on every machine the loopback leads to itself."""

import sys

import pytest

from dtlearn.runtime.errors import LaunchError
from dtlearn.runtime.machine import network
from dtlearn.runtime.machine.network import choose_interface, interface_address, interfaces, local_address

LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


def test_the_loopback_leads_to_this_machine():
    assert local_address("127.0.0.1") == "127.0.0.1"
    assert interfaces()[LOOPBACK] == interface_address(LOOPBACK) == "127.0.0.1"
    assert choose_interface("127.0.0.1") == (LOOPBACK, "127.0.0.1")


def test_a_chosen_interface_is_taken():
    assert choose_interface("192.0.2.1", LOOPBACK) == (LOOPBACK, "127.0.0.1")


def test_an_interface_that_is_not_there_is_told_with_those_that_are():
    assert interface_address("none7") is None
    with pytest.raises(LaunchError, match=rf"no interface 'none7' with an address; it has .*{LOOPBACK} \(127.0.0.1\)"):
        choose_interface("127.0.0.1", "none7")


def test_an_address_of_no_interface_is_told(monkeypatch):
    monkeypatch.setattr(network, "interfaces", lambda: {"eth0": "192.0.2.7"})
    with pytest.raises(LaunchError, match=r"has the address 127\.0\.0\.1(.|\n)*this machine has eth0 \(192\.0\.2\.7\)"):
        choose_interface("127.0.0.1")
