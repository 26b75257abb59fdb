"""Layer 3: memory. Where the bytes of a training step go, and how to hold fewer of them.

`ledger/`: what was allocated, for what, by which line, and when it was gone; counted while a step runs.
"""

from .ledger.record import CATEGORIES, Allocation, MemoryRecord, Peak, Phase

__all__ = ["CATEGORIES", "Allocation", "MemoryRecord", "Peak", "Phase"]
