"""1-bit Adam: Adam for a while, then momentum in one bit an element over a variance that no longer changes.

Source: Tang et al., "1-bit Adam: Communication Efficient Large-Scale Training with Adam's Convergence Speed", ICML
2021, arXiv 2102.02888, algorithm 1. DeepSpeed, where it comes from, no longer has it: `OneBitAdam`, `OneBitLamb` and
`ZeroOneAdam`, still there in 0.19.6 (August 2026), were deleted by its pull request 8490 and what was left of their
communication by 8535 (September 2026).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from math import sqrt
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from .averaging.mean import average_tensors
from .codecs.codec import Codec
from .codecs.sign import PackedSign
from .compressed_all_reduce import CompressedAllReduce
from .own_values import all_alike, norms_of_ranks


class OneBitAdam(Optimizer):
    """AdamW that communicates itself: gradients in the warm-up, compressed momentum after it.

        optimizer = OneBitAdam(model.parameters(), lr=1e-3, warmup_steps=100)  # a bare model, no DDP
        for x, y in batches:  # of this rank
            optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            optimizer.step()

    Adam's step is not linear in the gradient, so an error that is sent later is no longer the same error. The momentum
    is, if the variance stays. In the warm-up, `warmup_steps` steps, this is AdamW under data parallelism. Then v is
    frozen, and a step is

        m_i = beta_1 m + (1 - beta_1) g_i        on each rank, from the m that all have
        m   = `CompressedAllReduce` of the m_i   equal on all ranks
        p   = p - lr m^ / (sqrt(v^) + eps)

    with the bias corrections m^ = m / (1 - beta_1^t) and v^ = v / (1 - beta_2^T), T the last warm-up step. (The paper
    has none; DeepSpeed's had the option and did not use it. Without that of v, which is far from 1 after a short
    warm-up, the steps would grow at once by 1 / sqrt(1 - beta_2^T): threefold after 100 steps.)

    Clip each rank's own gradients, before the step. A loss scaler must agree with all ranks on skipping a step, since
    those that step wait for the others.

    One bit has no zero: an element that never had a gradient in the warm-up has v = 0, and plus or minus a scale over
    eps is a huge step. DeepSpeed asked the user for a mask of such elements; here they are frozen at the end of the
    warm-up: neither sent nor moved any more, whatever gradients they get. A warning says how many there are: rows of an
    embedding whose token the warm-up did not see are lost for training. A whole parameter that gets its first gradient
    after the warm-up, on any rank, is an error on every rank.

    A small v is a danger too: the step is the scale of its chunk over a small root. An MLP of (64, 512, 512, 10) on the
    digits diverges within ten compressed steps, after 60 of warm-up as after 4 (measured, 2 ranks). `preconditioned`
    compresses m / (sqrt(v^) + eps) in place of m: as linear, the same if nothing is lost, and with entries of one size,
    so that a step is about lr; that MLP then trains. It is not in the paper.

    **Communication** (n elements, N ranks): in the warm-up an all-reduce of the gradients, 4 n bytes of float32; at the
    first step an all-gather of 8 bytes more. Then what `CompressedAllReduce` says: about n / 8 + n / 256 bytes in the
    all-to-all, and an N-th of that in the all-gather. The formula of DeepSpeed's post, 1 / (w + (1 - w) / 16), is the
    volume of Adam over that of 1-bit Adam with a share w of steps in the warm-up, when Adam's gradients travel in 16
    bits: 4.9 at w = 15%. It counts one bit an element and no scales; for float32 its 16 is a 32.
    **Memory** (of float32, in n): m and v as Adam, and the errors, 1 + 1 / N, and 4 in a step.

    Args:
        params: as of any optimizer; groups may have learning rates, betas and weight decay of their own.
        lr, betas, eps, weight_decay: as of AdamW. A missing gradient counts as zero.
        warmup_steps: T; the guide of DeepSpeed had 15 to 25% of all steps.
        codec: what compresses the momentum; None: `PackedSign()`.
        preconditioned: compress the momentum over the root of the variance.
        group: ranks that train together; None: all.

    Raises:
        ValueError: no warm-up step; or, in `step`: gradients that are equal on all ranks, a mean that is not finite
            (nothing is changed then), a warm-up without any gradient, a parameter that is used for the first time
            after the warm-up. Every rank raises it.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        warmup_steps: int,
        codec: Codec | None = None,
        preconditioned: bool = False,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        if warmup_steps < 1:
            raise ValueError(
                f"warmup_steps must be 1 or more, got {warmup_steps}: without a warm-up there is no variance to freeze"
            )
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.warmup_steps, self.codec, self.group = warmup_steps, codec or PackedSign(), group
        self.preconditioned, self.steps = preconditioned, 0
        self.all_reduce: CompressedAllReduce | None = None  # from the end of the warm-up
        self._trained: torch.Tensor | None = None  # elements that have a variance; None: all
        self._without_variance: list[nn.Parameter] = []
        self._own_gradients_seen = False

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # no closure: it would be evaluated on each rank alone
        """One step; every rank of the group takes it."""
        parameters = [p for group in self.param_groups for p in group["params"]]
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        self._require_own(gradients)
        if self.steps < self.warmup_steps:
            means = [g.clone() for g in gradients]
            average_tensors(means, group=self.group)
            self.steps += 1
            self._adam(parameters, means)
        else:
            self._compressed(parameters, gradients)

    def _adam(self, parameters: list[nn.Parameter], means: list[torch.Tensor]) -> None:
        """m and v of the mean gradients, then the update."""
        for p, mean, (beta1, beta2) in zip(parameters, means, self._betas(), strict=True):
            state = self.state[p]
            if not state:
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
            state["exp_avg"].lerp_(mean, 1 - beta1)
            state["exp_avg_sq"].mul_(beta2).addcmul_(mean, mean, value=1 - beta2)
        self._update()

    def _compressed(self, parameters: list[nn.Parameter], gradients: list[torch.Tensor]) -> None:
        """m as the mean of what the ranks make of it, in one bit an element; then the update."""
        if self.all_reduce is None:
            self._freeze(parameters)
            self._warn_of_frozen(parameters)
        assert self.all_reduce is not None
        own = [
            torch.lerp(self.state[p]["exp_avg"], g, 1 - beta1).view(-1)
            for p, g, (beta1, _) in zip(parameters, gradients, self._betas(), strict=True)
        ]
        flat = torch.cat(own)  # (all elements,)
        roots = torch.cat([root.view(-1) for root in self._denominators()]) if self.preconditioned else None
        if roots is not None:
            flat = flat / roots
        sent = flat if self._trained is None else flat[self._trained]  # (n,)
        late = [p for p in self._without_variance if p.grad is not None and bool(p.grad.any())]
        if late:  # perhaps on this rank only: NaN tells the others, which would wait for it in the all-reduce
            sent = torch.full_like(sent, torch.nan)
        try:
            mean = self.all_reduce.mean(sent.to(self.all_reduce.worker_error.dtype)).to(flat.dtype)
        except ValueError as error:
            raise self._reason(late, error) from None
        flat = mean if self._trained is None else torch.zeros_like(flat).masked_scatter_(self._trained, mean)
        if roots is not None:
            flat = flat * roots
        self.steps += 1
        for p, m in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
            self.state[p]["exp_avg"].copy_(m.view_as(p))
        self._update()

    def _reason(self, late: list[nn.Parameter], error: ValueError) -> ValueError:
        """Why the mean is not finite, as far as this rank knows."""
        if late:
            return ValueError(
                f"a parameter of shape {tuple(late[0].shape)} has its first gradient after the warm-up of "
                f"{self.warmup_steps} steps: its variance is 0 and stays 0, so Adam has no step for it. Let the "
                "warm-up be so long that every parameter is used in it, or freeze this one"
            )
        if not self._without_variance:
            return error
        shape = tuple(self._without_variance[0].shape)
        return ValueError(
            f"{error}; or it has used a parameter for the first time after the warm-up of {self.warmup_steps} steps, "
            f"as that of shape {shape}, which that rank's own error names"
        )

    def _freeze(self, parameters: list[nn.Parameter]) -> None:
        """Begin the compression: which elements have a variance, and no errors yet."""
        variance = torch.cat([self.state[p]["exp_avg_sq"].view(-1) for p in parameters])  # (all elements,)
        trained = variance > 0
        numel = int(trained.sum())
        if not numel and len(trained):
            raise ValueError(
                f"no parameter had a gradient in the {self.warmup_steps} steps of the warm-up: every variance is 0, "
                "so Adam has no step. Call backward before step, and step only when there are gradients"
            )
        self._trained = None if numel == len(trained) else trained
        self._without_variance = [p for p in parameters if p.numel() and not bool(self.state[p]["exp_avg_sq"].any())]
        dtype = torch.promote_types(variance.dtype, torch.float32)
        self.all_reduce = CompressedAllReduce(numel, self.codec, like=variance.to(dtype), group=self.group)

    def _warn_of_frozen(self, parameters: list[nn.Parameter]) -> None:
        """Say on rank 0, all ranks having the same variances, how many elements will never move again."""
        frozen = sum(int((self.state[p]["exp_avg_sq"] == 0).sum()) for p in parameters if p.requires_grad)
        if frozen and dist.get_rank(self.group) == 0:
            warnings.warn(
                f"{frozen:,} elements had no gradient in the {self.warmup_steps} steps of the warm-up: their variance "
                "is 0, and they are frozen from now on. If they are to be trained, make the warm-up longer",
                RuntimeWarning,
                stacklevel=6,  # where the user calls step, which torch wraps twice
            )

    def _update(self) -> None:
        """AdamW's update, in the order in which torch computes it; v is that of the last warm-up step at most."""
        denominators = self._denominators()
        for group in self.param_groups:
            correction = 1 - group["betas"][0] ** self.steps
            for p in group["params"]:
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.addcdiv_(self.state[p]["exp_avg"], next(denominators), value=-group["lr"] / correction)

    def _denominators(self) -> Iterator[torch.Tensor]:
        """sqrt(v^) + eps of each parameter."""
        for group in self.param_groups:
            correction = sqrt(1 - group["betas"][1] ** min(self.steps, self.warmup_steps))
            for p in group["params"]:
                yield (self.state[p]["exp_avg_sq"].sqrt() / correction).add_(group["eps"])

    def _betas(self) -> list[tuple[float, float]]:
        """The betas of each parameter."""
        return [group["betas"] for group in self.param_groups for _ in group["params"]]

    def _require_own(self, gradients: list[torch.Tensor]) -> None:
        """Check, with the first gradients that are not zero, that nobody has averaged them yet."""
        if self._own_gradients_seen:
            return
        norms = norms_of_ranks(gradients, group=self.group)  # (N,)
        self._own_gradients_seen = bool(norms.any())
        if self._own_gradients_seen and all_alike(norms):
            raise ValueError(
                f"expected this rank's gradients, but those of all {len(norms)} ranks are equal: either a "
                "DistributedDataParallel averages them already, at the price that this optimizer is to save: give it "
                "the bare model; or all ranks train on the same batches"
            )

    def state_dict(self) -> dict[str, Any]:
        """As of any optimizer, and under "onebit" this rank's errors: every rank saves its own."""
        errors = None if self.all_reduce is None else self.all_reduce.state_dict()
        return super().state_dict() | {"onebit": {"steps": self.steps, "errors": errors}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state of the same rank of as many ranks.

        With `state["onebit"]["errors"]` set to None the errors begin at zero, on any number of ranks, as DeepSpeed's
        did after every load: what the ranks had not sent yet is lost.

        Raises:
            ValueError: the errors are of another number of ranks, or of another rank.
        """
        onebit = state["onebit"]
        super().load_state_dict({name: value for name, value in state.items() if name != "onebit"})
        self.steps, self.all_reduce = onebit["steps"], None
        if onebit["errors"] is not None:
            self._freeze([p for group in self.param_groups for p in group["params"]])
            assert self.all_reduce is not None
            self.all_reduce.load_state_dict(onebit["errors"])
