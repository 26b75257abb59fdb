"""Checks of chapter 16."""

from .. import MAY_HELP as MAY_HELP
from ..own_work import forbids

# Rules on the text of every answer. The planner has Young's interval, and the large batches of chapter 3 both rules.
READS = [forbids("dtlearn.production", "dtlearn.planner", "dtlearn.data_parallel.large_batch")]
