"""The tensors that travel between stages: from rank to rank by messages, or from a stage to another of the same rank.

Sends and receives are posted and not waited for. A receive is waited for when an action needs what it brings; a send,
when the next one is posted, so that the memory of what was sent is free soon.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ..actions import Action, Op
from ..tensor_header import empty_header, pack_header, room_for
from .communication import MessageBatch, StageMessage


class Transfers:
    """Tensors by the action that needs them.

    **Communication**: one `batch_isend_irecv` for each exchange: one call on NCCL, one for each message on gloo. While
        shapes are not known, the messages of outputs are sent one by one, after a header of 88 bytes each.
    **Memory**: what is received and not taken yet, and what was sent since the last exchange that sends.

    Args:
        rank: this one, in the group.
        group: None: all ranks.
        device: of what is received.
    """

    def __init__(self, rank: int, group: dist.ProcessGroup | None, device: torch.device) -> None:
        self.rank, self._group, self._device = rank, group, device
        self._tensors = dict[Action, torch.Tensor]()
        self._arriving = dict[Action, dist.Work]()
        self._leaving = list[tuple[dist.Work, torch.Tensor]]()  # with what is sent: it must stay as it is
        self._shapes = dict[Action, tuple[torch.Size, torch.dtype]]()  # that both ends know, by the F that needs it

    def put(self, needed_by: Action, tensor: torch.Tensor) -> None:
        """Have a tensor ready: for an action of this rank, or to be sent."""
        self._tensors[needed_by] = tensor

    def take(self, needed_by: Action) -> torch.Tensor:
        """The tensor that an action needs. Waits until it is there."""
        if needed_by in self._arriving:
            self._arriving.pop(needed_by).wait()
        return self._tensors.pop(needed_by)

    def post(self, exchange: MessageBatch) -> None:
        """Post the sends and receives of an exchange.

        Raises:
            ValueError: a stage's output has another shape or dtype than in the first step.
        """
        if any(message.src == self.rank for message in exchange.messages):
            self.wait_for_sends()
        if any(_tells_shape(message) and message.needed_by not in self._shapes for message in exchange.messages):
            for message in exchange.messages:
                self._tell_shape(message)
                self._post_batch((message,))
        else:
            self._post_batch(exchange.messages)

    def wait_for_sends(self) -> None:
        """Wait until all that was sent may be changed or freed."""
        for work, _ in self._leaving:
            work.wait()
        self._leaving.clear()

    def forget_shapes(self) -> None:
        """Tell the shapes anew in the next step."""
        self._shapes.clear()

    def drop(self) -> None:
        """Forget all tensors: an error has ended the step."""
        self._tensors.clear()
        self._arriving.clear()
        self._leaving.clear()

    def _post_batch(self, messages: tuple[StageMessage, ...]) -> None:
        operations = []
        for needed_by, src, dst in messages:
            if src == self.rank:
                tensor = self._leaves(needed_by)
                operations.append(dist.P2POp(dist.isend, tensor, group=self._group, group_peer=dst))
            else:
                shape, dtype = self._shapes[needed_by]
                tensor = self._tensors[needed_by] = torch.empty(shape, dtype=dtype, device=self._device)
                operations.append(dist.P2POp(dist.irecv, tensor, group=self._group, group_peer=src))
        works = dist.batch_isend_irecv(operations)
        if len(works) < len(operations):  # NCCL makes one call of them; gloo one of each, and each is to be waited for
            works = works * len(operations)
        for message, operation, work in zip(messages, operations, works, strict=True):
            if message.src == self.rank:
                self._leaving.append((work, operation.tensor))
            else:
                self._arriving[message.needed_by] = work

    def _leaves(self, needed_by: Action) -> torch.Tensor:
        """What is to be sent, as both ends expect it. The gradient that comes back for an output has its shape."""
        tensor = self._tensors.pop(needed_by).contiguous()
        if needed_by.op is Op.F:
            expected = self._shapes[needed_by]
            if (tensor.shape, tensor.dtype) != expected:
                raise ValueError(
                    f"stage {needed_by.stage - 1} made an output of {tuple(tensor.shape)}, {tensor.dtype} for "
                    f"micro-batch {needed_by.microbatch}; in the first step it was {tuple(expected[0])}, "
                    f"{expected[1]}, and the rank of stage {needed_by.stage} expects that. Keep all batches at one "
                    "size, or call forget_shapes() on every rank"
                )
        return tensor

    def _tell_shape(self, message: StageMessage) -> None:
        """Send or receive the header of an output, and remember its shape, also for the gradient that comes back."""
        needed_by, src, dst = message
        if not _tells_shape(message) or needed_by in self._shapes:
            return
        if src == self.rank:
            tensor = self._tensors[needed_by]
            dist.send(pack_header(tensor), group_dst=dst, group=self._group)
        else:
            header = empty_header(self._device)
            dist.recv(header, group_src=src, group=self._group)
            tensor, _ = room_for(header)
        self._shapes[needed_by] = tensor.shape, tensor.dtype
        returns = Action(needed_by.stage - 1, Op.B, needed_by.microbatch)
        self._shapes[returns] = tensor.shape, tensor.dtype


def _tells_shape(message: StageMessage) -> bool:
    return message.needed_by.op is Op.F
