"""What a rank keeps for each parameter from step to step, and finds again when buckets have changed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

Updates = list[tuple[torch.Tensor, torch.Tensor]]  # what is kept, and what is to be kept in its place


class Residuals:
    """A tensor for each parameter, flat and in float32 at least; those of a bucket lie one after the other.

    torch's DDP plans its buckets anew after the first step: what was kept by bucket would then be added to other
    parameters, or lost.

    **Memory**: 4 bytes a parameter (8 for float64).

    Attributes:
        parts: what is kept, by parameter: (elements of the parameter,).
    """

    def __init__(self) -> None:
        self.parts: dict[torch.Tensor, torch.Tensor] = {}
        self._wholes: dict[tuple[int, ...], torch.Tensor] = {}  # by bucket, that is, the ids of its parameters

    def of(self, parameters: Sequence[torch.Tensor], gradient: torch.Tensor) -> torch.Tensor:
        """What is kept for a bucket, as one flat tensor, (n,), to be read and written; zeros at first.

        Args:
            parameters: of the bucket, in order.
            gradient: (n,), theirs, for device and dtype.

        Raises:
            ValueError: the gradient has another number of elements than the parameters.
        """
        bucket = tuple(map(id, parameters))
        if bucket in self._wholes and len(self._wholes[bucket]) == gradient.numel():
            return self._wholes[bucket]
        sizes = [p.numel() for p in parameters]
        if gradient.shape != (sum(sizes),):
            raise ValueError(
                f"expected the gradient of {len(sizes)} parameters as one flat tensor of {sum(sizes)} elements; got "
                f"shape {tuple(gradient.shape)}"
            )
        dtype = torch.promote_types(gradient.dtype, torch.float32)
        whole = torch.zeros(sum(sizes), dtype=dtype, device=gradient.device)
        for parameter, part in zip(parameters, whole.split(sizes), strict=True):
            if (before := self.parts.get(parameter)) is not None:
                part.copy_(before)
            self.parts[parameter] = part
        now = set(bucket)
        self._wholes = {ids: other for ids, other in self._wholes.items() if not now & set(ids)}
        self._wholes[bucket] = whole
        return whole

    def state_dict(self, model: nn.Module) -> dict[str, torch.Tensor]:
        """Copies, by the names that the parameters have in `model`; of those for which something was ever kept."""
        return {name: self.parts[p].clone() for name, p in model.named_parameters() if p in self.parts}

    def load_state_dict(self, state: dict[str, torch.Tensor], model: nn.Module) -> None:
        """Keep copies of these tensors, on the devices of the parameters, and nothing else.

        Raises:
            ValueError: a name or a size is not the model's.
        """
        parameters = dict(model.named_parameters())
        for name, kept in state.items():
            if name not in parameters or kept.numel() != parameters[name].numel():
                there = f"has {parameters[name].numel()}" if name in parameters else "does not exist"
                raise ValueError(
                    f"the state is of another model: it keeps {kept.numel()} elements for {name}, which {there} here. "
                    "Give the model that state_dict was given, bare or wrapped as it was then"
                )
        self.parts = {parameters[name]: kept.to(parameters[name].device, copy=True) for name, kept in state.items()}
        self._wholes = {}


def all_finite(tensor: torch.Tensor) -> torch.Tensor:
    """Whether there is no NaN and no infinity in it: (), bool, on its device, since to ask would be to wait."""
    if not tensor.numel():
        return torch.ones((), dtype=torch.bool, device=tensor.device)
    low, high = tensor.aminmax()  # one pass; NaN goes through both
    return low.isfinite() & high.isfinite()


def keep_if(finite: torch.Tensor, updates: Updates) -> None:
    """Write over what is kept if `finite`, (), is true."""
    for kept, left in updates:
        torch.where(finite, left, kept, out=kept)
