"""What the training script wrote into `metrics.jsonl`, for trackers: (step, {name: number}) in order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple


class MetricsLine(NamedTuple):
    """One line. `numbers` are named as in TensorBoard, "train/loss"."""

    step: int
    numbers: dict[str, float]


def read_metrics(file: str | Path) -> tuple[dict[str, Any], list[MetricsLine]]:
    """The arguments of the run, and its numbers.

    Args:
        file: `metrics.jsonl` of a `--log-dir`.

    Raises:
        ValueError: the file is not there, or a line is not one of the training script's.
    """
    file = Path(file)
    if not file.is_file():
        raise ValueError(f"there is no file {file}: give the metrics.jsonl of a run with --log-dir")
    arguments: dict[str, Any] = {}
    lines = []
    for number, (kind, step, values) in enumerate(_entries(file), 1):
        if kind == "run":
            arguments = values["arguments"]
        elif kind in ("train", "test"):
            lines.append(MetricsLine(step, {f"{kind}/{name}": float(value) for name, value in values.items()}))
        else:
            raise ValueError(f"{file}, line {number}: unknown kind {kind!r}; expected run, train or test")
    return arguments, lines


def _entries(file: Path) -> Iterator[tuple[str, int, dict[str, Any]]]:
    for number, text in enumerate(file.read_text("utf-8").splitlines(), 1):
        try:
            entry = json.loads(text)
            yield entry.pop("kind"), int(entry.pop("step")), entry
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{file}, line {number} is not a line of metrics: {type(error).__name__}") from error
