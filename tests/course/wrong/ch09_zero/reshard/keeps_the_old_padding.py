# expect: DTL-MISTAKE
# says: the padding of the files is taken over

import torch


def reshard(saved, num_ranks, rank):
    made = {}
    for unit, size in saved.units.items():
        old = -(-size // saved.num_ranks)
        new = -(-size // num_ranks)
        made[unit] = {"step": saved.step(0, unit)}
        for key in ("values", "exp_avg", "exp_avg_sq"):
            whole = torch.cat([saved.read(r, unit, key, 0, old) for r in range(saved.num_ranks)])
            part = whole[rank * new : (rank + 1) * new]
            made[unit][key] = torch.cat([part, torch.zeros(new - len(part))])
    return made
