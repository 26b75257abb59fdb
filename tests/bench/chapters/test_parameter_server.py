import json
import math
from dataclasses import replace

from dtlearn import cli
from dtlearn.bench import benches
from dtlearn.bench.chapters import parameter_server
from dtlearn.bench.chapters.on_ranks.parameter_server_ways import (
    ASYNCHRONOUS,
    DDP,
    RPC,
    SERVER,
    STEPS,
    ServerWorkload,
    TableResult,
    TableWorkload,
)
from dtlearn.bench.chapters.parameter_server import ParameterServerResult

WORK = ServerWorkload((64, 10), batch=20)
BARE = {
    (1, 1): {SERVER: (0.1, 0.2, 0.1), ASYNCHRONOUS: (0.2,) * 3, DDP: (0.05,) * 3, RPC: (0.2, 0.2, 0.1)},
    (2, 2): {SERVER: (0.4,) * 3, ASYNCHRONOUS: (0.2,) * 3, DDP: (0.1,) * 3},
}
LINKED = {setting: {way: s for way, s in times.items() if way != RPC} for setting, times in BARE.items()}
TABLE = TableResult(1_000_000.0, 1_000_000.0, 500_000, 0.01, (0.7, 0.1))
RESULT = ParameterServerResult(
    "gloo on CPU",
    WORK,
    650,
    BARE,
    LINKED,
    {"pull": 1.3, "push": 1.1},
    {"pull": 1.02, "push": 1.01},
    TABLE,
    "2 cores, load 1.0, afterwards load 2.0",
)


def test_table():
    lines = parameter_server.table(RESULT).splitlines()
    assert lines[0].startswith("gloo on CPU, MLP of 650 parameters, 20 samples a worker and step; plain SGD.")
    # 5 steps of 20 samples in 0.1 s; of two workers in 0.4 s.
    assert lines[4].split() == ["1", "worker,", "1", "server", "1,000", "500", "2,000", "500"]
    assert lines[5].split() == ["2", "workers,", "2", "servers", "500", "1,000", "2,000"]
    assert lines[7].split()[-2:] == ["torch's", "DDP"]
    assert (
        "To plain messages of the same bytes, no link: a pull 1.30x, a push 1.10x; target at most 1.15x: missed."
        in lines
    )
    assert (
        "To plain messages of the same bytes, link 1 Gb/s: a pull 1.02x, a push 1.01x; target at most 1.15x: met."
        in lines
    )
    # The median of the rounds' ratios, 2, 1 and 1.
    rpc = "Throughput to that of torch's rpc, no link: 1 worker, 1 server 1.00x; target at least 1.00x: met."
    assert rpc in lines
    assert lines[-2] == "Bytes of a step with a table: as the formula says, and at most 1 MB: met."
    assert lines[-1].startswith("2 cores, load 1.0, afterwards load 2.0; timings are noisy")


def test_bytes_decide_and_time_does_not():
    slow = {setting: {**times, SERVER: (9.0,) * 3} for setting, times in BARE.items()}
    assert RESULT.ok and replace(RESULT, bare=slow).ok
    assert "0.02x; target at least 1.00x: missed" in parameter_server.table(replace(RESULT, bare=slow))
    for wrong in (
        TABLE._replace(sent=1_000_064.0),
        TABLE._replace(sent=2e6, formula=2e6),
        TABLE._replace(largest=256_000_000),
    ):
        assert not replace(RESULT, table=wrong).ok
        assert "at most 1 MB: missed." in parameter_server.table(replace(RESULT, table=wrong))
    assert math.isnan(RESULT.samples_per_second(BARE, (2, 2), RPC))


def test_a_real_small_bench(monkeypatch, capsys):
    table = TableWorkload(num_rows=5_000, lookups=60)
    work = ServerWorkload((8, 16, 4), batch=8)
    bench = benches.BENCHES["parameter_server"]
    small = replace(
        bench, measure=lambda ranks, rounds: parameter_server.measure(ranks, rounds, work, table, message=1 << 16)
    )
    monkeypatch.setitem(benches.BENCHES, "parameter_server", small)
    assert cli.main(["bench", "parameter_server", "--ranks", "2", "--rounds", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    settings = [(None, w, s, way) for w in (1, 2) for s in (1, 2) for way in (SERVER, ASYNCHRONOUS, DDP, RPC)[: 5 - s]]
    linked = [("1 Gb/s", w, s, way) for w in (1, 2) for s in (1, 2) for way in (SERVER, ASYNCHRONOUS, DDP)]
    measured = found["measured"]
    assert [(row["link"], row["workers"], row["servers"], row["way"]) for row in measured] == settings + linked
    for row in measured:
        assert len(row["rounds"]) == 1
        assert math.isclose(row["samples per second"], STEPS * 8 * row["workers"] / row["rounds"][0])
    assert list(found["messages"]) == ["no link", "1 Gb/s"]
    assert found["table"]["sent"] == found["table"]["formula"]
    assert found["table"]["losses"][1] < found["table"]["losses"][0]
    assert found["table"]["largest"] < 4 * 64 * 60 + 1
