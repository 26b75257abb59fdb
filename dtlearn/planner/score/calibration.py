"""What each group's training system hides and reaches: calibrated on at most one row of the group, the rest predicted.

`efficiency` is solved so that the named row comes out as printed (`tests/planner/score/test_calibration.py` solves it
again); what is hidden is what the paper says of its system. A group that is not here has `Software()`, uncalibrated.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ..run import Software
from .entries import Entry

EARLY = Software(tp_hidden=0.0, dp_hidden=False)  # Megatron-LM of 2021, 2104.04473


class Calibration(NamedTuple):
    """A group's system.

    Attributes:
        software: as calibrated.
        row: the entry that its efficiency was solved on; "": none.
        why: what is hidden, by which source.
    """

    software: Software
    row: str
    why: str


GROUPS: dict[str, Calibration] = {}


def software_for(entry: Entry, low_precision: bool = False) -> Software:
    """The system of an entry: its group's, or `Software()`; with products in 8 bits if it says so."""
    known = GROUPS.get(f"{entry.group}/{entry.inputs.get('system')}") or GROUPS.get(entry.group)
    software = known.software if known else Software()
    return replace(software, low_precision=low_precision)
