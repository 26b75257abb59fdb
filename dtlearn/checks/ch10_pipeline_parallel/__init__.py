"""Checks of chapter 10."""

from .. import MAY_HELP as MAY_HELP
from ..own_work import forbids, forbids_torchs

# Rules on the text of every answer. The last two packages hand the first one's names on.
READS = [
    forbids("dtlearn.pipeline_parallel", "dtlearn.sharing", "dtlearn.viz", "dtlearn.bench"),
    forbids_torchs("torch.distributed.pipelining"),
]
