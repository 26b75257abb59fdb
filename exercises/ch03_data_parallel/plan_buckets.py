# ch03.plan_buckets: edit this file, then run `dtlearn grade ch03.plan_buckets`.
"""Group gradients into buckets: few all-reduces, and early ones.

One all-reduce per parameter pays the latency many times; a single one for all can start only after
backward.

**Given** `nbytes` and `dtypes`, the size and dtype of each parameter in the order of
`model.parameters()`; and the caps `bucket_cap` and `first_bucket_cap`, in bytes.

**Return** a list of buckets, each a list of parameter indices. Every index is in exactly one
bucket.

1. Walk from the last index to the first: backward computes the last parameter's gradient first.
2. A bucket holds one dtype, because it is one tensor. Keep one open bucket per dtype.
3. Close a bucket as soon as it holds at least as many bytes as its cap. So it may exceed the cap by
   its last parameter. A bucket that is still open at the end counts too.
4. The cap of the first bucket of each dtype is `first_bucket_cap`, of all others `bucket_cap`.
5. Inside a bucket, keep the order in which the indices came. Order the buckets by when their last
   gradient is ready.

**Examples**: five parameters of 4 bytes each.

| dtypes of 0 ... 4 | caps (first, other) | buckets |
|---|---|---|
| all float32 | 4, 8 | `[[4], [3, 2], [1, 0]]` |
| float32, bfloat16, float32, float32, float32 | 8, 8 | `[[4, 3], [1], [2, 0]]` |

In the second, bucket `[1]` was opened after `[2, 0]`, but is ready before it.

**Rule**: no communication. Every rank computes the same plan.
"""

from collections.abc import Sequence


def plan_buckets(
    nbytes: Sequence[int],
    dtypes: Sequence[str],
    *,
    bucket_cap: int,
    first_bucket_cap: int,
) -> list[list[int]]:
    """Return buckets of parameter indices, in the order in which they become ready."""
    raise NotImplementedError(
        "ch03.plan_buckets: fill the open bucket of each dtype, and close it at its "
        "cap"
    )
