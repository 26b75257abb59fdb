"""Orders of samples and the shares of ranks in them, for the check of ch03.shard_indices."""

from __future__ import annotations

import math
from typing import Any

import torch

Order = list[int]
_SHOWN = 4  # indices of a list


def order_of(i: dict[str, Any], seed: int, shuffle: bool | None = None) -> Order:
    if i["shuffle"] if shuffle is None else shuffle:
        return shuffled(list(range(i["n"])), seed)
    return list(range(i["n"]))


def whole_rounds(i: dict[str, Any], order: Order, drop_last: bool | None = None) -> Order:
    """Padded or cut to a multiple of the number of ranks."""
    n, size = int(i["n"]), int(i["num_replicas"])
    if i["drop_last"] if drop_last is None else drop_last:
        return order[: n // size * size]
    total = math.ceil(n / size) * size
    return (order * math.ceil(total / n))[:total]


def dealt(i: dict[str, Any], whole: Order) -> Order:
    return whole[i["rank"] :: i["num_replicas"]]


def block(i: dict[str, Any], order: Order, length: int) -> Order:
    return order[i["rank"] * length : (i["rank"] + 1) * length]


def shuffled(samples: Order, seed: int) -> Order:
    places = torch.randperm(len(samples), generator=torch.Generator().manual_seed(seed)).tolist()
    return [samples[place] for place in places]


def short(samples: Order) -> str:
    return f"[{', '.join(map(str, samples[:_SHOWN]))}{', ...' * (len(samples) > _SHOWN)}]"
