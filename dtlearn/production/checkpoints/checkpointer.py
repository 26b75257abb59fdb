"""Saves and loads the checkpoints of a job, on all its ranks together.

    with Checkpointer("job", asynchronous=True) as checkpointer:
        loaded = checkpointer.load(wanted)
        ...
        checkpointer.save(step, shards, shared={"scheduler": scheduler.state_dict()}, own={"rng": rng_state(device)})

A save has two phases, as a transaction of a database has: each rank writes its file and says so to rank 0; if all have,
rank 0 commits (`store.commit`), and tells. One rank that cannot is enough that none of it is kept, and all raise.

Beside it, `torch.distributed.checkpoint` writes into the final folder and its `.metadata` last; which
step to take, and what is deleted, it leaves to the caller, as torchtitan and Megatron-LM do.
"""

from __future__ import annotations

import errno
import operator
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

import torch
import torch.distributed as dist

from dtlearn.runtime.recording.phases import phase
from dtlearn.sharing.resharding import Piece

from .format import CheckpointError, Manifest, build_manifest
from .pieces import SHARED, Shards, read_object, read_pieces, to_bytes, write_rank_file
from .ranks import JobRanks, in_words, tried
from .staging import BackgroundTask, SaveTimes, Staging
from .store import (
    FolderLock,
    begin,
    commit,
    complete_steps,
    discard,
    point_at,
    read_manifest,
    remove_older,
    require_new,
    set_aside,
    step_folder,
    steps_in,
    sweep,
)

SAVE, WRITE = "save", "write"  # phases in a record: training stands still; files are written, beside it or within it
Wanted = Callable[[Manifest], Mapping[str, Piece]]


class LoadedCheckpoint(NamedTuple):
    """What a rank has read.

    Attributes:
        step: updates made.
        num_ranks: that saved.
        tensors: the wanted pieces, flat, on the CPU.
        shared: plain values that rank 0 saved.
        own: plain values of this rank; None if another number of ranks saved.
        notes: what a person should know, a line each.
        bytes_read: of the files, by this rank.
    """

    step: int
    num_ranks: int
    tensors: dict[str, torch.Tensor]
    shared: dict[str, Any]
    own: dict[str, Any] | None
    notes: list[str]
    bytes_read: int


