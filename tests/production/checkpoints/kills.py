"""Ranks that save, and one of them that is killed after the n-th call of the operating system that a save makes."""

import functools
import os
import shutil
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from dtlearn.production.checkpoints import Checkpointer, complete_steps, newest_step, step_folder
from dtlearn.sharing.resharding import flat_piece, whole_piece

CALLS = ("open", "write", "fsync", "close", "mkdir", "rename", "unlink", "rmdir", "ftruncate", "pwrite")
OURS = "dtlearn.production.checkpoints"
SIZE = 10


def weights(step, run=0):
    """What is saved at a step: no two steps have an element in common, nor have two runs."""
    return torch.arange(SIZE, dtype=torch.float64) + 100 * step + 0.5 * run


def shards(step, rank, num_ranks, run=0):
    """Each rank saves a stretch."""
    length = -(-SIZE // num_ranks)
    start, stop = min(rank * length, SIZE), min((rank + 1) * length, SIZE)
    return {"w": (flat_piece((SIZE,), start, stop), weights(step, run)[start:stop])}


def save_steps(folder, steps, asynchronous=False, keep=2, run=0):
    """On each rank."""
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    with Checkpointer(folder, asynchronous=asynchronous, keep=keep) as checkpointer:
        for step in steps:
            checkpointer.save(step, shards(step, rank, num_ranks, run), shared={"step": step}, own={"rank": rank})


def kill_after(number):
    """From now on count the calls that checkpoints make, on all threads; after the n-th this process is no more."""
    count = 0

    def counted(real):
        @functools.wraps(real)
        def call(*args, **kwargs):
            nonlocal count
            value = real(*args, **kwargs)
            if sys._getframe(1).f_globals["__name__"].startswith(OURS):
                count += 1
                if count == number:
                    os.kill(os.getpid(), signal.SIGKILL)
            return value

        return call

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))
    return lambda: count


def in_child(folder, meeting, rank, victim, number, options):
    """A rank, in a process of its own: it saves a step in run 1, and the victim dies on the way. Never returns."""
    code = 1
    try:
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
        calls = kill_after(number if rank == victim else 0)
        save_steps(folder, run=1, **options)
        code = 100 + calls() if rank == victim else 0
    finally:
        os._exit(code)


def after_a_kill(folder, meeting, victim, number, options):
    """Fork two ranks that save a step beside others, and wait. The victim's exit code, below 0 if it was killed."""
    children = {}
    for rank in range(2):
        if (pid := os.fork()) == 0:
            in_child(folder, meeting, rank, victim, number, options)
        children[rank] = pid
    code = os.waitstatus_to_exitcode(os.waitpid(children[victim], 0)[1])
    if code < 0:
        os.kill(children[1 - victim], signal.SIGKILL)  # it would see a broken connection; a scheduler ends it, too
    os.waitpid(children[1 - victim], 0)
    return code


def go_on(folder, keep=2):
    """What another job finds, of one process: the step that it goes on from, its values, and the steps after a save."""
    wanted = {"w": whole_piece((SIZE,))}
    with Checkpointer(folder, keep=keep) as checkpointer:
        there = [path.name for path in folder.iterdir() if path.name not in (".lock", "latest")]
        left = sorted(set(there) - {step_folder(folder, step).name for step in complete_steps(folder)[0]})
        loaded = checkpointer.load(lambda manifest: wanted)
        checkpointer.save(4, shards(4, 0, 1))
    return loaded.step, loaded.tensors["w"], loaded.shared, sorted(complete_steps(folder)[0]), left


def killed_everywhere(folder, victim, options):
    """In one process: for each call that the victim makes, what is there after a kill: (seen by readers, `go_on`).

    The options are those of `save_steps`.
    """
    outcomes = []
    template = Path(folder) / "before"
    while True:
        number = len(outcomes) + 1
        copy = Path(folder) / f"kill{number}"
        shutil.copytree(template, copy)
        code = after_a_kill(copy, Path(folder) / f"meeting{number}", victim, number, options)
        if code >= 0:
            return outcomes, code - 100
        outcomes.append((newest_step(copy), sorted(complete_steps(copy)[0]), go_on(copy, options["keep"])))
