"""Sequence parallelism: between the split layers, each rank has its own tokens of every sequence.

Tensor parallelism divides the inside of attention and of the feed-forward network. What lies between them (norms,
dropout, the residual stream) is whole on every rank: t times the same work, and t times the same activations. These
operations treat each token by itself, so their tokens can be divided. T is the sequence length, C the hidden size:

    tensor parallelism         (B, T, C) --f--> split layers --g--> (B, T, C)        f: identity    g: all-reduce
    with sequence parallelism  (B, T/t, C) --g'--> split layers --g''--> (B, T/t, C) g': all-gather g'': reduce-scatter

An all-reduce is a reduce-scatter and an all-gather, so the bytes are the same. Column-parallel layers gather their
input, row-parallel layers reduce-scatter their output: `layers/` has both. A norm needs no layer of its own:
`nn.LayerNorm` on (B, T/t, C) computes what it would for these tokens of (B, T, C). But its weight has met only the
rank's own tokens, so each rank's gradient of it is a partial sum, `w[C] {U_t}`. The same holds for a bias that is added
after a reduce-scatter. Modules with such parameters are marked, and their gradients summed once after backward.

A sum that is forgotten would let the copies of a norm drift apart, without an error: each rank's optimizer has another
gradient. So `gradient_states` remembers which gradients are partial, and a marked module refuses its next forward pass
if its parameters were changed in the meantime.

Source: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2205.05198, section 4.2.2;
Megatron-LM, `core/distributed/finalize_model_grads.py`, which marks the parameters themselves, and which its training
loop calls. Here modules are marked: `copy.deepcopy` and `to_empty` leave out what was set on a parameter, and nobody
would notice.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.sharing.shards import rank_and_size

from .gradient_states import is_partial, is_partial_and_used, is_summed, note_load, note_sum, watch

_MARK = "_sequence_parallel_names"


def mark_sequence_parallel(module: nn.Module, *names: str, group: dist.ProcessGroup | None = None) -> None:
    """Say that parameters of this module meet only the rank's own tokens: (B, T/t, ...).

    Args:
        module: a norm, say. What its submodules have is not marked.
        names: of its parameters, such as "bias"; none: all of them.
        group: ranks that the tokens are divided among; None: all ranks.

    Raises:
        ValueError: the module has no such parameter.
    """
    own = dict(module.named_parameters(recurse=False))
    if unknown := [name for name in names if name not in own]:
        raise ValueError(
            f"{type(module).__name__} has no parameter {', '.join(unknown)}; it has: {', '.join(own) or 'none'}"
        )
    setattr(module, _MARK, frozenset(names or own))
    has_partial_gradients = dist.is_initialized() and rank_and_size(group)[1] > 1
    if has_partial_gradients and _before_forward not in module._forward_pre_hooks.values():
        module.register_forward_pre_hook(_before_forward)
        module.register_load_state_dict_post_hook(_after_load)


def _before_forward(module: nn.Module, inputs: Any) -> None:
    """A function of the file, so that a copy of the module has it without a way back to the original."""
    names: frozenset[str] = getattr(module, _MARK)
    if used := [name for name in sorted(names) if is_partial_and_used(getattr(module, name))]:
        raise ValueError(
            f"the gradients of this {type(module).__name__}'s {' and '.join(used)} were partial sums, each of one "
            "rank's tokens, when the parameters were changed: the ranks' copies differ now. Call "
            "reduce_sequence_parallel_gradients(model, group=group) after backward, before clipping and before "
            "optimizer.step()"
        )
    for name in names:
        watch(getattr(module, name))


def _after_load(module: nn.Module, keys: Any) -> None:
    for parameter in module.parameters(recurse=False):
        note_load(parameter)


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
    several passes are still partial sums. What has been summed is not summed again, if nothing has changed it since.

    **Communication**: one all-reduce over `group` of all marked gradients together (one for each dtype among them): of
    a transformer block 6C elements, two norms and two biases. It belongs to the step, not to a micro-batch.
    **Memory**: a copy of these gradients, during the call.

    Args:
        module: the model. All ranks of the group call it, with gradients of the same parameters.
        group: tensor-parallel ranks; None: all ranks.
    """
    by_dtype: dict[torch.dtype, list[nn.Parameter]] = defaultdict(list)
    for parameter in sequence_parallel_parameters(module).values():
        # None: frozen or unused, and so on every rank.
        if parameter.grad is not None and not is_summed(parameter):
            by_dtype[parameter.grad.dtype].append(parameter)
    for parameters in by_dtype.values():
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        # One message instead of many small ones.
        together = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(together, group=group)
        sums = together.split([gradient.numel() for gradient in gradients])
        for parameter, gradient, summed in zip(parameters, gradients, sums, strict=True):
            gradient.copy_(summed.view_as(gradient))
            note_sum(parameter)


@torch.no_grad()
def reduce_sequence_parallel_pieces(
    module: nn.Module, pieces: dict[str, torch.Tensor], *, group: dist.ProcessGroup | None = None
) -> None:
    """`reduce_sequence_parallel_gradients` where pieces of the parameters have the gradients, as replicas' in ZeRO 2.

    **Communication** and **Memory**: as there, of the pieces.

    Args:
        module: the model, whose own gradients are gone.
        pieces: by the names of its parameters; of each the same elements on all ranks of the group.
        group: tensor-parallel ranks; None: all ranks.
    """
    marked = sequence_parallel_parameters(module)
    for parameter in marked.values():
        note_load(parameter)  # it has no partial sum any more
    by_dtype: dict[torch.dtype, list[torch.Tensor]] = defaultdict(list)
    for name in marked:
        gradient = pieces[name].grad
        if gradient is not None:
            by_dtype[gradient.dtype].append(gradient)
    for gradients in by_dtype.values():
        together = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(together, group=group)
        sums = together.split([gradient.numel() for gradient in gradients])
        for gradient, summed in zip(gradients, sums, strict=True):
            gradient.copy_(summed.view_as(gradient))


def require_reduced(module: nn.Module) -> None:
    """Check that no gradient of a marked parameter is a partial sum: before their norm is computed, say.

    **Communication** and **Memory**: none. All ranks come to the same result.

    Args:
        module: the model.

    Raises:
        ValueError: some are.
    """
    partial = [name for name, p in sequence_parallel_parameters(module).items() if is_partial(p)]
    if partial:
        raise ValueError(
            f"the gradients of {len(partial)} parameters ({partial[0]}, ...) are partial sums, each of one rank's "
            "tokens. Call reduce_sequence_parallel_gradients(model, group=group) first"
        )
