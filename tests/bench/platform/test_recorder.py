import json

import pytest

from dtlearn import cli
from dtlearn.bench.platform import recorder
from dtlearn.bench.platform.recorder import RecorderResult

RESULT = RecorderResult(
    2,
    {"without": (20e-6, 22e-6, 21e-6), "with": (50e-6, 40e-6, 45e-6)},
    {"without": (0.1, 0.2, 0.1), "with": (0.101, 0.204, 0.102)},
    {"without": (0.08, 0.08, 0.08), "with": (0.081, 0.0808, 0.08)},
    826112,
    "2 cores, load 0.5",
)


def test_table():
    assert recorder.table(RESULT).splitlines() == [
        "With and without the recorder on 2 ranks (CPU, gloo), 3 rounds in turn, medians",
        "",
        "                    without     with          target",
        "---------------------------------------------------------",
        "one call              21 us    45 us  +24 us",
        "one step             100 ms   102 ms   +2.0%    < 3%  met",
        "its processor time    80 ms  80.8 ms   +1.0%",
        "",
        "Of the step's share 95 %: +1.0% to +2.0%.",
        "One call: 200 us of computing, then an all-reduce of one number in a group of one rank.",
        "One step: forward, backward, AdamW of a GPT of 826,112 parameters under torch's DDP.",
        "2 cores, load 0.5; timings are noisy: quote the share, which compares neighbours in time.",
    ]


def test_a_share_above_the_target_is_missed():
    slow = RecorderResult(2, RESULT.call, {"without": (0.1,), "with": (0.104,)}, RESULT.step_cpu, 1, "")
    assert slow.step_share == pytest.approx(0.04)
    assert "missed" in recorder.table(slow)


def test_where_rounds_differ_by_more_than_the_target_nothing_is_said():
    noisy = {"without": (0.1,) * 30, "with": (0.09, 0.12) * 15}
    result = RecorderResult(2, RESULT.call, noisy, RESULT.step_cpu, 1, "")
    low, high = result.step_between
    assert (low, high) == (pytest.approx(-0.1), pytest.approx(0.2)) and result.verdict == "within the noise"
    assert "-10.0% to +20.0%" in recorder.table(result)
    calm = {"without": (0.1,) * 30, "with": (0.101,) * 28 + (0.2,) * 2}
    assert RecorderResult(2, RESULT.call, calm, RESULT.step_cpu, 1, "").verdict == "met"


def test_values():
    told = recorder.values(RESULT)
    assert told["call_cost"] == pytest.approx(24e-6)
    assert told["step_share"] == pytest.approx(0.02)  # of each round, not of the medians
    assert told["step_cpu_share"] == pytest.approx(0.01)
    assert told["targets"] == {"step_share": 0.03} and told["verdict"] == "met"
    json.dumps(told)


def test_a_real_small_bench(capsys, monkeypatch):
    monkeypatch.setattr(recorder, "_CALLS", 50)
    monkeypatch.setattr(recorder, "_STEPS", 2)
    assert cli.main(["bench", "recorder", "--rounds", "2", "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert measured["ranks"] == 2
    assert len(measured["step"]["with"]) == len(measured["call"]["without"]) == 2
    assert measured["call_cost"] < 0.01


def test_without_means_torch_as_it_comes():
    from dtlearn.runtime.run import run_ranks

    def look():
        import torch
        import torch.distributed as dist

        from dtlearn.bench.platform.recorder import not_recorded
        from dtlearn.runtime.recording.dispatch import KERNELS

        ours = dist.all_reduce, torch.nn.Module.__call__
        with not_recorded():
            bare = dist.all_reduce, torch.nn.Module.__call__
            kernels = len(KERNELS._libraries)
            dist.barrier()
        dist.barrier()
        return [a is b for a, b in zip(ours, bare, strict=True)], kernels, len(KERNELS._libraries)

    result = run_ranks(look, 1, record=True)
    assert result[0] == ([False, False], 0, 2)
    assert len(result.record) == 1
