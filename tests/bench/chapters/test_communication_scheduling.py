import json
from dataclasses import replace

from dtlearn import cli
from dtlearn.bench import benches
from dtlearn.bench.chapters import communication_scheduling
from dtlearn.bench.chapters.communication_scheduling import LINKS, SchedulingResult
from dtlearn.bench.chapters.on_ranks.communication_scheduling_ways import DDP, DECIDED, FIFO, PLANNED
from dtlearn.communication_scheduling.policy import GradientPartition
from dtlearn.communication_scheduling.simulate import LaneSpan, LayerTimes, ScheduledStep, SentPartition

LAYERS = LayerTimes((0.01,) * 2, (0.02,) * 2, (1 << 20,) * 2)
WON = {DDP: (0.2, 0.3, 0.2), FIFO: (0.2, 0.2, 0.4), PLANNED: (0.1, 0.1, 0.2), DECIDED: (0.15, 0.15, 0.3)}
LOST = {**WON, PLANNED: (0.21, 0.22, 0.44), DECIDED: (0.2, 0.2, 0.4)}
SIMULATED = {DDP: 0.2, FIFO: 0.2, PLANNED: 0.1, DECIDED: 0.1}
RESULT = SchedulingResult(
    2,
    LAYERS,
    1 << 19,
    {"slow": WON, "middle": WON, "fast": LOST},
    dict.fromkeys(LINKS, SIMULATED),
    dict.fromkeys(LINKS, 0.09),
    True,
    {FIFO: [LaneSpan("backward", 0, 0.0, 0.1)], PLANNED: [LaneSpan("backward", 0, 0.0, 0.1)]},
    "2 cores, load 1.0, afterwards load 2.0",
)


def test_table_says_where_priority_loses():
    lines = communication_scheduling.table(RESULT).splitlines()
    assert lines[0].startswith("2 ranks (CPU, gloo), emulated links, emulated layer times: 2 layers, 60 ms of computat")
    slow = next(line for line in lines if line.startswith("slow (400 Mb/s"))
    assert slow.endswith("90 ms          200 ms    100 ms       200 ms  200 ms            100 ms            150 ms")
    # The median of the rounds' ratios.
    ratios = [line.split()[-3:] for line in lines if line.startswith(("slow link", "fast link"))]
    slow, fast = (
        [["0.50x"] * 3, ["0.75x", "0.50x", "0.75x"]],
        [["1.10x", "0.50x", "1.05x"], ["1.00x", "0.50x", "1.00x"]],
    )
    assert ratios == [*slow, *fast]
    assert "Where priority loses, slow link: nowhere." in lines
    assert "Where priority loses, fast link: planned priority 1.10x FIFO, planned priority 1.05x torch's DDP." in lines
    # 0.21 s in the fastest round of the last link, simulated 0.1 s.
    assert next(line for line in lines if "target at most 1.05x" in line).endswith(
        "fast FIFO 1.00x, fast planned priority 2.10x; target at most 1.05x: missed."
    )


def test_orders_decide_and_times_do_not():
    assert RESULT.ok
    assert not replace(RESULT, in_order=False).ok
    assert "in that: missed." in communication_scheduling.table(replace(RESULT, in_order=False))


def test_plot_draws_the_lanes_of_one_link():
    figure, words = communication_scheduling.plot(RESULT)
    assert [ax.get_title("left").partition(":")[0] for ax in figure.axes] == [FIFO, PLANNED]
    assert words.endswith("A step: FIFO 200 ms, planned priority 100 ms.")


def test_an_order_that_is_not_the_policys_is_found():
    first, second = GradientPartition(1, 0, 0, 4), GradientPartition(0, 0, 0, 4)

    def step(*partitions):
        return ScheduledStep((), tuple(SentPartition(p, 0.0, 0.0, 0.0, 1.0) for p in partitions))

    one = {FIFO: step(first, second), DECIDED: step(second, first)}
    assert communication_scheduling.sent_in_order([one, one], {FIFO: [first, second]})
    assert not communication_scheduling.sent_in_order([one, one], {FIFO: [second, first]})
    assert not communication_scheduling.sent_in_order([one, {**one, DECIDED: step(first, second)}], {})


def test_a_real_small_bench(monkeypatch, capsys):
    layers = LayerTimes((0.001,) * 3, (0.002,) * 3, (1 << 14,) * 3)
    bench = benches.BENCHES["communication_scheduling"]
    small = replace(bench, measure=lambda n, rounds: communication_scheduling.measure(n, rounds, layers, 1 << 13))
    monkeypatch.setitem(benches.BENCHES, "communication_scheduling", small)
    assert (
        cli.main(["bench", "communication_scheduling", "--ranks", "2", "--rounds", "1", "--json"]) == 0
    )  # the recorded orders are those of the policies, on all ranks
    found = json.loads(capsys.readouterr().out)
    assert found["in order"] is True
    measured = found["measured"]
    assert [(row["link"], row["way"]) for row in measured] == [
        (link, way) for link in LINKS for way in (DDP, FIFO, PLANNED, DECIDED)
    ]
    for row in measured:
        # Layers take their times, whatever the machine does.
        assert len(row["rounds"]) == 1 and row["best"] >= row["no order below"] >= 0.009
