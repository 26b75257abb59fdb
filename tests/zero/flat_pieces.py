"""A parameter list cut by hand, so that what works on pieces is tested without what makes them."""

import torch
from torch import nn

SHAPES = {"a": (3, 5), "b": (4,), "scale": (), "none": (0, 2), "c": (2, 3, 2), "idle": (3,)}  # 35 elements


def whole(seed=0, dtype=torch.float64, shapes=SHAPES):
    """Parameters under their names, with gradients, but for `idle`."""
    g = torch.Generator().manual_seed(seed)
    made = {name: nn.Parameter(torch.randn(shape, generator=g).to(dtype)) for name, shape in shapes.items()}
    for name, parameter in made.items():
        if name != "idle":
            parameter.grad = torch.randn(parameter.shape, generator=g).to(dtype)
    return made


def spans(num_ranks, rank, shapes=SHAPES):
    """What a rank has of each parameter, (start, stop) in its flat elements: flat, padded at the end."""
    sizes = [torch.Size(shape).numel() for shape in shapes.values()]
    shard = -(-sum(sizes) // num_ranks)
    first, found = 0, []
    for size in sizes:
        cut = [min(max(edge * shard - first, 0), size) for edge in (rank, rank + 1)]
        found.append((cut[0], cut[1]))
        first += size
    return dict(zip(shapes, found, strict=True))


def pieces(parameters, num_ranks, rank):
    """A rank's part of each, 1-D, with its part of the gradient."""
    made = {}
    for (name, parameter), (start, stop) in zip(
        parameters.items(), spans(num_ranks, rank, {n: p.shape for n, p in parameters.items()}).values(), strict=True
    ):
        made[name] = nn.Parameter(parameter.detach().flatten()[start:stop].clone())
        if parameter.grad is not None:
            made[name].grad = parameter.grad.flatten()[start:stop].clone()
    return made


def put_together(per_rank, shapes=SHAPES):
    """The whole tensors again, from each rank's {name: 1-D}."""
    names = per_rank[0]
    return {name: torch.cat([own[name] for own in per_rank]).reshape(shapes[name]) for name in names}
