"""A communication hook that sends what a codec makes of each bucket.

Ranks keep other elements, and other scales: what one rank sends cannot be added to what another sends, and their sum
would not be such a payload. So payloads are gathered, and each rank decodes all of them and takes the mean.
"""

# No `from __future__ import annotations` here: torch's DDP reads the annotations of a hook.
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.futures import Future

from dtlearn.sharing.flat_collectives import all_gather_single

from .codecs.codec import Codec, Payload
from .error_feedback import ErrorFeedback
from .own_values import require_own_state
from .residuals import Updates, all_finite, keep_if


class CompressionState:
    """What `compress_hook` works with, on each rank its own.

        state = CompressionState(TopK(ratio=0.01))
        ddp.register_comm_hook(state, compress_hook)

    Args:
        codec: what to send; or an `ErrorFeedback` (or `MomentumCorrection`) that has one.
        group: ranks that train together; None: all.
        error_feedback: None: if the codec is biased.
        codec_at: gives the codec of each step, counted from 0, such as `warm_up_sparsity`; None: always the same.
        seed: of the generator that codecs draw from, together with the rank: ranks draw independently.

    Raises:
        ValueError: error feedback around a codec that is no contraction.

    Attributes:
        feedback: None without error feedback.
        step: backward passes so far that were averaged.
    """

    def __init__(
        self,
        codec: Codec | ErrorFeedback,
        *,
        group: dist.ProcessGroup | None = None,
        error_feedback: bool | None = None,
        codec_at: Callable[[int], Codec] | None = None,
        seed: int = 0,
    ) -> None:
        has_feedback = isinstance(codec, ErrorFeedback)
        self.codec: Codec = codec.codec if isinstance(codec, ErrorFeedback) else codec
        if error_feedback is None:
            error_feedback = has_feedback or not self.codec.unbiased
        if error_feedback and not self.codec.contracts:
            raise ValueError(
                f"{self.codec} is no contraction: under error feedback its residual would grow without bound. Leave "
                "error_feedback out: this codec is right on average without it"
            )
        if has_feedback and not error_feedback:
            raise ValueError("error_feedback=False, but the codec comes in an ErrorFeedback: give the codec itself")
        self.feedback = codec if isinstance(codec, ErrorFeedback) else ErrorFeedback(codec) if error_feedback else None
        self.group, self.codec_at, self.step = group, codec_at, 0
        self._seed = seed
        self._generator: torch.Generator | None = None  # made on the device of the first bucket
        self._generator_state: torch.Tensor | None = None  # loaded before there was one

    def generator(self, device: torch.device) -> torch.Generator:
        """What codecs draw from, on the device of the gradients."""
        if self._generator is None:
            self._generator = torch.Generator(device).manual_seed(self._seed + dist.get_rank(self.group))
            if self._generator_state is not None:
                self._generator.set_state(self._generator_state)
        return self._generator

    def encode(self, bucket: dist.GradBucket) -> tuple[Payload, Updates]:
        """What this rank sends of a bucket, and what it is to keep if the mean is finite."""
        buffer = bucket.buffer()
        if self.codec_at is not None:
            self.codec = self.codec_at(self.step)
        self.step += bucket.is_last()
        generator = self.generator(buffer.device)
        if self.feedback is None:
            return self.codec.encode(buffer.to(wide(buffer.dtype)), generator=generator), []
        self.feedback.codec = self.codec
        return self.feedback.prepare(buffer, bucket.parameters(), generator=generator)

    def state_dict(self, model: nn.Module) -> dict[str, Any]:
        """What this rank needs to go on: plain values and tensors. Every rank saves its own.

        Args:
            model: has the parameters, for their names; the same, bare or wrapped, as when it is loaded.
        """
        generator = self._generator_state if self._generator is None else self._generator.get_state()
        return {
            "world_size": dist.get_world_size(self.group),
            "rank": dist.get_rank(self.group),
            "step": self.step,
            "generator": generator,
            "feedback": None if self.feedback is None else self.feedback.state_dict(model),
        }

    def load_state_dict(self, state: dict[str, Any], model: nn.Module) -> None:
        """Take up what `state_dict` gave on this rank.

        Raises:
            ValueError: it is of another number of ranks, of another rank or model, or with error feedback on one side
                only.
        """
        require_own_state(state, "CompressionState", group=self.group)
        if (state["feedback"] is None) != (self.feedback is None):
            raise ValueError(
                f"this state was saved {'without' if state['feedback'] is None else 'with'} error feedback, and this "
                "CompressionState is the other way round: make it as it was when it was saved"
            )
        if self.feedback is not None:
            self.feedback.load_state_dict(state["feedback"], model)
        self.step = state["step"]
        self._generator, self._generator_state = None, state["generator"]


def compress_hook(state: CompressionState, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """The mean of what the ranks' payloads stand for. Where it is not finite, every rank keeps what it had kept before.

    **Communication** (a payload of b bytes, N ranks): one all-gather, each rank gives b bytes and gets N b; nothing
    is added on the way. A ring all-reduce of the n elements would send 8 n (N-1)/N bytes a rank, this b (N-1).
    **Memory**: N b bytes, and the mean in float32 until it is done; what the state has beside it.
    """
    buffer = bucket.buffer()
    payload, updates = state.encode(bucket)
    codec, num_ranks = state.codec, dist.get_world_size(state.group)  # the state may have another codec by then
    message = to_message(payload)
    if not len(message):
        return completed(buffer)
    messages = message.new_empty(num_ranks * len(message))
    future: Future[Any] = all_gather_single(messages, message, group=state.group, async_op=True).get_future()

    def decode_mean(done: Future[Any]) -> torch.Tensor:
        mean = torch.zeros(len(buffer), dtype=wide(buffer.dtype), device=buffer.device)
        done.value()  # raises what went wrong; gloo's value is only our own message
        for theirs in messages.view(num_ranks, -1):  # in the order of the ranks: all add alike
            codec.add_decoded(mean, from_message(theirs, payload))
        buffer.copy_(mean.div_(num_ranks))
        if buffer.is_cuda:  # a callback has a stream of its own, and the memory was given out on another one
            for _, left in updates:
                left.record_stream(torch.cuda.current_stream(buffer.device))
        if updates:
            keep_if(all_finite(buffer), updates)  # one answer on all ranks
        return buffer

    return future.then(decode_mean)


def wide(dtype: torch.dtype) -> torch.dtype:
    """What gradients of a dtype are added up in: float32, or float64."""
    return torch.promote_types(dtype, torch.float32)


def to_message(payload: Payload) -> torch.Tensor:
    """The bytes of a payload, one tensor after the other: (b,) uint8."""
    return torch.cat([tensor.view(torch.uint8) for tensor in payload])


def from_message(message: torch.Tensor, like: Payload) -> Payload:
    """The payload in a message, (b,) uint8; its tensors are shaped as those of `like`, our own payload."""
    parts = message.split([tensor.nbytes for tensor in like])
    # Copied, because a number of 4 bytes may begin at a place that 4 does not divide.
    return tuple(part.clone().view(tensor.dtype) for part, tensor in zip(parts, like, strict=True))


def completed(value: torch.Tensor) -> Future[torch.Tensor]:
    """A future that has its value already."""
    # A future of tensors on a GPU has to know the device, or its value is no longer waited for there.
    future: Future[torch.Tensor] = Future(devices=[value.device]) if value.is_cuda else Future()
    future.set_result(value)
    return future
