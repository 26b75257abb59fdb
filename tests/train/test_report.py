"""Metrics in files, and who speaks."""

import io
import json
import sys
import types

import pytest
import torch

from dtlearn.train import Options, train
from dtlearn.train.checkpoint import prepare_folder, write_checkpoint
from dtlearn.train.ranks.group import RankOnDevice
from dtlearn.train.report import Report

CPU = torch.device("cpu")


@pytest.fixture
def no_tensorboard(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # importing it raises ImportError


def lines_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_metrics_of_a_run(no_tensorboard, tmp_path, capsys):
    result = train(Options(log_dir=str(tmp_path), max_steps=15))
    run, *rest = lines_of(tmp_path)
    assert (run["kind"], run["world_size"], run["arguments"]["batch_size"]) == ("run", 1, 96)
    steps = [line for line in rest if line["kind"] == "train"]
    assert [(line["step"], line["loss"]) for line in steps] == list(enumerate(result.losses, start=1))
    assert steps[0]["lr"] == pytest.approx(0.01) and steps[10]["lr"] == pytest.approx(0.1)
    assert all(line["samples_per_second"] > 0 for line in steps)
    tests = [line for line in rest if line["kind"] == "test"]
    assert [(line["step"], line["epoch"]) for line in tests] == [(14, 1.0), (15, 15 / 14)]
    assert tests[-1]["accuracy"] == result.accuracy
    captured = capsys.readouterr()
    assert "pip install tensorboard" in captured.out
    assert captured.err.count("\n") == 1  # how it ended: no progress bar where nobody watches


def test_a_resume_drops_the_lines_behind_its_checkpoint(no_tensorboard, tmp_path):
    here = RankOnDevice(0, 1, CPU)
    (tmp_path / "metrics.jsonl").write_text('{"kind": "train", "step": 1}\n{"kind": "train", "step": 2}\n{"kind": "tr')
    report = Report(here, str(tmp_path), step=1)
    report.write("train", 2, loss=0.5)
    report.close()
    assert [line["step"] for line in lines_of(tmp_path)] == [1, 2] and lines_of(tmp_path)[1]["loss"] == 0.5


def test_a_new_run_moves_old_metrics_aside(no_tensorboard, tmp_path, capsys):
    for number in (1, 2, 3):
        report = Report(RankOnDevice(0, 1, CPU), str(tmp_path), step=0)
        report.write("train", 1, loss=number)
        report.close()
    assert {file.name for file in tmp_path.iterdir()} == {"metrics.jsonl", "metrics-1.jsonl", "metrics-2.jsonl"}
    assert lines_of(tmp_path)[0]["loss"] == 3
    assert "the metrics of an earlier run are now in" in capsys.readouterr().out


def test_tensorboard_gets_the_same_numbers(monkeypatch, tmp_path):
    class Writer:
        seen, purged = [], []

        def __init__(self, folder, purge_step):
            self.purged.append(purge_step)

        def add_scalar(self, tag, value, step):
            self.seen.append((tag, step, value))

        def close(self):
            self.seen.append("closed")

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", types.SimpleNamespace(SummaryWriter=Writer))
    result = train(Options(log_dir=str(tmp_path), max_steps=2))
    assert [(s, v) for tag, s, v in Writer.seen[:-1] if tag == "train/loss"] == list(enumerate(result.losses, start=1))
    assert ("test/accuracy", 2, result.accuracy) in Writer.seen and Writer.seen[-1] == "closed"
    assert Writer.purged == [1]


def test_tensorboard_itself_reads_what_was_written(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = train(Options(log_dir=str(tmp_path), max_steps=3))
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [e.step for e in events.Scalars("train/loss")] == [1, 2, 3]
    assert [e.value for e in events.Scalars("train/loss")] == pytest.approx(result.losses)
    assert {"train/lr", "train/samples_per_second", "test/loss", "test/accuracy"} <= set(events.Tags()["scalars"])


def test_a_full_disk_ends_the_metrics_but_not_the_run(no_tensorboard, tmp_path, capsys):
    report = Report(RankOnDevice(0, 1, CPU), str(tmp_path), step=0)
    report._file.close()
    report._file = open("/dev/full", "w") if sys.platform == "linux" else pytest.skip("Linux")  # noqa: SIM115
    report.write("train", 1, loss=1.0)
    report.write("train", 2, loss=1.0)
    assert capsys.readouterr().err == "metrics are no longer written: No space left on device\n"


def test_other_ranks_are_silent(tmp_path, capsys):
    report = Report(RankOnDevice(1, 2, CPU), None, step=0)
    report.say("hello")
    report.start_epoch(0, 10, 0)
    report.step(1, 96, loss=1.0)
    report.close()
    assert capsys.readouterr() == ("", "")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_progress_bar_where_somebody_watches(monkeypatch):
    pytest.importorskip("tqdm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    report = Report(RankOnDevice(0, 1, CPU), None, step=0)
    report.start_epoch(2, 10, 4)
    report.step(5, 96, loss=0.25)
    report._bar.refresh()
    report.end_epoch()
    assert "epoch 3" in sys.stderr.getvalue() and "5/10" in sys.stderr.getvalue()


def test_only_the_newest_checkpoints_are_kept_and_remains_are_cleared(tmp_path):
    (tmp_path / ".new-step-00000009.pt-5f").write_text("half")
    prepare_folder(tmp_path)
    for step in (8, 9, 10, 11):
        write_checkpoint({"format": 1}, tmp_path / f"step-{step:08d}.pt", keep=2)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["step-00000010.pt", "step-00000011.pt"]
