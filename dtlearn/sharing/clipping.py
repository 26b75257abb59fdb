"""Gradients clipped by their global norm, whatever is divided over which ranks: the caller says what counts here.

The whole gradient is one long vector, of which a rank has some elements, some alone and some like other ranks. Powers
of its elements add up over ranks, norms do not. So each rank adds up the powers of those elements that count on it, one
all-reduce of a single number makes the sum of all, its root is the norm, and all ranks scale by the same factor. It is
right if each element of the whole gradient counts on exactly one rank:

- what is divided counts where it is;
- what several ranks have alike (norms and biases under tensor parallelism, say) counts on one of them;
- padding is no gradient, and a tied parameter is one parameter.

Where the model is divided along several axes, the sum goes over one group after the other: `groups=[tp, pp]` adds up
within a stage, then over the stages. Along an axis of replicas (data parallelism) nothing is added up.

Sources: Pascanu, Mikolov & Bengio, "On the difficulty of training recurrent neural networks", 1211.5063;
`torch.nn.utils.clip_grad_norm_`; Megatron-LM's `core/optimizer/clip_grads.py`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence

import torch
import torch.distributed as dist

from dtlearn.runtime.device import device_for

_EPSILON = 1e-6  # torch's: a norm of 0 gives a factor of 1, not a division by 0


@torch.no_grad()
def clip_grad_norm_(
    parameters: torch.Tensor | Iterable[torch.Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    *,
    counted: Iterable[torch.Tensor] | None = None,
    groups: Sequence[dist.ProcessGroup | None] = (),
    error_if_nonfinite: bool = False,
) -> torch.Tensor:
    """Scale the gradients of all ranks down to `max_norm`, if together they are longer.

    **Communication**: one all-reduce of 4 bytes over each group; 8 if a parameter is float64.
    **Memory**: 4 bytes per parameter, while the norm is computed.

    Args:
        parameters: all that this rank has, or one; those gradients are scaled, each once.
        max_norm: of the whole gradient, as one vector.
        norm_type: 1, 2, or any other p > 0; `math.inf`: the largest absolute value.
        counted: those of `parameters` whose elements count on this rank; None: all of them.
        groups: over whose ranks powers are added up, one group after the other, in the same order on
            all ranks; in it, None: all ranks. Empty: this rank has the whole gradient.
        error_if_nonfinite: a norm that is infinite or NaN is an error.

    Returns:
        The norm before clipping, (), float32 or float64, the same on all ranks of the groups.

    Raises:
        ValueError: `max_norm` or `norm_type` is not positive.
        RuntimeError: with `error_if_nonfinite`, on all ranks.
    """
    if not max_norm > 0:
        raise ValueError(f"max_norm must be positive; got {max_norm}")
    parameters = as_list(parameters)
    norm = global_norm(parameters, norm_type, counted=counted, groups=groups)
    if error_if_nonfinite and not norm.isfinite():
        whose, where = ("of the gradients of all ranks", " on some rank") if groups else ("of the gradients", "")
        raise RuntimeError(
            f"the norm {whose} is {norm.item()}: a step that a loss scaler is to skip, or a loss that is not "
            f"finite{where}. Leave error_if_nonfinite=False with a scaler"
        )
    factor = (max_norm / (norm + _EPSILON)).clamp(max=1.0)
    for parameter in _each_once(parameters):
        if parameter.grad is not None:
            parameter.grad.mul_(factor.to(parameter.grad.device))
    return norm


@torch.no_grad()
def global_norm(
    parameters: torch.Tensor | Iterable[torch.Tensor],
    norm_type: float = 2.0,
    *,
    counted: Iterable[torch.Tensor] | None = None,
    groups: Sequence[dist.ProcessGroup | None] = (),
) -> torch.Tensor:
    """The norm of the whole gradient, of which each rank has a part, (), float32 or float64.

    **Communication**, **Memory** and arguments: as `clip_grad_norm_`.
    """
    parameters = as_list(parameters)
    counted = parameters if counted is None else counted
    norm = local_norm(counted, norm_type, like=parameters)  # of what counts on this rank
    if not groups:
        return norm
    if norm.device.type == "cpu":  # of parameters on the host
        norm = norm.to(device_for(*groups))
    if norm_type == math.inf:
        return largest_norm(norm, groups=groups)
    power = norm**norm_type  # powers add up over ranks, norms do not
    for group in groups:
        dist.all_reduce(power, group=group)  # by ranks where nothing counts, too: the others wait
    return power ** (1 / norm_type)


def as_list(parameters: torch.Tensor | Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """One parameter is a list of one, as for torch's: its rows would have no gradient, and a norm of 0.

    **Communication** and **Memory**: none.
    """
    return [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)


def count_once(
    parameters: Sequence[torch.Tensor],
    replicated: Collection[torch.Tensor],
    *,
    group: dist.ProcessGroup | None = None,
) -> Iterator[torch.Tensor]:
    """Those of `parameters` that count on this rank, if `replicated` ones count on the group's first rank only.

    **Communication** and **Memory**: none.

    Args:
        parameters: all that this rank has.
        replicated: those of them that all ranks of the group have, with the same gradient.
        group: None: all ranks.
    """
    left_out = {id(parameter) for parameter in replicated} if dist.get_rank(group) > 0 else set()
    yield from (parameter for parameter in parameters if id(parameter) not in left_out)  # `in` would compare values


@torch.no_grad()
def local_norm(
    counted: Iterable[torch.Tensor], norm_type: float = 2.0, *, like: Iterable[torch.Tensor] = ()
) -> torch.Tensor:
    """The norm of this rank's gradients alone, (), float32; float64 if a parameter is.

    **Communication**: none. **Memory**: 4 bytes per parameter.

    Args:
        counted: parameters whose gradients count, each once.
        norm_type: as for `clip_grad_norm_`.
        like: parameters that need not count, but say the device and the format.

    Raises:
        ValueError: `norm_type` is not positive.
    """
    if not norm_type > 0:
        raise ValueError(f"norm_type must be positive, such as 1, 2 or math.inf; got {norm_type}")
    counted = _each_once(counted)
    known = [*counted, *like]
    device = known[0].device if known else torch.device("cpu")
    # By the parameters, not by the gradients: a rank that has none must send as many bytes as the others.
    dtype = torch.float64 if any(p.dtype == torch.float64 for p in known) else torch.float32
    gradients = [p.grad for p in counted if p.grad is not None and p.grad.numel()]
    norms = [torch.linalg.vector_norm(gradient, norm_type, dtype=dtype).to(device) for gradient in gradients]
    if not norms:
        return torch.zeros((), dtype=dtype, device=device)
    norm: torch.Tensor = torch.linalg.vector_norm(torch.stack(norms), norm_type)
    return norm


def largest_norm(norm: torch.Tensor, *, groups: Sequence[dist.ProcessGroup | None]) -> torch.Tensor:
    """The largest of all ranks' norms, NaN if one is: gloo's maximum of floats loses a NaN of any rank but the first.

    **Communication**: one all-reduce (maximum) of 4 or 8 bytes over each group. **Memory**: none.

    Args:
        norm: of this rank, ().
        groups: as for `clip_grad_norm_`.
    """
    # The bits of floats that are not negative, as whole numbers, have the same order, and NaN is above infinity.
    bits = norm.abs().view(torch.int64 if norm.dtype == torch.float64 else torch.int32)
    for group in groups:
        dist.all_reduce(bits, dist.ReduceOp.MAX, group=group)
    return bits.view(norm.dtype)


def _each_once(parameters: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return list({id(parameter): parameter for parameter in parameters}.values())
