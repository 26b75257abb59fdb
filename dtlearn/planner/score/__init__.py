"""Published numbers, predicted from their inputs and judged: `entries`, the file; `inputs`, from an entry to a run;
`calibration`, one row for each group; `analytic` and `modelled`, the targets; `scoring`, the verdicts. Beside them
`bloom_topologies`: the layouts that BLOOM's team timed."""

from .bloom_topologies import (
    FINAL,
    TIMED,
    PlannedLayout,
    TimedLayout,
    calibrated,
    plan_of_layout,
    run_of_layout,
)
from .calibration import GROUPS
from .entries import BUILT_IN, CannotPredict, PublishedNumber, read_entries
from .scoring import JudgedNumber, counted, predict, score, score_table, score_values

__all__ = [
    "BUILT_IN",
    "FINAL",
    "GROUPS",
    "TIMED",
    "CannotPredict",
    "JudgedNumber",
    "PlannedLayout",
    "PublishedNumber",
    "TimedLayout",
    "calibrated",
    "counted",
    "plan_of_layout",
    "predict",
    "read_entries",
    "run_of_layout",
    "score",
    "score_table",
    "score_values",
]
