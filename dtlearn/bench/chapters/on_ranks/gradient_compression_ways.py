"""The ways in which gradients are compressed, or averaged rarely, beside torch's hooks: for `gradient_compression`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ....gradient_compression.comparing import Method, MethodRun, SmallTask
    from ....models.in_turns import Times
    from ....models.reference import Batch

PLAIN, FP16, POWERSGD = "no hook", "fp16", "PowerSGD"
TORCH_FP16, TORCH_POWERSGD = "torch's fp16", "torch's PowerSGD"
COUNTERPARTS = {FP16: TORCH_FP16, POWERSGD: TORCH_POWERSGD}
HOOKED = (FP16, TORCH_FP16, POWERSGD, TORCH_POWERSGD, "QSGD", "top-k", "sign", "DGC")
WAYS = (PLAIN, *HOOKED, "1-bit Adam", "local SGD", "DiLoCo")  # the last three communicate themselves, without DDP
_RANK = 2  # of PowerSGD's matrices, ours and torch's
_ONE_BUCKET_MB = 1024
_WARM = 2  # rounds that do not count: torch's DDP settles its buckets, and methods come to the end of their warm-up


@dataclass(frozen=True)
class CompressionWorkload:
    """What is trained: an MLP of these sizes on the digits, with so many of them on each rank.

    Attributes:
        sizes: widths; the default has 301,066 parameters, 1.2 MB of gradients.
        batch: of each rank.
        steps: until when a method has to have reached a loss.
    """

    sizes: tuple[int, ...] = (64, 512, 512, 10)
    batch: int = 24
    steps: int = 60


def time_on_rank(work: CompressionWorkload, rounds: int) -> Times:
    """On each rank: seconds of as many steps as lie between two meetings of local SGD, in each way, in turns.

    Gradients are averaged by torch's DDP, with a hook or without one, but for those methods that need none.
    """
    from ....gradient_compression.comparing.methods import PERIOD
    from ....models.in_turns import time_in_turns

    steps = {way: partial(_steps, _step(way, work), PERIOD) for way in WAYS}
    return time_in_turns(steps, rounds, _WARM)


def _steps(step: Callable[[], object], times: int) -> None:
    for _ in range(times):
        step()


def _step(way: str, work: CompressionWorkload) -> Callable[[], object]:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as TorchDDP

    from ....models import MLP
    from ....runtime.device import device

    torch.manual_seed(0)
    model: nn.Module = MLP(work.sizes).to(device())
    size, rank, method = dist.get_world_size(), dist.get_rank(), methods()[way]
    task = small_task(work, size)
    inputs, targets = (tensor[rank::size].to(device()) for tensor in next(task.batches(1)))
    if method.hook is None:
        update: Callable[[], object] = method.set_up(model, task).update
    else:
        # One bucket: torch's PowerSGD waits in gloo's threads, and two buckets that do so at once wait for ever.
        model = TorchDDP(model, bucket_cap_mb=_ONE_BUCKET_MB)
        if way != PLAIN:
            make_state, hook = method.hook
            model.register_comm_hook(make_state(), hook)
        optimizer = task.optimizer(model.parameters())
        update = partial(_update, optimizer)

    def step() -> None:
        task.loss(model(inputs), targets).backward()
        update()

    return step


def _update(optimizer: torch.optim.Optimizer) -> None:
    optimizer.step()
    optimizer.zero_grad()


def small_task(work: CompressionWorkload, ranks: int) -> SmallTask:
    """The workload as a task for `compare`."""
    import torch

    from ....gradient_compression.comparing import SmallTask
    from ....models import MLP, load_digits

    digits = load_digits()

    def batches(steps: int) -> Iterator[Batch]:
        return digits.batches(steps, ranks * work.batch)

    return SmallTask(
        "digits",
        lambda: MLP(work.sizes),
        torch.nn.functional.cross_entropy,
        batches,
        lambda: (digits.test_x, digits.test_y),
        lambda parameters: torch.optim.SGD(parameters, lr=0.3),
        sgd_lr=0.1,
        adam_lr=1e-3,
    )


def methods() -> dict[str, Method]:
    """The methods by way, in order."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    from ....gradient_compression.comparing import METHODS, hooked
    from ....gradient_compression.powersgd.hook import powersgd_hook
    from ....gradient_compression.powersgd.state import PowerSGDState
    from ....sharing.comm_hooks import allreduce_hook

    def torchs_state() -> Any:
        return powerSGD_hook.PowerSGDState(None, _RANK, start_powerSGD_iter=2)

    own = {
        PLAIN: hooked(PLAIN, lambda: None, allreduce_hook),
        TORCH_FP16: hooked(TORCH_FP16, lambda: None, default_hooks.fp16_compress_hook),
        POWERSGD: hooked(POWERSGD, lambda: PowerSGDState(_RANK), powersgd_hook),
        TORCH_POWERSGD: hooked(TORCH_POWERSGD, torchs_state, powerSGD_hook.powerSGD_hook),
    }
    return {way: own.get(way) or METHODS[way] for way in WAYS}


def loss_runs(work: CompressionWorkload, ranks: int) -> list[MethodRun]:
    """Train in each way, to see in how many steps it reaches which loss; in any process."""
    from ....gradient_compression.comparing import compare

    return compare(list(methods().values()), small_task(work, ranks), work.steps, num_ranks=ranks)
