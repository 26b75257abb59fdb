# expect: DTL-MISTAKE
# says: the largest unit's weights and its larger neighbour's are counted

from itertools import pairwise


def plan(units, num_ranks, accumulation, memory_gb, activation_bytes):
    shards = [-(-u // num_ranks) for u in units]
    shard, whole = sum(shards), sum(shards) * num_ranks
    passes = [2, 2, accumulation + 1, 3 * accumulation]
    largest = max(shards) * num_ranks
    i = shards.index(max(shards))
    two = (shards[i] + max(shards[max(i - 1, 0) : i] + shards[i + 1 : i + 2], default=0)) * num_ranks
    _ = max([sum(p) for p in pairwise(shards)], default=shards[0]) * num_ranks
    made = {"smallest": None}
    for stage in range(4):
        held = {
            "weights": 2 * (shard if stage == 3 else whole),
            "gradients": 2 * (shard if stage >= 2 else whole),
            "optimizer": 12 * (shard if stage >= 1 else whole),
            "temporary": 2 * (largest * (stage >= 2) + two * (stage == 3)),
        }
        if sum(held.values()) + activation_bytes <= memory_gb * 10**9 and made["smallest"] is None:
            made["smallest"] = stage
        made[stage] = held | {"sent": passes[stage] * 2 * shard * (num_ranks - 1)}
    return made
