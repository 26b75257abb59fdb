"""Checkpoints of many ranks, that any number of ranks can load, and that are whole or not there.

Files, in the order in which they are best read (before them `page_resharding`, which lies beside this folder):

    format.py, blocks.py     the manifest, and files with checksums, as data
    pieces.py                tensors of one rank, written to its file and read from others'
    store.py                 the folder: commit, pointer, lock
    ranks.py, staging.py     if one rank cannot, all raise; a copy that is written while training goes on
    checkpointer.py          all of it, on the ranks of a job
    layouts.py               which elements a rank has: data-parallel, ZeRO, tensor-parallel
    training_state.py        what a job needs to go on with the same bits
    elastic.py               what ranks have not sent, on another number of ranks; the batch is in `batch_plan`
    job.py                   a small training job that has all of it
    dcp.py                   `torch.distributed.checkpoint`, both ways

`format` to `store` and `elastic` need no ranks; the others run on them.
"""

from ..batch_plan import BatchPlan, plan_batch
from .checkpointer import Checkpointer, LoadedCheckpoint, common_steps
from .dcp import DtlearnReader, export_dcp, read_dcp
from .elastic import merge_residuals, ranks_to_merge
from .format import CheckpointError, DamagedError, Manifest
from .job import JobOptions, JobResult, run_job
from .layouts import Cut, load_shards, replicated_cuts, shards_of, tensor_parallel_cuts, wanted_by
from .pieces import read_pieces
from .staging import SaveTimes
from .store import complete_steps, newest_step, read_manifest, step_folder
from .training_state import TrainingState

__all__ = [
    "BatchPlan",
    "CheckpointError",
    "Checkpointer",
    "Cut",
    "DamagedError",
    "DtlearnReader",
    "JobOptions",
    "JobResult",
    "LoadedCheckpoint",
    "Manifest",
    "SaveTimes",
    "TrainingState",
    "common_steps",
    "complete_steps",
    "export_dcp",
    "load_shards",
    "merge_residuals",
    "newest_step",
    "plan_batch",
    "ranks_to_merge",
    "read_dcp",
    "read_manifest",
    "read_pieces",
    "replicated_cuts",
    "run_job",
    "shards_of",
    "step_folder",
    "tensor_parallel_cuts",
    "wanted_by",
]
