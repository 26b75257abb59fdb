import numpy as np
import pytest

from dtlearn.production.watching.metrics_file import read_metrics
from dtlearn.production.watching.tensorboard_scalars import read_tensorboard
from dtlearn.train import Options, train


def test_tensorboard_has_the_numbers_of_the_file(tmp_path):
    train(Options(max_steps=5, device="cpu", log_dir=str(tmp_path)))
    curves = read_tensorboard(tmp_path)
    _, lines = read_metrics(tmp_path / "metrics.jsonl")
    points = [(name, line.step, float(np.float32(value))) for line in lines for name, value in line.numbers.items()]
    assert sorted((name, *point) for name, curve in curves.items() for point in curve) == sorted(points)
    assert len(curves["train/loss"]) == 5


def test_a_folder_without_events_is_named(tmp_path):
    with pytest.raises(ValueError, match="no event file of TensorBoard: give the --log-dir of a run"):
        read_tensorboard(tmp_path)
