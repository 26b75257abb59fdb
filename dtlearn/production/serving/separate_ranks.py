"""One job that trains, evaluates and serves, on ranks of their own.

Nobody waits for anybody in a collective: the roles meet in a folder. Training writes checkpoints there, whole files
under their names; evaluation takes each as it comes; a server looks for a newer one between two requests, never within
one, or the end of a text would be another model's than its beginning. If evaluation is slow, it falls behind, and
training goes on. (A launcher ends the whole job when one rank fails: what may fail alone is started as a job of its
own, on the same folder.)
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist

from dtlearn.data_parallel.ddp import DistributedDataParallel
from dtlearn.models import GPT, GPTConfig, load_corpus, next_token_loss
from dtlearn.runtime.device import device
from dtlearn.runtime.machine.whole_file import write_whole
from dtlearn.runtime.run import run_ranks
from dtlearn.sharing.shards import shard_of
from dtlearn.train import TrainError
from dtlearn.train.checkpoint import checkpoint_file, checkpoints_in, read_checkpoint, step_of, write_checkpoint

from .generate import generate
from .rank_roles import RankRoles
from .requests import GenerationRequest
from .role_timeline import RoleLog, RoleOutcome, SeparateRun, ServedAnswer

FINISHED = "training-finished"  # a file that says that no checkpoint will follow
_PAUSE = 0.01  # seconds between two looks at the folder
Evaluation = Literal["beside", "inline", "none"]


@dataclass(frozen=True)
class SeparateJob:
    """What the job does.

    Attributes:
        folder: of the checkpoints, seen by all ranks; empty at the start.
        config: of the GPT, which learns the course's corpus.
        steps, checkpoint_every: updates, and after how many there is a checkpoint.
        batch_size: sequences of an update, over all ranks that train.
        lr: of AdamW.
        keep: checkpoints that stay; who is slower than so many misses some.
        evaluation: "beside": on its own ranks; "inline": the first rank that trains does it itself, after each
            checkpoint; "none".
        evaluation_seconds: how much longer an evaluation takes, as if there were more to evaluate.
        new_tokens: of each answer; 0: nothing is served.
        seed: of the model and of the batches.
    """

    folder: str
    config: GPTConfig = field(default_factory=lambda: GPTConfig(num_layers=2, context_length=32))
    steps: int = 12
    checkpoint_every: int = 4
    batch_size: int = 8
    lr: float = 3e-3
    keep: int = 1000
    evaluation: Evaluation = "beside"
    evaluation_seconds: float = 0.0
    new_tokens: int = 8
    seed: int = 0


def run_separate_ranks(roles: RankRoles, job: SeparateJob, **options: Any) -> SeparateRun:
    """Run the job on ranks of this machine, or of the lab.

    Args:
        roles: how many ranks have each.
        job: what they do.
        options: of `run_ranks`.

    Raises:
        ValueError: the folder holds checkpoints of another run.
    """
    folder = Path(job.folder)
    if checkpoints_in(folder) or (folder / FINISHED).exists():
        raise ValueError(f"{folder} holds a run already: choose an empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    return SeparateRun(roles, tuple(run_ranks(play_role, roles.world_size, roles, job, **options)))


def play_role(roles: RankRoles, job: SeparateJob) -> RoleOutcome:
    """What a rank does, by its role.

    **Communication**: the groups, once; then training's gradients, among those that train. No other role communicates.
    **Memory**: of training the model, its gradients and AdamW's two moments; of the others the model, and a checkpoint
    while it is read.
    """
    rank, groups = dist.get_rank(), roles.make_groups()
    log = RoleLog(rank, roles.role_of(rank))
    if log.role == "training":
        return _train(job, groups["training"], log)
    if log.role == "evaluation":
        return _evaluate(job, log, rank - roles.ranks("evaluation")[0], roles.evaluation)
    return _serve(job, log)


def _train(job: SeparateJob, group: dist.ProcessGroup, log: RoleLog) -> RoleOutcome:
    rank, num_ranks = dist.get_rank(group), dist.get_world_size(group)
    torch.manual_seed(job.seed)
    gpt = GPT(job.config).to(device())
    model = DistributedDataParallel(gpt, group=group)
    optimizer = torch.optim.AdamW(model.parameters(), job.lr)
    batches = load_corpus().batches(job.steps, job.batch_size, job.config.context_length, seed=job.seed)
    losses, evaluations = list[float](), dict[int, float]()
    for step, (inputs, targets) in enumerate(batches, 1):
        with log.note("step", step):
            own, wanted = (
                shard_of(x, 0, num_ranks, rank, "sequences of a batch")
                for x in (inputs.to(device()), targets.to(device()))
            )
            optimizer.zero_grad()
            loss = next_token_loss(model(own), wanted)
            loss.backward()
            optimizer.step()
            dist.all_reduce(loss.detach_(), group=group)
        losses.append(loss.item() / num_ranks)
        if rank == 0 and (step % job.checkpoint_every == 0 or step == job.steps):
            with log.note("save", step):
                parameters = {name: tensor.cpu() for name, tensor in gpt.state_dict().items()}
                state = {"format": 1, "step": step, "model": parameters}
                write_checkpoint(state, checkpoint_file(Path(job.folder), step), job.keep)
            if job.evaluation == "inline":
                with log.note("evaluate", step):
                    evaluations[step] = validation_loss(gpt, job)
    if rank == 0:
        write_whole(Path(job.folder) / FINISHED, "")
    return RoleOutcome(tuple(log.events), tuple(losses), evaluations)


@torch.no_grad()
def validation_loss(model: GPT, job: SeparateJob) -> float:
    """Mean loss on four batches of the validation text."""
    time.sleep(job.evaluation_seconds)
    where = next(model.parameters()).device
    batches = load_corpus().batches(4, job.batch_size, job.config.context_length, split="val")
    return sum(next_token_loss(model(x.to(where)), wanted.to(where)).item() for x, wanted in batches) / 4


def _evaluate(job: SeparateJob, log: RoleLog, index: int, num_ranks: int) -> RoleOutcome:
    """Evaluate each checkpoint as it comes; several ranks take turns. One that is gone before its turn is missed."""
    evaluations, model = dict[int, float](), GPT(job.config).to(device())
    if job.evaluation != "beside":
        return RoleOutcome()
    for file in _new_checkpoints(job):
        step = step_of(file)
        if (step // job.checkpoint_every) % num_ranks == index and _load(model, file):
            with log.note("evaluate", step):
                evaluations[step] = validation_loss(model, job)
    return RoleOutcome(tuple(log.events), evaluations=evaluations)


def _new_checkpoints(job: SeparateJob) -> Iterator[Path]:
    """Checkpoints as they come, each once, the oldest first, until training has finished and all have been yielded."""
    folder, seen = Path(job.folder), set[Path]()
    while True:
        finished = (folder / FINISHED).exists()  # first: what it announces is in the folder then
        new = [file for file in reversed(checkpoints_in(folder)) if file not in seen]
        seen.update(new)
        yield from new
        if finished:
            return
        if not new:
            time.sleep(_PAUSE)


def _load(model: GPT, file: Path) -> bool:
    """Take a checkpoint's parameters; False if the file is gone, because training keeps the newest ones only."""
    try:
        state = read_checkpoint(file)
    except TrainError:
        if file.exists():
            raise
        return False
    model.load_state_dict(state["model"])
    return True


