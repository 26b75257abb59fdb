import json

import pytest

from dtlearn import cli
from dtlearn.bench.platform import launch
from dtlearn.bench.platform.launch import Launches, LaunchResult
from dtlearn.bench.platform.other_launchers import NOTEBOOK, SPAWN
from dtlearn.runtime.errors import DtlearnError

RESULT = LaunchResult(
    4,
    (
        Launches("run_ranks", 3.5, (0.2, 0.1, 0.3)),
        Launches(SPAWN, 4.0, (4.0, 5.0, 4.5)),
        Launches(NOTEBOOK, None, (), "no accelerate"),
    ),
    "2 cores, load 0.5",
)


def test_table():
    assert launch.table(RESULT).splitlines() == [
        "From call to result of an all-reduce on 4 ranks (CPU, gloo), 3 rounds in turn",
        "",
        "launcher                      first call  median     min     max  of run_ranks",
        "-" * 78,
        "run_ranks                          3.5 s  200 ms  100 ms  300 ms          1.0x",
        "torch.multiprocessing.spawn          4 s   4.5 s     4 s     5 s         20.0x",
        "accelerate.notebook_launcher           -       -       -       -             -",
        "",
        "accelerate.notebook_launcher failed: no accelerate",
        "2 cores, load 0.5; timings are noisy: quote the ratio.",
        "The first call of run_ranks includes loading torch once, in the helper process that later calls fork from.",
    ]
    assert not RESULT.ok


def test_values():
    ours, spawn, notebook = launch.values(RESULT)["launches"]
    assert (ours["median"], ours["min"], ours["max"], ours["ratio"]) == (0.2, 0.1, 0.3, 1.0)
    assert spawn["ratio"] == pytest.approx(20)  # of each round, not of the medians
    assert (notebook["ratio"], notebook["error"]) == (None, "no accelerate")


class FakeRivals:
    """Keeps the order of the calls; one launcher fails from its second call on."""

    calls: list[str]

    def __init__(self):
        FakeRivals.calls = []

    def seconds(self, launcher, ranks):
        self.calls.append(launcher)
        if launcher == NOTEBOOK and self.calls.count(NOTEBOOK) == 2:
            raise DtlearnError("port in use\nand more")
        return 1.0

    def close(self):
        self.calls.append("closed")


def test_launchers_take_turns_and_one_that_fails_is_left_out(monkeypatch):
    monkeypatch.setattr(launch, "Rivals", FakeRivals)
    monkeypatch.setattr(launch, "_run_ranks_seconds", lambda ranks: FakeRivals.calls.append("ours") or 0.1)
    result = launch.measure(2, 2)
    assert FakeRivals.calls == ["ours", SPAWN, NOTEBOOK, "ours", SPAWN, NOTEBOOK, "ours", SPAWN, "closed"]
    assert result.launches == (
        Launches("run_ranks", 0.1, (0.1, 0.1)),
        Launches(SPAWN, 1.0, (1.0, 1.0)),
        Launches(NOTEBOOK, 1.0, (), "port in use"),
    )


def test_a_real_small_bench(capsys):
    assert cli.main(["bench", "launch", "--ranks", "2", "--rounds", "1", "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert [each["launcher"] for each in measured["launches"]] == ["run_ranks", SPAWN, NOTEBOOK]
    assert all(0 < each["median"] < 60 and each["error"] == "" for each in measured["launches"])
    # Two new interpreters that load torch against two forks: far apart even on a busy machine.
    assert measured["launches"][1]["ratio"] > 3


def test_a_launcher_that_failed_later_is_compared_in_the_rounds_that_it_did():
    result = LaunchResult(2, (Launches("run_ranks", 1.0, (0.1, 0.2)), Launches(SPAWN, 1.0, (0.4,), "gone")), "")
    assert [each["ratio"] for each in launch.values(result)["launches"]] == [1.0, pytest.approx(4)]
