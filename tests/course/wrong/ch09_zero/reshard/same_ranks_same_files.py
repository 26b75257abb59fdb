# expect: DTL-DIFFICULTY
# says: with as many ranks as before

from typing import Any

import torch


def reshard(saved: Any, num_ranks: int, rank: int) -> dict[str, dict[str, Any]]:
    """Return this rank's shards of all units, with Adam's state."""
    if saved.num_ranks == num_ranks:
        return {
            u: {"step": saved.step(0, u)}
            | {k: saved.read(rank, u, k, 0, -(-n // num_ranks)) for k in ("values", "exp_avg", "exp_avg_sq")}
            for u, n in saved.units.items()
        }
    made: dict[str, dict[str, Any]] = {}
    for unit, size in saved.units.items():
        old, new = -(-size // saved.num_ranks), -(-size // num_ranks)
        first, end = min(rank * new, size), min((rank + 1) * new, size)
        made[unit] = {"step": saved.step(0, unit)}
        for key in ("values", "exp_avg", "exp_avg_sq"):
            shard, place = torch.zeros(new), 0
            for file in range(saved.num_ranks):
                start, stop = max(first, file * old), min(end, (file + 1) * old)
                if start < stop:
                    part = saved.read(file, unit, key, start - file * old, stop - file * old)
                    shard[place : place + len(part)] = part
                    place += len(part)
            made[unit][key] = shard
    return made
