"""Ctrl-C, SIGTERM and kill -9: what was trained is not lost, and the run that goes on is the one that never stopped."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from dtlearn.runtime.run import run_ranks
from dtlearn.train import Options, train
from dtlearn.train.checkpoint import checkpoints_in, step_of
from dtlearn.train.ranks.stop_signals import SECONDS_OF_ONE_STOP, StopSignals, signal_of

LONG = 2000  # epochs: more than anybody waits for


def stopped_on_one_rank(number, folder):
    """Rank 1 gets a signal while it makes its fifth update."""
    from dtlearn.train import loop

    train_step = loop.train_step

    def signalled(training, *args):
        if training.step == 4 and training.here.rank == 1:
            signal.raise_signal(number)
        return train_step(training, *args)

    loop.train_step = signalled
    return train(Options(checkpoint_dir=folder))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_one_rank_stops_all_at_the_same_step(number, tmp_path):
    run = run_ranks(stopped_on_one_rank, 2, number, str(tmp_path), device="cpu")
    assert [(r.step, r.stopped_by) for r in run] == [(5, number)] * 2
    assert [step_of(file) for file in checkpoints_in(tmp_path)] == [5]
    assert f"stopped after step 5 of 210 ({number.name}); the same command goes on from {tmp_path}" in run.output[0]
    assert not run.output[1]


def run_until(steps, command, log_dir, number):
    """Start a run, and send it a signal when it has made so many steps. Returns its output."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        deadline = time.monotonic() + 90
        while num_steps(log_dir) < steps and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        child.send_signal(number)
        return child.communicate(timeout=60)[0]
    finally:
        child.kill()
        child.wait()


def num_steps(log_dir):
    file = log_dir / "metrics.jsonl"
    return file.read_text().count('"train"') if file.exists() else 0


def goes_on_as_if_nothing_had_been(world_size, tmp_path):
    """Resume and make a few steps, and compare them with a run that never stopped."""
    options = {"epochs": LONG, "max_steps": step_of(checkpoints_in(tmp_path / "ck")[0]) + 3}
    places = {"checkpoint_dir": str(tmp_path / "ck"), "log_dir": str(tmp_path / "log")}
    whole = run_ranks(train, world_size, Options(**options), device="cpu")[0]
    resumed = run_ranks(train, world_size, Options(**options, **places), device="cpu")[0]
    assert resumed.first_step == options["max_steps"] - 3
    assert resumed.losses == whole.losses[-3:] and resumed.digest == whole.digest
    lines = [json.loads(line) for line in (tmp_path / "log" / "metrics.jsonl").read_text().splitlines()]
    steps = [(line["step"], line["loss"]) for line in lines if line["kind"] == "train"]
    assert steps == list(enumerate(whole.losses, start=1))  # no step twice, none missing, before the stop and after


@pytest.mark.slow
def test_torchrun_that_is_terminated_saves_and_goes_on(tmp_path):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = ["-m", "dtlearn.train", "--epochs", str(LONG), "--workers", "1"]
    places = ["--checkpoint-dir", str(tmp_path / "ck"), "--log-dir", str(tmp_path / "log")]
    said = run_until(20, [*launcher, *script, *places], tmp_path / "log", signal.SIGTERM)
    (file,) = checkpoints_in(tmp_path / "ck")  # not yet at step 50, where the first one is due
    assert f"stopped after step {step_of(file)} of 28000 (SIGTERM); the same command goes on from" in said
    goes_on_as_if_nothing_had_been(2, tmp_path)


def test_a_run_that_is_killed_goes_on_from_its_last_checkpoint(tmp_path):
    script = [sys.executable, "-m", "dtlearn.train", "--epochs", str(LONG), "--checkpoint-every", "5"]
    places = ["--checkpoint-dir", str(tmp_path / "ck"), "--log-dir", str(tmp_path / "log")]
    run_until(12, [*script, *places], tmp_path / "log", signal.SIGKILL)
    assert step_of(checkpoints_in(tmp_path / "ck")[0]) % 5 == 0
    goes_on_as_if_nothing_had_been(1, tmp_path)


def test_a_second_interrupt_ends_at_once_but_an_echo_of_the_first_does_not(monkeypatch):
    before = signal.getsignal(signal.SIGINT)
    with StopSignals() as signals:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert signals.as_list() == [2.0, 0.0]
        later = time.monotonic() + SECONDS_OF_ONE_STOP + 1
        monkeypatch.setattr(time, "monotonic", lambda: later)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_the_counts_name_the_signal():
    assert [signal_of(c) for c in ([0.0, 0.0], [0.0, 3.0], [1.0, 2.0])] == [0, signal.SIGTERM, signal.SIGINT]
