"""A run for Weights & Biases, written offline and read back: no account, and no network.

`wandb.init(mode="offline")` writes one file, `run-ID.wandb`, which `wandb sync` uploads later. The file is a log in
LevelDB's format: after a head of 7 bytes, blocks of 32 KiB with pieces of records, each piece with a checksum, a
length and a type. A record is a protocol-buffer message of Weights & Biases.

Source: LevelDB's "log_format.md"; the head, and that a record is `wandb.proto.wandb_internal_pb2.Record`, from files
that wandb 0.31 wrote.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .extras import load_extra
from .metrics_file import read_metrics

_HEAD = 7  # ":W&B", a number that tells the order of bytes, and the version
_BLOCK = 32 * 1024
_PIECE_HEAD = 7  # checksum (4), length (2), type (1)
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def log_offline(metrics_file: str | Path, folder: str | Path, *, project: str = "dtlearn") -> Path:
    """Write a run of the training script as an offline run of Weights & Biases.

    Args:
        metrics_file: `metrics.jsonl` of a `--log-dir`.
        folder: in which wandb makes a folder for the run.
        project: under which `wandb sync` would show it.

    Returns:
        The file that was written.

    Raises:
        ExtraMissing: Weights & Biases is not installed.
        ValueError: see `read_metrics`.
    """
    wandb = load_extra("wandb")
    arguments, lines = read_metrics(metrics_file)
    Path(folder).mkdir(parents=True, exist_ok=True)
    settings = wandb.Settings(silent=True, console="off", x_disable_stats=True, x_disable_meta=True)
    run = wandb.init(mode="offline", project=project, dir=str(folder), config=arguments, settings=settings)
    try:
        for step, numbers in lines:
            run.log(numbers, step=step)
        run_folder = Path(run.dir).parent
    finally:
        run.finish()
        wandb.teardown()  # its helper process would stay until this one ends
    (file,) = run_folder.glob("run-*.wandb")
    return file


def read_offline(file: str | Path) -> tuple[dict[str, Any], dict[str, list[tuple[int, float]]]]:
    """Configuration and curves of an offline run.

    Returns:
        {argument: value}, and {"train/loss": [(step, value), ...], ...}.

    Raises:
        ExtraMissing: Weights & Biases is not installed, which knows the messages.
        ValueError: the file is none of its runs, or cut off.
    """
    messages = load_extra("wandb.proto.wandb_internal_pb2")
    config: dict[str, Any] = {}
    curves: dict[str, list[tuple[int, float]]] = {}
    for blob in _records(Path(file)):
        record = messages.Record.FromString(blob)
        if record.HasField("run"):
            config |= {i.key: json.loads(i.value_json) for i in record.run.config.update if i.key != "_wandb"}
        if record.HasField("history"):
            values = {
                ".".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item
            }
            for name, value in values.items():
                if not name.startswith("_"):  # wandb's own: _step, _runtime, _timestamp
                    curves.setdefault(name, []).append((values["_step"], value))
    return config, curves


def _records(file: Path) -> Iterator[bytes]:
    """The records of a log, put together from their pieces."""
    blob = file.read_bytes()
    if not blob.startswith(b":W&B"):
        raise ValueError(f"{file} is no run of Weights & Biases: it does not begin with :W&B")
    place, record = _HEAD, b""
    while place < len(blob):
        left = _BLOCK - place % _BLOCK
        if left < _PIECE_HEAD:  # too little room for a piece: zeros
            place += left
            continue
        length, kind = int.from_bytes(blob[place + 4 : place + 6], "little"), blob[place + 6 : place + 7]
        start, place = place + _PIECE_HEAD, place + _PIECE_HEAD + length
        if not kind or place > len(blob) or kind[0] not in (_FULL, _FIRST, _MIDDLE, _LAST):
            raise ValueError(f"{file} is cut off or damaged at byte {start - _PIECE_HEAD}")
        record += blob[start:place]
        if kind[0] in (_FULL, _LAST):
            yield record
            record = b""