class Checkpointer:
    """The checkpoints of one job in a folder that all its ranks see.

    **Communication** (plain values, no tensors, in two gloo groups of its own, one for the thread that trains and one
    for the thread that writes, so that saving and training never mix their messages). A save has six collectives. In
    the training group, and so a part of the stall of an asynchronous save: an all-gather of whether each rank's plain
    values can be saved. In the writing group: a broadcast of the folder's name, an all-gather of whether each rank
    could write, a gather of what each wrote (about 100 bytes a piece), a broadcast of the commit, and one after older
    checkpoints are deleted. `when_busy="skip"` adds an all-gather, in the training group. A load has four, in the
    training group: all-gathers of whether each rank could look, of the steps that it sees, and of whether it could
    read, this one again for each checkpoint that is passed over, and a broadcast.
    **Memory**: asynchronous, a copy of the rank's shards on the host. In loading, the wanted pieces.

    Args:
        folder: made if it is not there; locked until `close`.
        keep: how many checkpoints stay.
        asynchronous: write in a thread, while training goes on.
        when_busy: asynchronous only: whether a save waits for an earlier one that still goes on, or is skipped.
        group: ranks of the job; None: all. Without a process group, one process.

    Raises:
        CheckpointError: on every rank: the folder is in use by another job, or cannot be written.
        ValueError: `keep` is below 1, or `when_busy` another word.

    Attributes:
        times: of each save.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        keep: int = 2,
        asynchronous: bool = False,
        when_busy: Literal["wait", "skip"] = "wait",
        group: dist.ProcessGroup | None = None,
    ) -> None:
        if keep < 1 or when_busy not in ("wait", "skip"):
            raise ValueError(f"keep is 1 or more, and when_busy 'wait' or 'skip'; got {keep} and {when_busy!r}")
        self.folder, self.keep = Path(folder), keep
        self.asynchronous, self.when_busy = asynchronous, when_busy
        self.times: list[SaveTimes] = []
        # Two threads may communicate at the same time, so each has a group: one for who writes, one for who trains.
        self._writing, self._training = JobRanks.of(group), JobRanks.of(group)
        self._staging, self._task = Staging(), BackgroundTask()
        self._lock: FolderLock | None = None
        self._closed = False
        self._notes = self._training.from_first(self._open)

    def _open(self) -> list[str]:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = FolderLock(self.folder)
            return sweep(self.folder)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            raise CheckpointError(
                f"{error.filename}: {error.strerror}. A job writes into its folder, even if it only loads: take one "
                "that it may write into. To read a checkpoint, `read_manifest` and `read_pieces` are enough"
            ) from error

    def _require_open(self) -> None:
        if self._closed:
            raise CheckpointError(
                f"this Checkpointer is closed, and another job may have {self.folder} by now: make another one"
            )

    def save(
        self,
        step: int,
        shards: Shards,
        *,
        shared: Mapping[str, Any] | None = None,
        own: Mapping[str, Any] | None = None,
    ) -> bool:
        """Save; all ranks call it. Asynchronous, it returns as soon as all is copied.

        A step that is there already is replaced, once the new one can be found. Newer steps, of a run that went
        further before this one went back, are set aside.

        Args:
            step: updates made.
            shards: what this rank has to save: by name its piece of the whole, and the elements. Each element of the
                whole on one rank.
            shared: plain values that are the same on all ranks.
            own: plain values of this rank.

        Returns:
            False: it was skipped, because an earlier save still goes on.

        Raises:
            CheckpointError: on every rank: it cannot be written; or, asynchronous, the one before could not. What was
                saved before is still there. Or the folder was closed.
            ValueError: `step` is no whole number, or below 0.

        Warns:
            UserWarning: on rank 0: it is saved, but the pointer could not be moved, or older ones not be deleted. On
                every rank `times` has it.
        """
        self._require_open()
        step = whole_step(step)
        with phase(SAVE):
            return self._save(step, shards, shared or {}, own or {})

    def _save(self, step: int, shards: Shards, shared: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
        start = time.perf_counter()
        times = SaveTimes(step)
        self.times.append(times)
        if self.when_busy == "skip" and any(self._training.all_gather(self._task.is_running)):
            times.skipped, times.stall = True, time.perf_counter() - start
            return False
        times.waited = self._task.finish()
        before = time.perf_counter()
        objects = {f"rank{self._writing.rank}": dict(own)}
        if self._writing.rank == 0:
            objects[SHARED] = dict(shared)
        encoded = self._training.together(lambda: {name: to_bytes(value, name) for name, value in objects.items()})
        staged = self._staging.copy(shards) if self.asynchronous else {n: (p, v.cpu()) for n, (p, v) in shards.items()}
        times.staged = time.perf_counter() - before
        if self.asynchronous:
            self._task.start(lambda: self._write(times, staged, encoded))
        else:
            self._write(times, staged, encoded)
        times.stall = time.perf_counter() - start
        return True

    def _write(self, times: SaveTimes, shards: Shards, objects: Mapping[str, bytes]) -> None:
        """Run the two phases of the transaction; in the thread, if the save is asynchronous."""
        with phase(WRITE):
            self._write_and_commit(times, shards, objects)

    def _write_and_commit(self, times: SaveTimes, shards: Shards, objects: Mapping[str, bytes]) -> None:
        start, ranks = time.perf_counter(), self._writing
        try:
            unfinished = ranks.from_first(lambda: begin(self.folder, times.step))
            try:
                written = ranks.together(lambda: write_rank_file(unfinished, ranks.rank, shards, objects))
                files = ranks.gather(written)
                unmoved = ranks.from_first(lambda: commit(self.folder, unfinished, build_manifest(times.step, files)))
            except Exception:  # a mistake in the program, too
                if ranks.rank == 0:
                    discard(unfinished)
                raise
        except CheckpointError as error:
            raise CheckpointError(f"step {times.step} could not be saved: {error}. {self._from_before()}") from error
        times.note = ranks.from_first(lambda: self._remove_older(times.step, unmoved))
        times.written = time.perf_counter() - start
        if times.note and ranks.rank == 0:
            warnings.warn(times.note, stacklevel=5)

    def _remove_older(self, step: int, unmoved: OSError | None) -> str:
        """On rank 0, after a save: delete older ones; returns what could not be done. The save is good all the same."""
        _, _, undeleted = tried(lambda: remove_older(self.folder, step, self.keep, moved=unmoved is None))
        if unmoved is not None and undeleted is None:  # now there may be room
            try:
                point_at(self.folder, step)
                unmoved = None
            except OSError as error:
                unmoved = error
        but = [f"the pointer could not be moved: {in_words(unmoved)}"] if unmoved is not None else []
        but += [f"older ones could not be deleted: {undeleted.message}"] if undeleted else []
        return f"step {step} is saved, but {'; and '.join(but)}. The next save tries again" if but else ""

    def _from_before(self) -> str:
        there, _, _ = tried(lambda: steps_in(self.folder))
        if there:
            return f"The checkpoints from before are in {self.folder}"
        return f"No checkpoint is seen in {self.folder}" if self.folder.exists() else f"{self.folder} itself is gone"

    def wait(self) -> None:
        """Wait until an asynchronous save is complete.

        Raises:
            CheckpointError: it could not be written.
        """
        self._task.finish()

    def load(self, wanted: Wanted, *, step: int | None = None) -> LoadedCheckpoint | None:
        """Read this rank's pieces of the newest checkpoint that all ranks see alike and can read. All ranks call it.

        One that proves to be damaged is passed over by all ranks, set aside under another name, and named in `notes`.

        Args:
            wanted: called with the manifest; gives the pieces that this rank needs, by name.
            step: this one, and no other.

        Returns:
            None: there is no checkpoint yet.

        Raises:
            CheckpointError: on every rank: none can be read, or it is of another model, or of another version; or
                there is none, and the pointer names one, or one was set aside. Or the folder was closed.
            ValueError: `step` is no whole number, or below 0.
        """
        self._require_open()
        step = None if step is None else whole_step(step)
        self.wait()
        ranks = self._training
        seen, notes = ranks.together(lambda: complete_steps(self.folder))
        steps, more = common_steps(ranks.all_gather(seen))
        notes = [*self._notes, *notes, *more]
        if step is not None:
            if step not in steps:
                raise CheckpointError("\n".join([*notes, f"{self.folder} has no step {step}; it has {steps}"]))
            steps = [step]
        damaged: list[int] = []
        for candidate in steps:
            loaded, error, refusal = tried(lambda place=candidate: self._read(place, wanted))  # type: ignore[misc]
            refusals = [ranks.named(r, n) for n, r in enumerate(ranks.all_gather(refusal)) if r is not None]
            if refusals and (step is not None or not all(r.is_damage for r in refusals)):
                raise next((r for r in refusals if not r.is_damage), refusals[0]).raised(error)
            if not refusals:
                ranks.from_first(lambda place=candidate: self._go_on_from(place, damaged))  # type: ignore[misc]
                assert loaded is not None
                return loaded._replace(notes=[*notes, f"going on from {step_folder(self.folder, candidate)}"])
            notes.append(f"{refusals[0].message}. Passed over")
            damaged.append(candidate)
        if any(ranks.all_gather(notes)):
            raise CheckpointError(
                "\n".join([*notes, f"no checkpoint in {self.folder} can be read: take another folder to begin anew"])
            )
        ranks.from_first(lambda: require_new(self.folder))
        return None

    def _read(self, step: int, wanted: Wanted) -> LoadedCheckpoint:
        checkpoint = step_folder(self.folder, step)
        manifest = read_manifest(checkpoint)
        tensors, nbytes = read_pieces(checkpoint, manifest, wanted(manifest))
        shared, own = (
            read_object(checkpoint, manifest, name)
            for name in (SHARED, f"rank{self._training.rank % manifest.num_ranks}")
        )
        if manifest.num_ranks != self._training.size:
            own = None
        return LoadedCheckpoint(manifest.step, manifest.num_ranks, tensors, shared, own, [], nbytes)

    def _go_on_from(self, step: int, damaged: list[int]) -> None:
        """On rank 0: set damaged newer ones aside, lest they be counted as kept, or taken by the next start."""
        if damaged:
            point_at(self.folder, step)  # before the one goes that it names
        for other in damaged:
            set_aside(self.folder, other)

    def close(self) -> None:
        """Finish the last save, and let go of the folder.

        Raises:
            CheckpointError: the last save could not be written.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self._task.finish()
        finally:
            if self._lock is not None:
                self._lock.release()
                self._lock = None
            self._writing.close()
            self._training.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        elif not self._task.is_running:  # other ranks may be gone: wait for nobody
            self._closed = True
            if self._lock is not None:
                self._lock.release()
                self._lock = None


