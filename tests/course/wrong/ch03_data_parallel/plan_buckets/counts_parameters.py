# expect: DTL-MISTAKE
# says: each parameter counts as 4 bytes

from collections.abc import Sequence


def plan_buckets(
    nbytes: Sequence[int], dtypes: Sequence[str], *, bucket_cap: int, first_bucket_cap: int
) -> list[list[int]]:
    """The buckets as lists of parameter indices, in the order in which they become ready."""
    buckets: list[list[int]] = []
    open_buckets: dict[str, list[int]] = {}
    caps = dict.fromkeys(dtypes, first_bucket_cap)
    for index in reversed(range(len(nbytes))):
        dtype = dtypes[index]
        bucket = open_buckets.setdefault(dtype, [])
        bucket.append(index)
        if 4 * len(bucket) >= caps[dtype]:
            buckets.append(open_buckets.pop(dtype))
            caps[dtype] = bucket_cap
    buckets += open_buckets.values()
    return sorted(buckets, key=lambda bucket: bucket[-1], reverse=True)
