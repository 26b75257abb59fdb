"""A small record to draw: a weight, an activation, a gradient and a temporary, over a step of two phases."""

from dtlearn.memory.ledger.record import Allocation, MemoryRecord, Phase

MILLION = 1_000_000


def record(activation: int = 3 * MILLION) -> MemoryRecord:
    """Peak at tick 3: 2 + activation + 1 + 4 MB, of which the temporary of 4 MB is the largest made in backward."""
    line = "train.py:7"
    return MemoryRecord(
        (
            Allocation(2 * MILLION, "parameters", "blocks.0.up", "", "", "", 0, None),
            Allocation(activation, "activations", "blocks.0.up", "aten::addmm", line, "forward", 1, 5),
            Allocation(1 * MILLION, "gradients", "blocks.1", "aten::mm", "", "backward", 2, None),
            Allocation(4 * MILLION, "temporaries", "", "aten::mul", line, "backward", 3, 4),
        ),
        (Phase("forward", 0, 1), Phase("backward", 1, 5)),
        5,
    )