def whole_step(step: int) -> int:
    """A step as an `int`, from one of NumPy or PyTorch, too.

    Raises:
        ValueError: it is no whole number, or below 0: nothing of that name would be found again.
    """
    try:
        number = operator.index(step)
    except TypeError:
        number = -1
    if number < 0:
        raise ValueError(f"step is a whole number, 0 or more: how many updates were made; got {step!r}")
    return number


def common_steps(seen: Sequence[Mapping[int, int]]) -> tuple[list[int], list[str]]:
    """The steps that all ranks see alike, the newest first: the first one is the one to resume. A pure function.

    A file system over a network may show a new folder to one rank before the others, and folders on the machines' own
    disks differ for good. If each took the newest that it sees, the ranks would train from different steps.

    Args:
        seen: by rank, {step: checksum of the manifest}.

    Returns:
        The steps, and a line for what only some ranks see.

    Raises:
        CheckpointError: there are checkpoints, and none that all ranks see.
    """
    everywhere = set.intersection(*(set(steps.items()) for steps in seen))
    steps = sorted((step for step, _ in everywhere), reverse=True)
    partly = sorted({step for own in seen for step in own} - set(steps))
    notes = []
    for step in partly:
        sums = {own.get(step) for own in seen} - {None}
        having = [str(rank) for rank, own in enumerate(seen) if step in own]
        what = "is not the same on all ranks" if len(sums) > 1 else f"is seen by rank {', '.join(having)} only"
        notes.append(f"step {step} {what}. Passed over")
    if notes and not steps:
        raise CheckpointError(
            "\n".join([*notes, "there is no checkpoint that all ranks see: give all of them the same folder"])
        )
    return steps, notes
