"""What a run gives back to `run_ranks`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class TrainResult:
    """What one rank reports.

    Attributes:
        losses: mean loss of each global batch of this run, from update `first_step` on.
        first_step, step: updates made before this run, and at its end.
        accuracy, baseline: on the test samples, 0 to 1, of the model and of always saying the largest class.
        macro_f1: mean over classes of the F1 score, in which small classes count as much as large ones.
        digest: SHA-256 of all parameters and buffers: equal if and only if all bits are.
        stopped_by: the signal that ended the run early; 0 if none did.
        unsaved: why the last checkpoint could not be written; "" if it was, or none was wanted.
    """

    losses: list[float]
    first_step: int
    step: int
    accuracy: float
    macro_f1: float
    baseline: float
    digest: str
    rank: int
    world_size: int
    stopped_by: int = 0
    unsaved: str = ""


def digest(model: nn.Module) -> str:
    """SHA-256 of the names and values of a model's state."""
    found = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        found.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()
