"""Checks of chapter 4."""

from .. import MAY_HELP as MAY_HELP
from ..own_work import forbids, forbids_torchs

# Rules on the text of every answer.
READS = [
    forbids("dtlearn.parameter_server", "dtlearn.sharing", "dtlearn.data_parallel", "dtlearn.bench"),
    forbids_torchs("torch.distributed.rpc", "torch.nn.parallel"),  # its own servers, and the same mean without one
]
