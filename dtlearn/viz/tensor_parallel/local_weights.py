"""Which part of each parameter a rank has: read from the layers of a rank, and put together from those of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class LocalWeight:
    """A parameter as one rank holds it.

    Attributes:
        name: in the model, such as "attention.query.weight".
        shape: of what the rank holds.
        dim: that is divided among the ranks; None: the rank has the whole parameter.
        head_size: features of a head, if the dim is divided by heads; else None.
        copies: ranks that hold the same part, such as a key head of grouped-query attention that several ranks need.
        is_table: a row for each token, (V, C): a table that is looked up, not a weight that is multiplied from the
            right, whose shape is (outputs, inputs).
    """

    name: str
    shape: tuple[int, ...]
    dim: int | None
    head_size: int | None = None
    copies: int = 1
    is_table: bool = False


@dataclass(frozen=True)
class CutWeight:
    """A parameter of which each rank holds a part.

    Attributes:
        name, dim, head_size, copies, is_table: as in `LocalWeight`.
        shape: of the whole.
        sizes: of the parts along the dim, in the order of the ranks; of a whole parameter the empty tuple.
    """

    name: str
    shape: tuple[int, ...]
    dim: int | None
    sizes: tuple[int, ...]
    head_size: int | None
    copies: int
    is_table: bool

    @property
    def module(self) -> str:
        """The name of the module that it belongs to."""
        return self.name.rpartition(".")[0]


def local_weights(model: nn.Module, only: Sequence[str] = ("",)) -> list[LocalWeight]:
    """The parameters of this rank's model, with the dims along which its layers say that they are divided.

    Args:
        model: with layers that have `split_dims`; those that do not are whole on every rank.
        only: beginnings of names; "": all parameters.
    """
    modules = dict(model.named_modules())
    weights = []
    for name, parameter in model.named_parameters():
        if not name.startswith(tuple(only)):
            continue
        path, _, own = name.rpartition(".")
        module, parent = modules[path], modules[path.rpartition(".")[0]]
        dims: dict[str, int | None] = getattr(module, "split_dims", {})
        dim = dims.get(own)
        head_size = getattr(parent, "head_size", None) if dim is not None and parent is not module else None
        copies, is_table = getattr(module, "num_copies", 1), "Embedding" in type(module).__name__
        if parameter.ndim == 3 and dim:  # several weights in one parameter, each divided: SwiGLU's gate and up
            for number in range(parameter.shape[0]):
                part = f"{path}[{number}].{own}" if path else f"{own}[{number}]"
                shape = tuple(parameter.shape[1:])
                weights.append(LocalWeight(part, shape, dim - 1, head_size, copies, is_table))
        else:
            weights.append(LocalWeight(name, tuple(parameter.shape), dim, head_size, copies, is_table))
    return weights


def spoken(name: str) -> str:
    """The name of a module as people write it: "feed-forward norm"."""
    return name.replace("feed_forward", "feed-forward").replace("_", " ")


def cut_weights(ranks: Sequence[Sequence[LocalWeight]]) -> list[CutWeight]:
    """Put together what the ranks hold, from rank 0 on.

    Raises:
        ValueError: no rank, or ranks with other parameters, dims or shapes than rank 0.
    """
    if not ranks or not ranks[0]:
        raise ValueError("no rank's parameters to put together")
    names = [weight.name for weight in ranks[0]]
    for rank, weights in enumerate(ranks):
        if [weight.name for weight in weights] != names:
            raise ValueError(f"rank {rank} has the parameters {[w.name for w in weights]}, and rank 0 has {names}")
    return [_joined(parts) for parts in zip(*ranks, strict=True)]


def num_held(ranks: Sequence[Sequence[LocalWeight]]) -> tuple[int, int]:
    """How many parameters rank 0 holds, and how many there are."""
    held = sum(prod(weight.shape) for weight in ranks[0])
    return held, sum(prod(weight.shape) for weight in cut_weights(ranks))


def _joined(parts: Sequence[LocalWeight]) -> CutWeight:
    first = parts[0]
    sizes = () if first.dim is None else tuple(part.shape[first.dim] for part in parts)
    shape = list(first.shape)
    if first.dim is not None:
        shape[first.dim] = sum(sizes) // first.copies
    for rank, part in enumerate(parts):
        others = [n for dim, n in enumerate(part.shape) if dim != first.dim]
        if part.dim != first.dim or others != [n for dim, n in enumerate(shape) if dim != first.dim]:
            raise ValueError(
                f"{first.name}: rank {rank} holds {part.shape}, divided along dim {part.dim}; rank 0 holds "
                f"{first.shape}, divided along dim {first.dim}"
            )
    return CutWeight(first.name, tuple(shape), first.dim, sizes, first.head_size, first.copies, first.is_table)
