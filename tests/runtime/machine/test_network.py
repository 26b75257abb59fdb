"""The interface that leads to another machine; on every machine the loopback leads to itself."""

import socket
import sys
from types import SimpleNamespace

import pytest

from dtlearn.runtime.errors import LaunchError
from dtlearn.runtime.machine import network
from dtlearn.runtime.machine.network import (
    choose_interface,
    failed_connections,
    free_port,
    interface_variables,
    interfaces,
    local_address,
)

LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


def test_the_loopback_leads_to_this_machine():
    assert local_address("127.0.0.1") == "127.0.0.1"
    assert interfaces()[LOOPBACK] == "127.0.0.1"
    assert choose_interface("127.0.0.1") == (LOOPBACK, "127.0.0.1")


def test_a_chosen_interface_is_taken():
    assert choose_interface("192.0.2.1", LOOPBACK) == (LOOPBACK, "127.0.0.1")


def test_an_interface_that_is_not_there_is_told_with_those_that_are():
    assert "none7" not in interfaces()
    with pytest.raises(LaunchError, match=rf"no interface 'none7' with an address; it has .*{LOOPBACK} \(127.0.0.1\)"):
        choose_interface("127.0.0.1", "none7")


def test_an_address_of_no_interface_is_told(monkeypatch):
    monkeypatch.setattr(network, "interfaces", lambda: {"eth0": "192.0.2.7"})
    with pytest.raises(LaunchError, match=r"has the address 127\.0\.0\.1(.|\n)*this machine has eth0 \(192\.0\.2\.7\)"):
        choose_interface("127.0.0.1")


def test_interfaces_are_those_with_an_address(monkeypatch):
    def address(family, text):
        return SimpleNamespace(family=family, address=text)

    four, six = socket.AF_INET, socket.AF_INET6
    found = {"eth0": [address(six, "fe80::1"), address(four, "10.0.0.7"), address(four, "10.0.0.8")], "eth1": []}
    monkeypatch.setattr(network.psutil, "net_if_addrs", lambda: found)
    assert interfaces() == {"eth0": "10.0.0.7"}


def test_a_free_port_can_be_listened_on():
    with socket.create_server(("127.0.0.1", free_port())) as server:
        assert server.getsockname()[1] > 0


def test_libraries_are_told_the_interface_unless_they_were_told_already():
    there = next(iter(interfaces()))
    told = interface_variables("eth0", {"NCCL_SOCKET_IFNAME": "^ib0", "TP_SOCKET_IFNAME": there, "PATH": "/bin"})
    assert told == {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "^ib0", "TP_SOCKET_IFNAME": there}


def test_an_interface_of_another_cluster_is_not_taken_over():
    there = next(iter(interfaces()))
    told = interface_variables("eth0", {"GLOO_SOCKET_IFNAME": "nope0", "TP_SOCKET_IFNAME": f"nope0,{there}"})
    assert (told["GLOO_SOCKET_IFNAME"], told["TP_SOCKET_IFNAME"]) == ("eth0", f"nope0,{there}")


def test_who_cannot_be_reached_is_told_with_the_reason():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        places = {"alpha": list(listener.getsockname()), "beta": ["127.0.0.1", free_port()]}
        assert failed_connections(places, "127.0.0.1") == {"beta": "Connection refused"}
