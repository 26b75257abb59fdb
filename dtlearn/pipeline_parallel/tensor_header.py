"""What a receiver must know before it can receive a tensor: shape, dtype and whether a gradient is to come back."""

from __future__ import annotations

import torch

MAX_DIMS = 8
HEADER_LENGTH = 3 + MAX_DIMS  # number of dimensions, dtype, requires a gradient, sizes
DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)


def pack_header(tensor: torch.Tensor) -> torch.Tensor:
    """The header of a tensor, (HEADER_LENGTH,) int64, on its device.

    Raises:
        ValueError: more than 8 dimensions, or a dtype that is not in `DTYPES`.
    """
    if tensor.dim() > MAX_DIMS or tensor.dtype not in DTYPES:
        raise ValueError(
            f"a stage passes on a tensor of at most {MAX_DIMS} dimensions and of a common dtype; got "
            f"{tuple(tensor.shape)}, {tensor.dtype}"
        )
    sizes = [*tensor.shape, *[0] * (MAX_DIMS - tensor.dim())]
    words = [tensor.dim(), DTYPES.index(tensor.dtype), int(tensor.requires_grad), *sizes]
    return torch.tensor(words, device=tensor.device)


def empty_header(device: torch.device | str = "cpu") -> torch.Tensor:
    """Room to receive a header, (HEADER_LENGTH,) int64."""
    return torch.empty(HEADER_LENGTH, dtype=torch.int64, device=device)


def room_for(header: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """An empty tensor as the header says, on the header's device, and whether a gradient is to come back."""
    num_dims, dtype, requires_grad, *sizes = header.tolist()
    tensor = torch.empty(sizes[:num_dims], dtype=DTYPES[dtype], device=header.device)
    return tensor, bool(requires_grad)
