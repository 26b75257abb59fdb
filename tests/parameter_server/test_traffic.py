import pytest
import torch

from dtlearn.collectives.primitives import all_reduce
from dtlearn.parameter_server.gossip.mixing import complete, exponential, ring
from dtlearn.parameter_server.ranks.messages import HEADER_BYTES
from dtlearn.parameter_server.traffic import (
    RankTraffic,
    gossip_traffic,
    hot_link,
    least_seconds,
    ring_traffic,
    server_traffic,
)
from dtlearn.runtime.run import run_ranks
from tests.parameter_server import runs


@pytest.mark.parametrize(("num_servers", "num_workers"), [(1, 1), (1, 4), (2, 3), (4, 4)])
def test_a_worker_has_2n_and_a_server_2Nn_over_S(num_servers, num_workers):
    n = 4_000
    traffic = server_traffic([n // num_servers] * num_servers, num_workers)
    assert len(traffic) == num_servers + num_workers
    assert {t.nbytes for t in traffic[:num_servers]} == {2 * num_workers * n / num_servers}
    assert {t.nbytes for t in traffic[num_servers:]} == {2 * n}
    assert sum(t.sent for t in traffic) == sum(t.received for t in traffic)


def two_steps(num_servers):
    runs.train(num_servers, 2)


@pytest.mark.parametrize(("num_servers", "num_workers"), [(1, 2), (2, 2), (3, 1)])
def test_servers_and_workers_are_those_of_a_recorded_run(num_servers, num_workers):
    record = run_ranks(two_steps, num_servers + num_workers, num_servers, device="cpu", record=True).record
    shards = runs.plan(num_servers).bytes_per_server(itemsize=8)
    for rank, traffic in enumerate(server_traffic(shards, num_workers, header=HEADER_BYTES)):
        calls = [event for event in record.select(rank=rank) if event.is_p2p]
        # After two steps each worker tells each server that it is done.
        ends = num_workers if rank < num_servers else num_servers
        goodbyes = ends * HEADER_BYTES
        sent, received = (sum(e.nbytes for e in calls if e.sends is sends) for sends in (True, False))
        assert sent == 2 * traffic.sent + (goodbyes if rank >= num_servers else 0)
        assert received == 2 * traffic.received + (goodbyes if rank < num_servers else 0)
        assert len(calls) == 2 * traffic.messages + ends


def test_headers_and_uneven_shards():
    traffic = server_traffic([100, 300], 2, header=64)
    assert traffic[1] == RankTraffic(2 * (300 + 64), 2 * (300 + 128), 10)
    assert traffic[2] == traffic[3] == RankTraffic(400 + 2 * 128, 400 + 2 * 64, 10)
    assert sum(t.sent for t in traffic) == sum(t.received for t in traffic)
    assert hot_link(traffic) == (1, 2 * (600 + 3 * 64))


def test_the_ring_has_no_hot_link():
    assert {t.sent for t in ring_traffic(1_000, 4)} == {1_500}
    assert ring_traffic(1_000, 1)[0].nbytes == 0
    assert hot_link(ring_traffic(1_000, 4)) == (0, 3_000)


def in_a_ring():
    all_reduce(torch.zeros(60), algorithm="ring")


def test_the_ring_is_that_of_a_recorded_run():
    record = run_ranks(in_a_ring, 4, device="cpu", record=True).record
    for rank, traffic in enumerate(ring_traffic(240, 4)):
        calls = [event for event in record.select(rank=rank) if event.is_p2p]
        assert sum(e.nbytes for e in calls if e.sends) == traffic.sent
        assert sum(e.nbytes for e in calls if e.receives) == traffic.received
        assert len(calls) == traffic.messages


def test_gossip_sends_to_each_neighbour():
    assert [t.sent for t in gossip_traffic(10, ring(5))] == [20] * 5
    assert [t.sent for t in gossip_traffic(10, complete(5))] == [40] * 5
    assert gossip_traffic(10, exponential(4), step=1) == [RankTraffic(10, 10, 2)] * 4


def test_the_hottest_link_decides():
    one, four = server_traffic([1_000], 4), server_traffic([250] * 4, 4)
    assert least_seconds(one, 1e3) == pytest.approx(8) and least_seconds(four, 1e3) == pytest.approx(2)
    assert least_seconds(one, 1e3, overlap=True) == pytest.approx(4)
    assert least_seconds(ring_traffic(1_000, 4), 1e3, overlap=True) == pytest.approx(1.5)


def test_bad_input():
    for shards, workers in (([], 1), ([1], 0)):
        with pytest.raises(ValueError, match="a server and a worker are needed"):
            server_traffic(shards, workers)
    with pytest.raises(ValueError, match="one rank or more"):
        ring_traffic(1, 0)
