"""Published numbers, predicted from their inputs and judged: `entries`, the file; `inputs`, from an entry to a run;
`calibration`, one row for each group; `analytic` and `modelled`, the targets; `scoring`, the verdicts."""

from .calibration import GROUPS
from .entries import BUILT_IN, CannotPredict, PublishedNumber, read_entries
from .scoring import JudgedNumber, counted, predict, score, score_table, score_values

__all__ = [
    "BUILT_IN",
    "GROUPS",
    "CannotPredict",
    "JudgedNumber",
    "PublishedNumber",
    "counted",
    "predict",
    "read_entries",
    "score",
    "score_table",
    "score_values",
]
