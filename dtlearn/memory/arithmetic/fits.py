"""The bytes that have to fit: all of a training step on one GPU, from a model's sizes.

It is an estimate in two ways. Gradients are counted as there all the time, as they are with accumulated micro-batches
and in DDP's buckets; without either they come while activations go. And left out are the CUDA context, buffers of NCCL,
and what the allocator reserves but cannot use: a few GB on a large GPU.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple, get_args

from .activations import ActivationTable, table_bytes
from .block_variants import block_activations
from .published import Gpu, ModelSizes, zero_bytes
from .training_state import BytesPerParameter, find_convention, training_state

Recomputation = Literal["none", "selective", "full"]


class MemoryEstimate(NamedTuple):
    """A model on a GPU.

    Attributes:
        rows: bytes by category, with the ledger's names.
        capacity: bytes of the GPU.
    """

    rows: dict[str, int]
    capacity: int

    @property
    def total(self) -> int:
        """Bytes that are needed."""
        return sum(self.rows.values())

    @property
    def fits(self) -> bool:
        """Return whether that is no more than the GPU has."""
        return self.total <= self.capacity


def what_fits(
    model: ModelSizes,
    gpu: Gpu,
    batch: int,
    precision: str | BytesPerParameter = "mixed 16",
    recomputation: Recomputation = "none",
    zero_stage: int = 0,
    num_gpus: int = 1,
    length: int = 0,
) -> MemoryEstimate:
    """The bytes that a training step of this model needs on one GPU, by category.

    "temporaries" are the gradients of log-softmax and of the logits, in fp32, where the head is the worst moment of a
    step. With recomputation it may be a block that was just computed again, and the gradient of its widest tensor.
    ZeRO's stage 3 has two blocks gathered besides: the one in use and the next.

    Args:
        model: of `published.MODELS`, say. Its `kind` says how attention keeps its scores.
        gpu: of `published.GPUS`, say.
        batch: sequences at once on this GPU: of a micro-batch.
        precision: a convention of `training_state`; with 4-byte weights activations are in fp32.
        recomputation: "selective": scores of attention are computed again; "full": of each block the input is kept.
        zero_stage: 0 to 3.
        num_gpus: over which ZeRO divides.
        length: tokens of a sequence; 0: the model's context.

    Raises:
        ValueError: a size, stage, convention or recomputation that does not exist.
    """
    if recomputation not in get_args(Recomputation):
        raise ValueError(f"recomputation must be one of {', '.join(get_args(Recomputation))}; got {recomputation!r}")
    rule = find_convention(precision)
    state = zero_bytes(training_state(model.num_parameters, rule), zero_stage, num_gpus)
    activations, temporaries = worst_moment(model, batch, length, rule.weight, recomputation)
    if zero_stage == 3:
        temporaries += 2 * model.block_parameters * rule.weight
    return MemoryEstimate({**state, "activations": activations, "temporaries": temporaries}, gpu.bytes)


def worst_moment(
    model: ModelSizes, batch: int, length: int, element_bytes: int, recomputation: Recomputation
) -> tuple[int, int]:
    """Bytes of activations, and of temporaries besides, when both together are most."""
    sizes = model.block_sizes(batch, length)
    table = block_activations(sizes, replace(model.kind, element_bytes=element_bytes))
    block = table_bytes(table)
    held = {"none": block, "selective": block - scores_bytes(table), "full": sizes.sbh * element_bytes}[recomputation]
    logits = 4 * sizes.batch * sizes.length * model.vocabulary
    ends = 2 * sizes.sbh * element_bytes + logits  # inputs of the last norm and of the head; log-softmax, in fp32
    wide = element_bytes * sizes.batch * sizes.length * (model.feed_forward or 4 * model.hidden)
    at_the_head = (model.layers * held + ends, 2 * logits)
    in_a_block = (model.layers * held + block - held, wide)
    return max(at_the_head, in_a_block, key=sum)


def scores_bytes(table: ActivationTable) -> int:
    """Bytes of a block's attention scores, which selective recomputation does not keep; 0 with fused attention."""
    return sum(term.bytes for term in table if "abs²" in term.formula)


def largest_batch(
    model: ModelSizes,
    gpu: Gpu,
    precision: str | BytesPerParameter = "mixed 16",
    recomputation: Recomputation = "none",
    zero_stage: int = 0,
    num_gpus: int = 1,
    length: int = 0,
) -> int:
    """The largest batch that fits; 0 if not even one sequence does. See `what_fits`."""

    def fits(batch: int) -> bool:
        return what_fits(model, gpu, batch, precision, recomputation, zero_stage, num_gpus, length).fits

    if not fits(1):
        return 0
    fitting, not_fitting = 1, 2
    while fits(not_fitting):
        fitting, not_fitting = not_fitting, 2 * not_fitting
    while not_fitting - fitting > 1:
        middle = (fitting + not_fitting) // 2
        fitting, not_fitting = (middle, not_fitting) if fits(middle) else (fitting, middle)
    return fitting
