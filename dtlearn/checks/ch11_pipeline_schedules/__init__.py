"""Checks of chapter 11."""

from .. import MAY_HELP as MAY_HELP
from ..own_work import forbids, forbids_torchs

# Rules on the text of every answer. The last two import the package's schedules, validator and simulator.
READS = [
    forbids("dtlearn.pipeline_parallel", "dtlearn.sharing", "dtlearn.viz", "dtlearn.bench"),
    forbids_torchs("torch.distributed.pipelining"),
]
# The codes that only these exercises use; see `dtlearn.checks.meanings`.
MEANINGS = {"DTL-VALUE-BUBBLE": "more idle time than the schedule may have"}
