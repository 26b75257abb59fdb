# ch01.rank_groups: edit this file, then run `dtlearn grade ch01.rank_groups`.
"""List the groups of ranks in a job that uses two kinds of groups at once.

- A **tensor-parallel** (tp) group has `tp` ranks that compute one copy of the model together. They communicate most, so
  they are consecutive ranks.
- A **data-parallel** (dp) group has the ranks that hold the same part of the model in different copies. They average
  gradients.

Every rank is in exactly one group of each kind. Return `{"tp": [...], "dp": [...]}`: each value is a list of groups,
each group a list of ranks in rising order, and the groups are ordered by their first rank.

Example with `world_size=6` and `tp=2`, one copy of the model in each row:

| | first part | second part |
|---|---|---|
| copy 0 | rank 0 | rank 1 |
| copy 1 | rank 2 | rank 3 |
| copy 2 | rank 4 | rank 5 |

The tp groups are the rows, the dp groups the columns: `{"tp": [[0, 1], [2, 3], [4, 5]], "dp": [[0, 2, 4], [1, 3, 5]]}`.

- No communication: every rank computes the same answer.
- If `tp` does not divide `world_size`, raise `ValueError`: a job must not drop ranks silently.
"""


def rank_groups(world_size: int, tp: int) -> dict[str, list[list[int]]]:
    """The tensor-parallel and the data-parallel groups of a job."""
    raise NotImplementedError(
        "ch01.rank_groups: refuse sizes that do not fit, then list the groups of both "
        "kinds"
    )
