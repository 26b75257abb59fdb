import pytest

from dtlearn.production.watching.metrics_file import read_metrics
from dtlearn.train import Options, train


def test_a_run_is_read_as_it_was_written(tmp_path):
    result = train(Options(max_steps=5, device="cpu", log_dir=str(tmp_path), lr=0.05))
    arguments, lines = read_metrics(tmp_path / "metrics.jsonl")
    assert (arguments["lr"], arguments["task"]) == (0.05, "digits")
    assert [(line.step, line.numbers["train/loss"]) for line in lines[:5]] == list(enumerate(result.losses, 1))
    assert (lines[5].step, lines[5].numbers["test/accuracy"]) == (5, result.accuracy) and len(lines) == 6


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"kind": "train", "step": 1, "loss": 2}\nloss=2', "line 2 is not a line of metrics"),
        ('{"kind": "train", "loss": 2}', "line 1 is not a line of metrics: KeyError"),
        ('{"kind": "trian", "step": 1}', "unknown kind 'trian'; expected run, train or test"),
        ("[1, 2]", "line 1 is not a line of metrics"),
    ],
)
def test_a_line_that_is_none_is_named(tmp_path, text, says):
    file = tmp_path / "metrics.jsonl"
    file.write_text(text)
    with pytest.raises(ValueError, match=says):
        read_metrics(file)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"there is no file .*: give the metrics\.jsonl of a run with --log-dir"):
        read_metrics(tmp_path / "metrics.jsonl")
