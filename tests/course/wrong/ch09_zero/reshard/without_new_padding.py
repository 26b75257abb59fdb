# expect: DTL-VALUE-SHARD-PADDING
# says: there is no padding

import torch


def reshard(saved, num_ranks, rank):
    made = {}
    for unit, size in saved.units.items():
        old = (size + saved.num_ranks - 1) // saved.num_ranks
        new = (size + num_ranks - 1) // num_ranks
        wanted = range(rank * new, min((rank + 1) * new, size))
        step = max(saved.step(r, unit) for r in range(saved.num_ranks))
        made[unit] = {"step": step}
        for key in ("values", "exp_avg", "exp_avg_sq"):
            parts = []
            place = wanted.start
            while place < wanted.stop:
                file, offset = divmod(place, old)
                stop = min(old, offset + wanted.stop - place)
                parts.append(saved.read(file, unit, key, offset, stop))
                place += stop - offset
            made[unit][key] = torch.cat([torch.zeros(0), *parts])
    return made
