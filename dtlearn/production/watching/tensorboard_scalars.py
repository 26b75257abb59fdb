"""The curves that the training script wrote for TensorBoard, read back without its server."""

from __future__ import annotations

from pathlib import Path


def read_tensorboard(folder: str | Path) -> dict[str, list[tuple[int, float]]]:
    """All curves of a `--log-dir`: {"train/loss": [(step, value), ...], ...}; values are float32.

    Args:
        folder: with event files, which `tensorboard --logdir` would show.

    Raises:
        ValueError: there is no event file in the folder.
    """
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

    if not list(Path(folder).glob("events.out.tfevents.*")):
        raise ValueError(f"{folder} holds no event file of TensorBoard: give the --log-dir of a run")
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})  # 0: all of them, not a sample
    events.Reload()
    return {tag: [(e.step, float(e.value)) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