def _serve(job: SeparateJob, log: RoleLog) -> RoleOutcome:
    """Answer one request after the other, each with the newest checkpoint; the last one with the last checkpoint."""
    if not job.new_tokens:
        return RoleOutcome()
    folder, model, loaded = Path(job.folder), GPT(job.config).to(device()), 0
    answers, numbers = list[ServedAnswer](), count()
    while True:
        finished = (folder / FINISHED).exists()
        newest = next(iter(checkpoints_in(folder)), None)
        if newest is None:
            time.sleep(_PAUSE)
            continue
        if step_of(newest) != loaded:
            with log.note("load", step_of(newest)):
                if not _load(model, newest):
                    continue
            loaded = step_of(newest)
        number = next(numbers)
        with log.note("answer", loaded):
            (text,) = generate(model, [request_number(job, number)])
        answers.append(ServedAnswer(number, loaded, tuple(text)))
        if finished:
            return RoleOutcome(tuple(log.events), answers=tuple(answers))


def request_number(job: SeparateJob, number: int) -> GenerationRequest:
    """The request of that number from a user who asks for ever: a passage of the validation text."""
    text, length = load_corpus().val, job.config.context_length // 2
    start = 97 * number % (len(text) - length)
    return GenerationRequest(tuple(text[start : start + length].tolist()), job.new_tokens)
