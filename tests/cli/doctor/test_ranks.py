import pytest

from dtlearn.cli.doctor import ranks as r
from dtlearn.cli.doctor.software import TorchFacts
from dtlearn.runtime.device import Placement
from dtlearn.runtime.errors import LaunchError, RanksTimeout
from dtlearn.runtime.machine.isolation import Allowed
from dtlearn.runtime.run import RunResult

CUDA, CPU = TorchFacts("2.13.0", "13.0", True, True), TorchFacts("2.13.0+cpu", None, True, False)
NCCL = "nccl on 2 GPUs: every rank has a GPU of its own"
H200 = "0, NVIDIA H200, 143771, 512, 570.1"


def test_gpu_text():
    assert r.gpu_text(H200) == "NVIDIA H200, 140.4 GiB (0.5 in use), driver 570.1"
    assert r.gpu_text("0, NVIDIA GB10, [N/A], [N/A], 580.9") == "NVIDIA GB10, driver 580.9"


@pytest.mark.parametrize(
    ("seen", "lines", "facts", "visible", "state", "says"),
    [
        (0, None, CPU, None, "ok", "none: ranks run on CPU"),
        (2, [H200, H200], CUDA, None, "ok", "2: NVIDIA H200"),
        (1, [H200, H200], CUDA, "0", "ok", "torch sees 1 of 2 (CUDA_VISIBLE_DEVICES=0)"),
        (2, None, CUDA, None, "ok", "torch sees 2"),
        (0, [H200], CUDA, "", "note", "CUDA_VISIBLE_DEVICES=''"),
        (0, [H200], CPU, None, "note", "without CUDA"),
        (0, [H200], CUDA, None, "note", "torch sees none"),
    ],
)
def test_gpus(seen, lines, facts, visible, state, says):
    check = r.check_gpus(seen, lines, facts, visible)
    assert (check.state, says in check.found) == (state, True)
    assert bool(check.advice) == (state == "note")


@pytest.mark.parametrize(
    ("num_gpus", "says"),
    [
        (0, "2 and 4 ranks: gloo on CPU: no GPU on this machine"),
        (2, f"2 ranks: {NCCL}; 4 ranks: gloo on CPU: 4 ranks, but only 2 GPU(s)"),
        (4, f"2 ranks: {NCCL}; 4 too"),
    ],
)
def test_device_rule(num_gpus, says):
    assert r.check_placement(num_gpus).found == says


def test_start_and_isolation():
    assert "forked" in r.check_start({"forks": True}).found
    assert "loads torch itself" in r.check_start({"forks": False}).found
    assert str(Allowed(2)).startswith("level 2 of 2: a run can have")
    assert "(not higher: user namespaces refused)" in str(Allowed(1, "user namespaces refused"))


def test_limits(monkeypatch):
    monkeypatch.delenv("DTLEARN_RANK_MEMORY", raising=False)
    found = r.check_limits(4, 8 << 30).found
    assert (
        found
        == "each of 4 ranks on the CPU may use 1.8 GiB of memory; DTLEARN_RANK_MEMORY=GiB changes it; no core dumps"
    )
    assert r.check_limits(4, None).found.startswith("none for the memory")
    monkeypatch.setenv("DTLEARN_RANK_MEMORY", "lots")
    assert r.check_limits(4, 8 << 30).state == "problem"


def fake_run(values):
    return lambda *args, **kwargs: RunResult(values, ["", ""], Placement("gloo", ("cpu", "cpu"), ""), 0.1)


def raising(error):
    def run(*args, **kwargs):
        raise error

    return run


@pytest.mark.parametrize(
    ("run", "state", "says"),
    [
        (fake_run([3.0, 3.0]), "ok", "0.10 s, gloo"),
        (fake_run([3.0, 1.0]), "problem", "1 + 2 gave [3.0, 1.0]"),
        (raising(RanksTimeout("not finished within 20 s\nrank 0: ...")), "problem", "not finished within 20 s"),
    ],
)
def test_all_reduce(monkeypatch, run, state, says):
    monkeypatch.setattr(r, "run_ranks", run)
    check = r.try_all_reduce()
    assert (check.state, says in check.found, "rank 0:" in check.found) == (state, True, False)


@pytest.mark.parametrize("error", [LaunchError("rank 1 did not start"), AttributeError("no attribute 'cells'")])
def test_cells_that_do_not_start(monkeypatch, error):
    monkeypatch.setattr(r, "World", raising(error))
    check = r.try_cells()
    assert check.state == "problem" and str(error) in check.found
