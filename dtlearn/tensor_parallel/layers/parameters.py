"""The dim of each parameter that is divided; whole parameters taken, and given back: the same for every parallel layer.

A divided layer says it itself, `layer.split_dims`: `{"weight": 0, "bias": None}`, None for what every rank has whole.
It is the layer that says it, not the parameter: `copy.deepcopy` and `to_empty` make new parameters, without attributes.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.sharing.along_dim import unshard

from ..gradient_states import note_load


class ParallelModule(nn.Module):
    """A layer that is divided over a group of ranks, or a module of such layers and of replicated ones.

    A deep copy works on the same group. The group itself belongs to the processes of this job, so a module that was
    given one cannot be pickled.
    """

    group: dist.ProcessGroup | None = None

    def load_full(self, whole: Mapping[str, torch.Tensor]) -> None:
        """Take this rank's part of whole parameters; keeps no reference to them.

        **Communication**: none.
        **Memory**: one parameter's part more, for a moment.

        Args:
            whole: all parameters of the undivided module, by name, the same on all ranks.

        Raises:
            ValueError: a parameter is missing, unknown, or of another shape, as a part of it would be.
        """
        load_full(self, whole)

    def full_params(self) -> dict[str, torch.Tensor]:
        """The parameters of the undivided module, by name, on every rank. All ranks of the group call it.

        **Communication**: one all-gather for each divided parameter; of n bytes in the whole, each rank sends
        n (t-1)/t.
        **Memory**: all whole parameters, on every rank.
        """
        return full_params(self, group=self.group)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        memo[id(self.group)] = self.group  # shared: there is no second one
        copied = memo[id(self)] = type(self).__new__(type(self))
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return copied

    def __getstate__(self) -> dict[str, Any]:
        if self.group is not None:
            raise ValueError(
                f"{type(self).__name__} has a process group, which is of this job only and cannot be pickled. Save "
                "state_dict(), this rank's part, or full_params(), the whole; load them into a new one with "
                "load_state_dict or load_full"
            )
        return self.__dict__.copy()


def split_dims(module: nn.Module) -> dict[str, int | None]:
    """Find for each parameter of a module and of all modules in it, by name, which dim is divided; None: replicated.

    **Communication** and **Memory**: none.

    Args:
        module: a model, or a layer. Modules without `split_dims` have replicated parameters.
    """
    dims: dict[str, int | None] = {}
    for prefix, part in module.named_modules():
        require_own_parameters(part)
        of_part: dict[str, int | None] = getattr(part, "split_dims", {})
        for name, _ in part.named_parameters(recurse=False):
            dims[f"{prefix}.{name}" if prefix else name] = of_part.get(name)
    return dims


@torch.no_grad()
def load_full(module: nn.Module, whole: Mapping[str, torch.Tensor]) -> None:
    """`ParallelModule.load_full` of any module: its parallel layers take their part, all others the whole.

    **Communication** and **Memory**: as there.

    Args:
        module: a model, or a layer.
        whole: as there.

    Raises:
        ValueError: as there.
    """
    require_names(module, whole)
    for name, parameter in module.named_parameters(recurse=False):
        if whole[name].shape != parameter.shape:
            raise ValueError(f"{name} is {tuple(parameter.shape)} on every rank; got {tuple(whole[name].shape)}")
        take(module, name, whole[name].detach().clone(), whole[name])
    for child_name, child in module.named_children():
        prefix = f"{child_name}."
        of_child = {name.removeprefix(prefix): full for name, full in whole.items() if name.startswith(prefix)}
        try:
            child.load_full(of_child) if isinstance(child, ParallelModule) else load_full(child, of_child)
        except ValueError as error:
            raise ValueError(f"{prefix}{error}") from None


@torch.no_grad()
def full_params(module: nn.Module, *, group: dist.ProcessGroup | None = None) -> dict[str, torch.Tensor]:
    """`ParallelModule.full_params` of any module; of a tied parameter once.

    **Communication** and **Memory**: as there.

    Args:
        module: a model, or a layer, of which each rank has its part.
        group: the ranks among which its own parameters are divided; None: all ranks. Layers inside know theirs.
    """
    require_own_parameters(module)
    dims, whole = getattr(module, "split_dims", {}), {}
    for name, parameter in module.named_parameters(recurse=False):
        dim = dims.get(name)
        whole[name] = parameter.detach().clone() if dim is None else unshard(parameter, dim, group=group)
    for child_name, child in module.named_children():
        of_child = child.full_params() if isinstance(child, ParallelModule) else full_params(child, group=group)
        whole |= {f"{child_name}.{name}": full for name, full in of_child.items()}
    return {name: whole[name] for name, _ in module.named_parameters()}


def require_names(module: nn.Module, whole: Mapping[str, torch.Tensor]) -> None:
    """Check that there is a tensor for each parameter of a module, under its name, and no other.

    **Communication** and **Memory**: none.

    Args:
        module: a model, or a layer.
        whole: by name.

    Raises:
        ValueError: names that are missing, or unknown.
    """
    names = dict(module.named_parameters()).keys()  # a tied one once, and it may come under its other names too
    unknown = whole.keys() - dict(module.named_parameters(remove_duplicate=False)).keys()
    if names - whole.keys() or unknown:
        raise ValueError(
            f"the whole {type(module).__name__} has {len(names)} parameters; missing: "
            f"{sorted(names - whole.keys())[:3]}, unknown: {sorted(unknown)[:3]}"
        )


def require_own_parameters(module: nn.Module) -> None:
    """Check that what a layer says of its parameters is about parameters: not about a tensor that is computed of some.

    `torch.nn.utils.parametrizations` (weight norm, spectral norm) computes a weight of this rank's part alone, which is
    another function than that of the whole weight.

    **Communication** and **Memory**: none.

    Args:
        module: a layer; one without `split_dims` passes.

    Raises:
        ValueError: a parameter of `split_dims` is none.
    """
    for name in getattr(module, "split_dims", ()):
        if name not in module._parameters and getattr(module, name, None) is not None:
            raise ValueError(
                f"{name} of a {type(module).__name__} is computed from other parameters, each rank's from its part: "
                "not what the whole weight would give. Remove the parametrization (or pruning) of divided layers"
            )


@torch.no_grad()
def take(module: nn.Module, name: str, part: torch.Tensor, full: torch.Tensor) -> None:
    """Put this rank's part of a parameter into a layer: in place, or as a new parameter where there is no memory yet.

    **Communication** and **Memory**: none.

    Args:
        module: that has the parameter itself.
        name: of the parameter.
        part: an own tensor of this rank.
        full: what it is a part of. A frozen parameter makes a new one that is frozen, too.
    """
    parameter = getattr(module, name)
    if parameter.is_meta:
        frozen = isinstance(full, nn.Parameter) and not full.requires_grad
        setattr(module, name, nn.Parameter(part, requires_grad=not frozen))
    else:
        parameter.copy_(part)  # an optimizer may hold it
        note_load(parameter)


def in_notation(name: str, dims: tuple[str, ...], split_dim: int | None) -> str:
    """A tensor in the notation of this course: `in_notation("weight", ("out", "in"), 0)` is `weight[out_t, in]`.

    **Communication** and **Memory**: none.

    Args:
        name: of the tensor.
        dims: their names.
        split_dim: which one is divided over the axis t; None: none.
    """
    return f"{name}[{', '.join(f'{dim}_t' if number == split_dim else dim for number, dim in enumerate(dims))}]"
