"""The loop: one for both engines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from dtlearn.models.corpus import Corpus, load_corpus

from ..environment import HOW_TO_INSTALL
from ..quiet_deepspeed import has_deepspeed
from .bert import Bert, masked_loss
from .deepspeed_engine import LEFT_BEHIND, DeepSpeedTrainer
from .masked_text import MASK, MaskedBatch, masked_batch
from .options import HelloOptions, require_writable
from .plain import PlainTrainer

VALIDATION_ROWS = 64
SHOWN_ROWS = 3
HIDDEN = "·"  # no character of the corpus


@dataclass(frozen=True)
class TrainedBert:
    """What came of a run; the same on all ranks.

    Attributes:
        engine: "plain" or "deepspeed".
        losses: of each update of this run, over the whole global batch.
        validation: mean loss on text that was not trained on.
        first_step: updates that stood in the checkpoint it went on from.
    """

    engine: str
    losses: tuple[float, ...]
    validation: float
    first_step: int = 0


def train(options: HelloOptions | None = None, say: Callable[[str], None] | None = None) -> TrainedBert:
    """Train on this rank, or alone where no launcher has said that there are others.

    Args:
        options: of the run; None: the defaults.
        say: takes what rank 0 has to say, line by line; None: nothing is said.

    Raises:
        ValueError: DeepSpeed is asked for and not installed, the batch cannot be divided among the ranks, the text is
            too short, or checkpoints cannot be written.
    """
    options = HelloOptions() if options is None else options
    engine = choose_engine(options)
    corpus = load_corpus()
    if options.context_length > (longest := min(len(corpus.train), len(corpus.val))):
        raise ValueError(f"context_length must be {longest} or less, all of the text; got {options.context_length}")
    if options.checkpoint_dir:
        require_writable(Path(options.checkpoint_dir))
    with process_group():
        rank, world_size = dist.get_rank(), dist.get_world_size()
        say = say if say is not None and rank == 0 else _nothing
        micro_batch = options.micro_batch(world_size)
        device = own_device()
        torch.manual_seed(options.seed)  # the same weights on all ranks
        trainer = (DeepSpeedTrainer if engine == "deepspeed" else PlainTrainer)(Bert(options.model), options, device)
        for line in about(options, engine, world_size, device):
            say(line)
        first_step = trainer.load() if options.checkpoint_dir else 0
        if first_step:
            say(f"going on after step {first_step} of {options.checkpoint_dir}")
        losses = list[float]()
        for step in range(first_step, options.steps):
            batch = masked_batch(corpus.train, step, options.batch_size, options.context_length, options.seed)
            own = own_micro_batches_of(batch, rank, micro_batch, options.accumulation, device)
            losses.append(mean_of_ranks(trainer.step(own), device))
            if step + 1 == options.steps or (step + 1) % options.log_every == 0:
                say(f"step {step + 1:5d}  loss {losses[-1]:.4f}")
        if options.checkpoint_dir and losses:
            trainer.save(options.steps)
            say(f"wrote {options.checkpoint_dir}")
        held_out = masked_batch(corpus.val, 0, VALIDATION_ROWS, options.context_length, seed=1).to(device)
        logits = trainer.logits(held_out)  # on all ranks: ZeRO 3 gathers for it
        validation = masked_loss(logits, held_out).item()
        say(f"loss on held-out text {validation:.4f}")
        for row in range(SHOWN_ROWS):
            say(f"  {filled_in(corpus, held_out, logits, row)}")
        return TrainedBert(engine, tuple(losses), validation, first_step)


def train_each(options: Sequence[HelloOptions]) -> list[TrainedBert]:
    """Train on this rank once for each of these, one after another."""
    return [train(one) for one in options]


def choose_engine(options: HelloOptions) -> str:
    """The engine that is asked for, or for "auto" the one that is there.

    Raises:
        ValueError: DeepSpeed is asked for and not installed.
    """
    if options.engine == "deepspeed" and not has_deepspeed():
        raise ValueError(f"DeepSpeed is not installed for this Python. {HOW_TO_INSTALL}. Or take the engine plain")
    return ("deepspeed" if has_deepspeed() else "plain") if options.engine == "auto" else options.engine


def about(options: HelloOptions, engine: str, world_size: int, device: torch.device) -> Iterator[str]:
    """What is about to run, for a person."""
    size = f"{world_size} rank{'s' * (world_size > 1)} on {device.type}, {options.precision}"
    if engine == "deepspeed":
        offload = ", offload to the host" * options.offload
        yield f"DeepSpeed, ZeRO {options.zero}{offload}: {size}"
        if options.zero == 0 and options.precision in LEFT_BEHIND:
            yield f"  losses differ from the plain twin's: {LEFT_BEHIND[options.precision]}. Take --zero 1"
        return
    if options.engine == "auto":
        yield "DeepSpeed is not installed for this Python, so the plain twin runs: torch's DDP and AdamW."
    yield f"plain torch: {size}"
    if options.offload or options.zero not in (0, HelloOptions.zero):  # not for a default that nobody typed
        holder = "every rank holds all" if world_size > 1 else "the one rank holds all"
        yield f"  --zero and --offload say where DeepSpeed holds its state. Here {holder}; losses are equal."


@contextmanager
def process_group() -> Iterator[None]:
    """The process group that is there, or one that is made and destroyed; without a launcher it has one rank."""
    if dist.is_initialized():
        yield
        return
    os.environ.setdefault("LOCAL_RANK", "0")  # DeepSpeed refuses to start without it
    backend = "nccl" if own_device().type == "cuda" else "gloo"
    if "RANK" in os.environ:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
        dist.barrier()  # nobody leaves while others still send
    finally:
        dist.destroy_process_group()


def own_device() -> torch.device:
    """This rank's GPU where every rank of the machine has one, otherwise, or in a group over gloo, the processor."""
    if dist.is_initialized() and dist.get_backend() != "nccl":
        return torch.device("cpu")
    own = int(os.environ.get("LOCAL_RANK", 0))
    if torch.cuda.device_count() < int(os.environ.get("LOCAL_WORLD_SIZE", own + 1)):
        return torch.device("cpu")
    torch.cuda.set_device(own)
    return torch.device("cuda", own)


def own_micro_batches_of(
    batch: MaskedBatch, rank: int, micro_batch: int, accumulation: int, device: torch.device
) -> list[MaskedBatch]:
    """This rank's rows of the global batch, in micro-batches."""
    first = rank * micro_batch * accumulation
    starts = range(first, first + micro_batch * accumulation, micro_batch)
    return [batch.rows(start, start + micro_batch).to(device) for start in starts]


def mean_of_ranks(loss: float, device: torch.device) -> float:
    """The mean of what the ranks found: all have as many targets."""
    total = torch.tensor(loss, device=device)
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def filled_in(corpus: Corpus, batch: MaskedBatch, logits: torch.Tensor, row: int) -> str:
    """A sequence with its masks, and below it the model's guesses in their place."""
    inputs, guesses = batch.inputs[row].tolist(), logits[row].argmax(dim=-1).tolist()
    seen = [HIDDEN if token == MASK else corpus.vocabulary[token] for token in inputs]
    filled = list(seen)
    for place, guess in zip(batch.places[row].tolist(), guesses, strict=True):
        if inputs[place] == MASK:
            filled[place] = corpus.vocabulary[guess] if guess < corpus.vocab_size else HIDDEN
    return f"{''.join(seen)!r}\n  {''.join(filled)!r}"


def _nothing(line: str) -> None:
    """Say nothing."""
