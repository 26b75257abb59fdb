"""Checks of chapter 16."""

from .. import MAY_HELP as MAY_HELP
from ..own_work import forbids, forbids_torchs

# Rules on the text of every answer. `production.practice` is what exercises hand over: a disk, and a job. The planner
# has Young's interval, and the large batches of chapter 3 both rules.
READS = [
    forbids(
        *("dtlearn.production.checkpoints", "dtlearn.production.faults", "dtlearn.production.goodput"),
        *("dtlearn.sharing", "dtlearn.planner", "dtlearn.data_parallel.large_batch"),
    ),
    # Single files, which cannot be hidden as a folder can.
    forbids_torchs(
        *("torch.distributed.checkpoint", "dtlearn.production.page_resharding", "dtlearn.production.stragglers"),
        "dtlearn.production.batch_plan",
    ),
]

# Codes that only this chapter's exercises use.
MEANINGS = {
    "DTL-VALUE-FAULT": "another fault than that of the program",
    "DTL-VALUE-SHOWS": "the line on which a fault shows, not the one in which it arises",
    "DTL-VALUE-VICTIM": "a rank that only suffers from a fault",
}
