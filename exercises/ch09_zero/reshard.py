# ch09.reshard: edit this file, then run `dtlearn grade ch09.reshard`.
"""Load on some ranks what other ranks have saved, and read no more than is needed.

Each of S ranks saved its shards. The parameters of a unit lay in a flat vector, padded at its end to a
multiple of S, of which rank r had elements r k to (r + 1) k, where k is a shard's length. Adam's moments
lay just so. Now N ranks go on, and each wants its shards of the same vectors, padded for N.

**Given** `saved`, `num_ranks`, N, and `rank`, for which shards are wanted. There is:

- `saved.num_ranks`: S;
- `saved.units`: a dict from the name of each unit to its number of elements, without padding;
- `saved.read(r, unit, key, start, stop)`: reads elements `start` to `stop` of the vector that rank r saved
  for this unit and key, and returns them as a new float32 vector of `stop - start` elements. They count
  from the beginning of that rank's shard. The keys are `"values"`, `"exp_avg"` and `"exp_avg_sq"`; a range
  that goes beyond the shard is an error;
- `saved.step(r, unit)`: the number of steps that rank r's Adam counted for this unit. It is the same on
  all ranks that have elements of the unit. **Where a rank had padding only, Adam never stepped, and it is 0.**

**Return** a dict: for each unit a dict with `"values"`, `"exp_avg"` and `"exp_avg_sq"`, float32 vectors of
one shard's length each, the smallest that N ranks need, with zeros for padding; and `"step"`, a number:
that of the ranks that had elements, for every rank, also where it has none itself.

**Rule**: files are large. Read each element that belongs to this rank once, and no other, no padding
either. Padding in the files holds any values. Empty ranges may be read.

**Example**: a unit of 10 elements, S = 4, N = 2. The files' shards have 3 elements; new ones have 5.

| rank | reads | of the vector |
|---|---|---|
| 0 | file 0, elements 0 to 3; file 1, elements 0 to 2 | 0 1 2 and 3 4 |
| 1 | file 1, elements 2 to 3; file 2, elements 0 to 3; file 3, elements 0 to 1 | 5 and 6 7 8 and 9 |
"""

from typing import Any

import torch


def reshard(saved: Any, num_ranks: int, rank: int) -> dict[str, dict[str, Any]]:
    """Return this rank's shards of all units, with Adam's state."""
    raise NotImplementedError(
        "ch09.reshard: find what overlaps with each file's shard, read it, and pad"
    )
