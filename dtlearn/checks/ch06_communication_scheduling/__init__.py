"""Checks of chapter 6."""

from .. import MAY_HELP as MAY_HELP
from ..own_work import forbids, forbids_torchs

# Rules on the text of every answer.
READS = [
    forbids("dtlearn.communication_scheduling", "dtlearn.sharing", "dtlearn.data_parallel", "dtlearn.bench"),
    forbids_torchs("torch.nn.parallel"),  # the same parameters without a scheduler
]
