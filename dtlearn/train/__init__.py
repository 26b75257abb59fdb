"""The training script to take home: data-parallel, resumable, the same on one process and on many machines.

    python -m dtlearn.train                                       one process
    torchrun --nproc-per-node 4 -m dtlearn.train --task text      four ranks
    run_ranks(train, 4, Options(task="text"))                                   four ranks, from a notebook or a test

`docs/train.md` is its guide. Files, in the order in which they are best read:

    loop.py         the loop: everything else serves it; `step.py`: one update
    tasks.py, text.py   what is learnt: data, model, optimizer, defaults
    data.py         which rank reads which samples; `evaluate.py`: accuracy that counts each sample once
    place.py        group and device of a rank; `agree.py`: rank 0 decides, all follow
    checkpoint.py   files that are whole or not there; `state.py`: what they hold; `resume.py`: which one is taken
    stopping.py     Ctrl-C and SIGTERM; `schedule.py`: learning rate; `report.py`, `tell.py`: metrics, progress
    options.py      the command line
"""

from dtlearn.train.errors import TrainError
from dtlearn.train.loop import train
from dtlearn.train.options import Options
from dtlearn.train.result import TrainResult

__all__ = ["Options", "TrainError", "TrainResult", "train"]
