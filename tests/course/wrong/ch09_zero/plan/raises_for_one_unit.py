# expect: DTL-RAISED
# says: it was called with units = [9], num_ranks = 4

from itertools import pairwise


def plan(units, num_ranks, accumulation, memory_gb, activation_bytes):
    n = num_ranks
    padded = [(u + n - 1) // n * n for u in units]
    whole = sum(padded)
    shard = whole // n
    grad = 2 * max(padded)
    gathered = 2 * max(a + b for a, b in pairwise(padded))
    one_pass = 2 * (whole - shard)
    rows = [
        [2 * whole, 2 * whole, 12 * whole, 0, 2 * one_pass],
        [2 * whole, 2 * whole, 12 * shard, 0, 2 * one_pass],
        [2 * whole, 2 * shard, 12 * shard, grad, (accumulation + 1) * one_pass],
        [2 * shard, 2 * shard, 12 * shard, grad + gathered, 3 * accumulation * one_pass],
    ]
    room = memory_gb * 10**9 - activation_bytes
    smallest = next((s for s, row in enumerate(rows) if sum(row[:4]) <= room), None)
    keys = ["weights", "gradients", "optimizer", "temporary", "sent"]
    return {"smallest": smallest, **{s: dict(zip(keys, row, strict=True)) for s, row in enumerate(rows)}}
