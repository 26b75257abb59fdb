"""What a machine says of itself: each fact from the real machine, and none of them may hold the others up."""

import json
import socket
import time

import pytest

from dtlearn.runtime.lab.facts import HostNameLookUp, node_facts, query_gpus


def test_the_facts_of_this_machine_travel_as_json():
    facts = json.loads(json.dumps(node_facts()))
    assert facts["name"] == socket.gethostname()
    total, free = facts["memory"]
    assert 0 < free <= total
    assert facts["shared_memory"] is None or facts["shared_memory"] > 0
    assert abs(facts["time_ns"] - time.time_ns()) < 5e9


def test_a_name_server_that_does_not_answer_does_not_hold_us_up(monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: time.sleep(0.5))
    look_up = HostNameLookUp()
    begun = time.monotonic()
    assert look_up.seconds(0.1) is None
    assert time.monotonic() - begun < 0.4
    assert look_up.seconds(5) == pytest.approx(0.5, abs=0.3)


def test_a_name_that_is_not_found_is_timed_too(monkeypatch):
    def fail(*_):
        raise socket.gaierror("not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    assert HostNameLookUp().seconds(5) < 1


def test_a_name_has_the_addresses_that_it_stands_for(monkeypatch):
    found = [(0, 0, 0, "", ("10.0.0.7", 0)), (0, 0, 0, "", ("10.0.0.7", 0)), (0, 0, 0, "", ("127.0.1.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: found)
    look_up = HostNameLookUp()
    assert look_up.seconds(5) is not None and look_up.addresses == ["10.0.0.7", "127.0.1.1"]


def test_gpus_are_asked_of_the_driver(monkeypatch, tmp_path):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho '0, NVIDIA H200, 143771, 512, 570.1'\necho\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert query_gpus() == ["0, NVIDIA H200, 143771, 512, 570.1"]
    tool.write_text("#!/bin/sh\nexit 9\n")
    assert query_gpus() is None
    monkeypatch.setenv("PATH", "")
    assert query_gpus() is None
