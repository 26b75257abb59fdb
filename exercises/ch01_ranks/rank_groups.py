# ch01.rank_groups: edit this file, then run `dtlearn grade ch01.rank_groups`.
"""Cut the ranks of a job into groups, in two ways at once.

Large jobs use two kinds of groups. A *tensor-parallel* (tp) group holds ranks that compute one
copy of the model together; they talk all the time, so they are neighbours: consecutive ranks. A
*data-parallel* (dp) group holds the ranks with the same place in different copies; they average
gradients. Every rank is in exactly one group of each kind.

Comes in: `world_size`, and `tp`, the number of ranks in a tp group.

Goes out: {"tp": [...], "dp": [...]}, each a list of groups, each group a list of ranks from low
to high; the groups ordered by their first rank.

Example: 6 ranks, tp = 2
    {"tp": [[0, 1], [2, 3], [4, 5]], "dp": [[0, 2, 4], [1, 3, 5]]}

Rules: no communication; this is arithmetic, and every rank must get the same answer. If `tp`
does not divide `world_size`, raise ValueError: a job that drops ranks without a word is worse
than one that does not start.
"""


def rank_groups(world_size: int, tp: int) -> dict[str, list[list[int]]]:
    """The tensor-parallel and the data-parallel groups of a job."""
    raise NotImplementedError(
        "ch01.rank_groups: refuse sizes that do not fit, then list the groups of both "
        "kinds"
    )
