"""Checks of chapter 15."""

from .. import MAY_HELP as MAY_HELP
from ..own_work import forbids, forbids_torchs

# Rules on the text of every answer. The exercises are graded without the libraries: what these do is written by hand.
READS = [
    forbids("dtlearn.libraries", "dtlearn.zero", "dtlearn.planner", "dtlearn.sharing"),
    forbids_torchs("deepspeed", "accelerate"),
]
