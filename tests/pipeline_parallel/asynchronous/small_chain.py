"""A chain of small stages for digits, and batches: the same in every process."""

from itertools import pairwise

import torch
from torch import nn

from dtlearn.models import load_digits


def make_stages(num_stages):
    torch.manual_seed(0)
    sizes = [64, *[16] * (num_stages - 1), 10]
    layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
    return [nn.Sequential(layer, nn.Tanh()) for layer in layers[:-1]] + [nn.Sequential(layers[-1])]


def make_batches(num_batches, size=8):
    digits, generator = load_digits(), torch.Generator().manual_seed(1)
    rows = [torch.randint(len(digits.train_x), (size,), generator=generator) for _ in range(num_batches)]
    return [(digits.train_x[row], digits.train_y[row]) for row in rows]  # (B, 64), (B,)
