"""An offline run of Weights & Biases says what the training script's own file says."""

import json

import pytest

from dtlearn.production.watching.metrics_file import read_metrics
from dtlearn.production.watching.wandb_log import log_offline, read_offline
from dtlearn.train import Options, train

pytestmark = pytest.mark.watching


@pytest.fixture(scope="module")
def metrics(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    train(Options(max_steps=12, device="cpu", log_dir=str(folder)))
    return folder / "metrics.jsonl"


def test_what_is_logged_is_read_back(metrics, tmp_path):
    config, curves = read_offline(log_offline(metrics, tmp_path / "wandb"))
    arguments, lines = read_metrics(metrics)
    assert config == json.loads(json.dumps(arguments)) and config["max_steps"] == 12
    assert curves["train/loss"] == [(line.step, line.numbers["train/loss"]) for line in lines[:12]]
    assert [step for step, _ in curves["test/accuracy"]] == [12]


def test_a_record_in_several_pieces_is_read_back(tmp_path):
    entry = {"kind": "train", "step": 1} | {f"number_of_a_long_name_{n}": n / 7 for n in range(2000)}
    file = tmp_path / "metrics.jsonl"
    file.write_text("\n".join(json.dumps({**entry, "step": step}) for step in (1, 2)))
    written = log_offline(file, tmp_path / "wandb")
    assert written.stat().st_size > 2 * 32 * 1024  # a record is longer than a block
    _, curves = read_offline(written)
    assert len(curves) == 2000 and curves["train/number_of_a_long_name_9"] == [(1, 9 / 7), (2, 9 / 7)]


def test_a_damaged_file_is_named(metrics, tmp_path):
    written = log_offline(metrics, tmp_path / "wandb")
    cut = tmp_path / "cut.wandb"
    cut.write_bytes(written.read_bytes()[:-5])
    with pytest.raises(ValueError, match=r"cut\.wandb is cut off or damaged at byte \d+"):
        read_offline(cut)
    cut.write_bytes(b"PK")
    with pytest.raises(ValueError, match="does not begin with :W&B"):
        read_offline(cut)
