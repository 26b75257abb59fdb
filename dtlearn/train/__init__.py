"""The training script to take home: data-parallel, resumable, the same on one process and on many machines.

    python -m dtlearn.train                                       one process
    torchrun --nproc-per-node 4 -m dtlearn.train --task text      four ranks
    run_ranks(train, 4, Options(task="text"))                     four ranks, from a notebook or a test

`docs/train.md` is its guide. It composes a sampler, a wrapper, an evaluation and checkpoints, and runs on each rank, or
in one process alone. Files, in the order in which they are best read:

    loop.py         the loop: everything else serves it; `step.py`: one update
    task.py         what a task is; `tasks.py`: digits; `text.py`: passages
    data.py         which rank reads which samples
    ranks/          group and device of a rank; rank 0 decides, all follow; Ctrl-C and SIGTERM
    state.py        what a run is made of; `checkpoint.py`: files that are whole or not there, and which one is taken
    report.py       what a run says, metrics, progress; `options.py`: the command line
"""

from .loop import train
from .options import Options
from .ranks.rank_0 import TrainError
from .state import TrainResult

__all__ = ["Options", "TrainError", "TrainResult", "train"]
