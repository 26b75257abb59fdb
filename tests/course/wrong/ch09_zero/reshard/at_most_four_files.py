# expect: DTL-DIFFICULTY
# says: the elements of a shard may lie in any number of files

from typing import Any

import torch


def reshard(saved: Any, num_ranks: int, rank: int) -> dict[str, dict[str, Any]]:
    """Return this rank's shards of all units, with Adam's state."""
    made: dict[str, dict[str, Any]] = {}
    for unit, size in saved.units.items():
        old, new = -(-size // saved.num_ranks), -(-size // num_ranks)
        first, end = min(rank * new, size), min((rank + 1) * new, size)
        made[unit] = {"step": saved.step(0, unit)}
        for key in ("values", "exp_avg", "exp_avg_sq"):
            shard, place = torch.zeros(new), 0
            for file in range(first // old, min(first // old + 4, saved.num_ranks)):
                start, stop = max(first, file * old), min(end, (file + 1) * old)
                if start < stop:
                    part = saved.read(file, unit, key, start - file * old, stop - file * old)
                    shard[place : place + len(part)] = part
                    place += len(part)
            made[unit][key] = shard
    return made
