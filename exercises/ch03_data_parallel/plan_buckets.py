# ch03.plan_buckets: edit this file, then run `dtlearn grade ch03.plan_buckets`.
"""Put gradients into buckets, so that few all-reduces are made, and early ones.

One all-reduce for each parameter pays the latency again and again; a single one for all can only
begin when backward has ended. DistributedDataParallel goes between: it fills buckets with gradients
as they become ready, and starts the all-reduce of a bucket while backward goes on.

Comes in: `nbytes` and `dtypes`, the size in bytes and the dtype of each parameter, in the order of
registration (that of `model.parameters()`); `bucket_cap` and `first_bucket_cap`, in bytes.

Goes out: a list of buckets, each a list of parameter indices. Every index is in one bucket.

    - Backward comes to the last parameter first: walk from the last index to the first.
    - A bucket holds one dtype, because it is one tensor. There is one open bucket for each dtype,
      and a parameter goes into that of its own.
    - A bucket is closed as soon as it holds at least as many bytes as its cap. So it may exceed
      the cap, by its last parameter. What is still open at the end is a bucket as well.
    - The cap of the first bucket of each dtype is `first_bucket_cap`, a small one: then the first
      all-reduce begins early. For all others it is `bucket_cap`.
    - In a bucket: the indices in the order in which they came in. The buckets: in the order in
      which they become ready, which is when their last gradient has come.

Example: nbytes = [4, 4, 4, 4, 4], all "float32", bucket_cap = 8, first_bucket_cap = 4
    [[4], [3, 2], [1, 0]]

Example: the same sizes, dtypes = ["float32", "bfloat16", "float32", "float32", "float32"], both caps 8
    [[4, 3], [1], [2, 0]]     the bucket [1] is ready before [2, 0], although it was opened later

Rule: no communication; this is a plan, the same on every rank.
"""

from collections.abc import Sequence


def plan_buckets(
    nbytes: Sequence[int], dtypes: Sequence[str], *, bucket_cap: int, first_bucket_cap: int
) -> list[list[int]]:
    """The buckets as lists of parameter indices, in the order in which they become ready."""
    raise NotImplementedError(
        "ch03.plan_buckets: fill the open bucket of each dtype, and close it at its "
        "cap"
    )
