"""Methods by name: how each turns local gradients into an update of the parameters."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import nn

from dtlearn.sharing.comm_hooks import GradBucket, Hook, allreduce_hook, fp16_compress_hook

from ..averaging.diloco import DiLoCo
from ..averaging.local_steps import LocalSteps
from ..averaging.periodic import PeriodicAveraging
from ..averaging.post_local import PostLocalSGD, post_local_hook
from ..averaging.streaming import StreamingDiLoCo, strided_fragments
from ..codecs.qsgd import QSGD
from ..codecs.sign import PackedSign
from ..codecs.sparse import RandomK, TopK
from ..hooks import CompressionState, compress_hook
from ..momentum_correction import MomentumCorrection, warm_up_sparsity
from ..onebit_adam import OneBitAdam
from ..powersgd.hook import powersgd_hook
from ..powersgd.state import PowerSGDState
from .tasks import SmallTask

PERIOD = 8  # local steps between two meetings
RATIO = 0.01  # of the elements, which sparse codecs send
WARM_UP = 8  # steps of methods that begin without compression


def _nothing() -> None:
    """The end of a method that leaves nothing on its way."""


class StepParts(NamedTuple):
    """What a method does on a rank.

    Attributes:
        update: after each backward pass: communicate, step, and clear the gradients.
        finish: after the last step: wait for what is on its way.
    """

    update: Callable[[], object]
    finish: Callable[[], object] = _nothing


@dataclass(frozen=True)
class Method:
    """A way to train together.

    Attributes:
        name: for figures.
        set_up: called on every rank with the model, equal everywhere, and the task; gives the parts of a step.
        hook: of a communication hook: what makes its state, and itself, for `register_comm_hook`. None: it is none.
    """

    name: str
    set_up: Callable[[nn.Module, SmallTask], StepParts]
    hook: tuple[Callable[[], Any], Hook] | None = None


def hooked(
    name: str,
    make_state: Callable[[], Any],
    hook: Hook,
    inner: Callable[[nn.Module, SmallTask], torch.optim.Optimizer] | None = None,
) -> Method:
    """A communication hook, and an optimizer that steps with the mean.

    Args:
        name: for figures.
        make_state: gives the state that the hook is called with.
        hook: as `register_comm_hook` takes it.
        inner: gives the optimizer; None: the task's.
    """

    def set_up(model: nn.Module, task: SmallTask) -> StepParts:
        optimizer = inner(model, task) if inner else task.optimizer(model.parameters())
        bucket, state = _one_bucket(model), make_state()

        def update() -> None:
            mean = hook(state, bucket).wait()
            if mean.data_ptr() != bucket.buffer().data_ptr():
                bucket.buffer().copy_(mean)
            optimizer.step()
            bucket.buffer().zero_()

        return StepParts(update)

    return Method(name, set_up, (make_state, hook))


def averaging(
    name: str,
    make: Callable[[nn.Module, torch.optim.Optimizer], LocalSteps],
    inner: Callable[[nn.Module, SmallTask], torch.optim.Optimizer] | None = None,
) -> Method:
    """Steps alone, and meetings.

    Args:
        name: for figures.
        make: gives the method of the model and its inner optimizer.
        inner: gives that optimizer; None: the task's.
    """

    def set_up(model: nn.Module, task: SmallTask) -> StepParts:
        optimizer = inner(model, task) if inner else task.optimizer(model.parameters())
        training = make(model, optimizer)
        bucket = _one_bucket(model)

        def update() -> None:
            if isinstance(training, PostLocalSGD):
                post_local_hook(training, cast(Any, bucket)).wait()
            training.step()
            bucket.buffer().zero_()

        return StepParts(update, training.synchronize if isinstance(training, StreamingDiLoCo) else _nothing)

    return Method(name, set_up)


def _one_bucket(model: nn.Module) -> GradBucket:
    """All gradients of a model in one buffer, where backward adds to them."""
    parameters = list(model.parameters())
    buffer = torch.zeros(sum(p.numel() for p in parameters), device=parameters[0].device)
    views = [v.view_as(p) for v, p in zip(buffer.split([p.numel() for p in parameters]), parameters, strict=True)]
    for parameter, view in zip(parameters, views, strict=True):
        parameter.grad = view
    return GradBucket(0, buffer, views, parameters, last=True)


def _adamw(model: nn.Module, task: SmallTask) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=task.adam_lr)


def _streaming(model: nn.Module, optimizer: torch.optim.Optimizer) -> LocalSteps:
    blocks = [
        child for child in model.modules() if next(child.children(), None) is None and len(list(child.parameters()))
    ]
    return StreamingDiLoCo(model, optimizer, PERIOD, strided_fragments(blocks, 2), overlap=1)


def _onebit(model: nn.Module, task: SmallTask) -> StepParts:
    # Each element moves by plus or minus the scale of its chunk over sqrt(v): with a tiny v, as of a pixel that few
    # images have, that is a huge step. A larger eps bounds it.
    optimizer = OneBitAdam(model.parameters(), lr=task.adam_lr, eps=1e-4, warmup_steps=WARM_UP)

    def update() -> None:
        with warnings.catch_warnings():  # of elements without a gradient: pixels that are always white, unseen letters
            warnings.filterwarnings("ignore", ".* elements had no gradient", RuntimeWarning)
            optimizer.step()
        optimizer.zero_grad()

    return StepParts(update)


def _sgd(model: nn.Module, task: SmallTask) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=task.sgd_lr)


def _deep_gradient_compression() -> CompressionState:
    codec_at = warm_up_sparsity(RATIO, stages=2, steps_per_stage=WARM_UP // 2)
    return CompressionState(MomentumCorrection(TopK(ratio=RATIO)), codec_at=codec_at)


METHODS = {
    method.name: method
    for method in (
        hooked("no compression", lambda: None, allreduce_hook),
        hooked("fp16", lambda: None, fp16_compress_hook),
        hooked("QSGD", lambda: CompressionState(QSGD()), compress_hook),
        hooked("random-k", lambda: CompressionState(RandomK(ratio=RATIO)), compress_hook),
        hooked("top-k", lambda: CompressionState(TopK(ratio=RATIO)), compress_hook),
        hooked("top-k, no feedback", lambda: CompressionState(TopK(ratio=RATIO), error_feedback=False), compress_hook),
        hooked("sign", lambda: CompressionState(PackedSign()), compress_hook),
        hooked("sign, no feedback", lambda: CompressionState(PackedSign(), error_feedback=False), compress_hook),
        hooked("DGC", _deep_gradient_compression, compress_hook, _sgd),
        hooked("PowerSGD", lambda: PowerSGDState(2), powersgd_hook),
        Method("1-bit Adam", _onebit),
        averaging("local SGD", lambda model, optimizer: PeriodicAveraging(model, optimizer, PERIOD)),
        averaging("post-local SGD", lambda model, optimizer: PostLocalSGD(model, optimizer, PERIOD, WARM_UP)),
        averaging("DiLoCo", lambda model, optimizer: DiLoCo(model, optimizer, PERIOD), _adamw),
        averaging("streaming DiLoCo", _streaming, _adamw),
    )
}
