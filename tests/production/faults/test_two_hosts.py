"""Two hosts on one machine, and a node that is lost. They take root and the command `ip`."""

import subprocess

import pytest

from dtlearn.production.faults.scenarios import run_scenario
from dtlearn.production.faults.two_hosts import Hosts, why_not

needs_hosts = pytest.mark.skipif(bool(why_not()), reason=why_not() or "hosts can be played")


def reached(hosts: Hosts, host: int, address: str) -> bool:
    """Whether a packet from that host gets an answer."""
    source = "import socket, sys; socket.create_connection((sys.argv[1], 1), 2)"
    done = subprocess.run(hosts.on(host, ["python3", "-c", source, address]), capture_output=True, check=False)
    return b"ConnectionRefusedError" in done.stderr  # somebody was there to refuse it


@needs_hosts
def test_hosts_reach_each_other_until_the_plug_is_pulled_and_leave_nothing_behind():
    with Hosts() as hosts:
        assert reached(hosts, 0, hosts.address(1)) and reached(hosts, 1, hosts.head)
        hosts.cut(1)
        assert not reached(hosts, 0, hosts.address(1)) and reached(hosts, 0, hosts.head)
        spaces = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
        assert hosts._space(0) in spaces
    left = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    links = subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout
    assert hosts._prefix not in left + links


def test_where_hosts_cannot_be_played_it_is_said_why(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert "the command `ip`" in why_not()
    with pytest.raises(ValueError, match="network namespaces"):
        run_scenario("node_lost")


@pytest.mark.slow
@needs_hosts
def test_a_job_goes_on_with_the_ranks_of_the_node_that_is_left():
    story = run_scenario("node_lost", timeout=300.0)
    assert story.error == "" and story.worlds == (4, 2)
    assert story.ranks == (2, 3) and set(story.losses) == set(range(8))
    assert {"heartbeat", "launcher"} <= {d.noticer for d in story.detections}
