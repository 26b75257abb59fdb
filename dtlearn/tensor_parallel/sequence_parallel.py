"""Sequence parallelism: between the split layers, each rank has its own tokens of every sequence.

Tensor parallelism divides the inside of attention and of the feed-forward network. What lies between them (norms,
dropout, the residual stream) is whole on every rank: t times the same work, and t times the same activations. These
operations treat each token by itself, so their tokens can be divided. T is the sequence length, C the hidden size:

    tensor parallelism         (B, T, C) --f--> split layers --g--> (B, T, C)        f: identity    g: all-reduce
    with sequence parallelism  (B, T/t, C) --g'--> split layers --g''--> (B, T/t, C) g': all-gather g'': reduce-scatter

An all-reduce is a reduce-scatter and an all-gather, so the bytes are the same. Column-parallel layers gather their
input, row-parallel layers reduce-scatter their output: `layers/` has both. A norm needs no layer of its own:
`nn.LayerNorm` on (B, T/t, C) computes what it would for these tokens of (B, T, C). But its weight has met only the
rank's own tokens, so each rank's gradient of it is a partial sum, `A[C] {U_t}`. The same holds for a bias that is added
after a reduce-scatter. Modules with such parameters are marked, and their gradients summed once after backward.

Source: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2205.05198, section 4.2.2;
Megatron-LM, `core/distributed/finalize_model_grads.py`, which marks the parameters themselves. Here modules are marked:
`copy.deepcopy` and `to_empty` leave out what was set on a parameter, and nobody would notice.
"""

from __future__ import annotations

from collections import defaultdict

import torch
import torch.distributed as dist
from torch import nn

_MARK = "_sequence_parallel_names"


def mark_sequence_parallel(module: nn.Module, *names: str) -> None:
    """Say that parameters of this module meet only the rank's own tokens: (B, T/t, ...).

    Args:
        module: a norm, say. What its submodules have is not marked.
        names: of its parameters, such as "bias"; none: all of them.

    Raises:
        ValueError: the module has no such parameter.
    """
    own = dict(module.named_parameters(recurse=False))
    if unknown := [name for name in names if name not in own]:
        raise ValueError(
            f"{type(module).__name__} has no parameter {', '.join(unknown)}; it has: {', '.join(own) or 'none'}"
        )
    setattr(module, _MARK, frozenset(names or own))


def sequence_parallel_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """The marked parameters of a module and of all modules in it, by name; a tied one once."""
    marked = {
        id(parameter)
        for part in module.modules()
        for name, parameter in part.named_parameters(recurse=False, remove_duplicate=False)
        if name in getattr(part, _MARK, ())
    }
    return {name: parameter for name, parameter in module.named_parameters() if id(parameter) in marked}


@torch.no_grad()
def reduce_sequence_parallel_gradients(
    module: nn.Module,
    *,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Sum the gradients of all marked parameters over the group, in place: from partial sums to gradients.

    Call it once, after the last backward pass of a step and before clipping: gradients that were accumulated over
    several passes are still partial sums, but summed ones would be summed again.

    **Communication**: one all-reduce over `group` of all marked gradients together (one for each dtype among them): of
    a transformer block 6C elements, two norms and two biases. It belongs to the step, not to a micro-batch.
    **Memory**: a copy of these gradients, during the call.

    Args:
        module: the model. All ranks of the group call it, with gradients of the same parameters.
        group: tensor-parallel ranks; None: all ranks.
    """
    gradients: dict[torch.dtype, list[torch.Tensor]] = defaultdict(list)
    for parameter in sequence_parallel_parameters(module).values():
        if parameter.grad is not None:  # None for a frozen or unused one, and then so on every rank
            gradients[parameter.grad.dtype].append(parameter.grad)
    for of_dtype in gradients.values():
        # One message instead of many small ones.
        together = torch.cat([gradient.flatten() for gradient in of_dtype])
        dist.all_reduce(together, group=group)
        sums = together.split([gradient.numel() for gradient in of_dtype])
        for gradient, summed in zip(of_dtype, sums, strict=True):
            gradient.copy_(summed.view_as(gradient))
