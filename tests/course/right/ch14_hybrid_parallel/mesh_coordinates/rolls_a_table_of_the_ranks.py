import math

import torch


def mesh_coordinates(rank, sizes, axis, step):
    names = list(reversed(sizes))
    shape = [sizes[name] for name in names]
    ranks = torch.arange(math.prod(shape)).reshape(shape)
    places = torch.unravel_index(torch.tensor(rank), tuple(shape))
    neighbours = ranks.roll(-step, names.index(axis))
    return {name: int(place) for name, place in zip(names, places, strict=True)}, int(neighbours[places])
