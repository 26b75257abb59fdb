"""PowerSGD: a gradient matrix as the product of two thin ones, which ranks can add up.

Source: Vogels, Karimireddy and Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization",
NeurIPS 2019, arXiv:1905.13727, Algorithms 1 and 2. torch has it as
`torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ..own_values import require_own_state
from ..residuals import Residuals


class PowerSGDState:
    """What `powersgd_hook` works with, on each rank its own.

        ddp.register_comm_hook(PowerSGDState(4), powersgd_hook)

    A gradient M, (n, m), with what was kept of earlier ones, becomes P Q^T in one step of the power method:

        P = M Q             (n, r)  all-reduce: the sum over the ranks
        P = orthogonal(P)           the same on every rank
        Q = M^T P           (m, r)  all-reduce: the mean; it is the Q of the next step, so the steps of training
                                    are the steps of one power method (warm start)

    Both are linear in M, so the mean over the ranks is the result for the mean gradient, and an all-reduce will do.
    The error kept is M - P Q^T with the mean Q, as in torch; the mean over ranks is that with each rank's own Q.

    Beside torch's hook: what is kept belongs to parameters, not to buckets, so it need not wait for torch's DDP to
    rebuild its buckets (`start_powerSGD_iter` must be 2 there); small tensors travel with the Ps; a column of zeros is
    made orthogonal, by a QR decomposition. torch's Gram-Schmidt for ranks 1 and 2 divides by zero there, unless
    `orthogonalization_epsilon` is set; with it the column stays zero, and so does its Q, in all later steps. A bucket
    whose mean is not finite leaves no trace; the next bucket's backward goes on beside the all-reduce of P. Over
    gloo, torch's hook with more than one bucket soon hangs or ends in an error about sizes (seen with torch 2.13): it
    calls its later all-reduces when earlier ones end, and not in the same order on every rank.

    **Memory**: 4 bytes a parameter for the residual, and the Qs; a bucket that is under way, three times more.

    Args:
        matrix_rank: r; min(n, m) at most is taken.
        group: ranks that train together; None: all.
        start_step: backward passes that are averaged as without compression, first.
        min_compression_rate: a matrix is compressed if r (n + m) times this is less than n m. Others, and all vectors,
            are averaged as they are.
        error_feedback: keep what is left out; without it, it is lost.
        warm_start: begin with the Q of the last step; without it, with a random one.
        seed: of the first Qs, the same on all ranks.

    Raises:
        ValueError: a rank of less than 1, or a negative step.
    """

    def __init__(
        self,
        matrix_rank: int = 1,
        *,
        group: dist.ProcessGroup | None = None,
        start_step: int = 0,
        min_compression_rate: float = 2.0,
        error_feedback: bool = True,
        warm_start: bool = True,
        seed: int = 0,
    ) -> None:
        if matrix_rank < 1 or start_step < 0:
            raise ValueError(f"expected matrix_rank >= 1 and start_step >= 0; got {matrix_rank} and {start_step}")
        self.matrix_rank, self.group, self.start_step = matrix_rank, group, start_step
        self.min_compression_rate = min_compression_rate
        self.error_feedback, self.warm_start = error_feedback, warm_start
        self.step = 0
        self.residuals = Residuals()
        self.qs: dict[torch.Tensor, torch.Tensor] = {}  # by parameter: (m, r), the mean of the last step
        self.under_way: list[Any] = []  # exchanges whose Ps have left, and whose Qs have not
        self._generator = torch.Generator().manual_seed(seed)  # of the CPU, the same everywhere

    def low_rank(self, shape: Sequence[int]) -> tuple[int, int, int] | None:
        """(n, m, r) of a parameter's shape, or None if it is not compressed."""
        n = shape[0] if len(shape) else 1
        m = 1
        for size in shape[1:]:
            m *= size
        r = min(n, m, self.matrix_rank)
        return (n, m, r) if r * (n + m) * self.min_compression_rate < n * m else None

    def nbytes(self, shapes: Iterable[Sequence[int]]) -> int:
        """Bytes of float32 that a rank gives to the all-reduces of a step, for parameters of these shapes."""
        numel = 0
        for shape in shapes:
            low = self.low_rank(shape)
            numel += low[2] * (low[0] + low[1]) if low else torch.Size(shape).numel()
        return 4 * numel

    def q_of(self, parameter: torch.Tensor, m: int, r: int) -> torch.Tensor:
        """A parameter's Q to begin a step with, (m, r): the last one, or a random one, the same on all ranks."""
        if self.warm_start and parameter in self.qs:
            return self.qs[parameter]
        drawn = torch.randn(m, r, generator=self._generator, device="cpu")
        return drawn.to(parameter.device)

    def state_dict(self, model: nn.Module) -> dict[str, Any]:
        """What this rank needs to go on: plain values and tensors. Every rank saves its own; see `CompressionState`."""
        return {
            "world_size": dist.get_world_size(self.group),
            "rank": dist.get_rank(self.group),
            "step": self.step,
            "generator": self._generator.get_state(),
            "residuals": self.residuals.state_dict(model),
            "qs": {name: self.qs[p].clone() for name, p in model.named_parameters() if p in self.qs},
        }

    def load_state_dict(self, state: dict[str, Any], model: nn.Module) -> None:
        """Take up what `state_dict` gave on this rank.

        Raises:
            ValueError: it is of another number of ranks, of another rank or model, or of another `matrix_rank`.
        """
        require_own_state(state, "PowerSGDState", group=self.group)
        self.residuals.load_state_dict(state["residuals"], model)
        parameters = dict(model.named_parameters())
        for name, q in state["qs"].items():
            low = self.low_rank(parameters[name].shape) if name in parameters else None
            if low is None or q.shape != low[1:]:
                raise ValueError(
                    f"the state has a Q of shape {tuple(q.shape)} for {name}, expected {low and low[1:]}: make the "
                    "PowerSGDState with the matrix_rank and min_compression_rate that it was saved with"
                )
        self.qs = {parameters[name]: q.to(parameters[name].device, copy=True) for name, q in state["qs"].items()}
        self.step = state["step"]
        self._generator.set_state(state["generator"])
