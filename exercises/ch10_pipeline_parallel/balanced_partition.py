# ch10.balanced_partition: edit this file, then run `dtlearn grade ch10.balanced_partition`.
"""Cut a model into stages so that the slowest stage is as fast as it can be.

A model is a chain of links: the embedding, the blocks, the head. A stage is a consecutive part of it,
and every stage has at least one link. A pipeline is as fast as its **slowest stage**, the one whose
links cost most together.

**Given**

- `costs`: what each link costs, in the order of the model, the embedding first and the head last:
  numbers of 0 or more, such as milliseconds, not always whole. There may be 100 of them, and 16 stages:
  more ways to cut than can be tried one by one;
- `num_stages`, S, 1 or more.

**Return** the boundaries: a list of S + 1 whole numbers, the first 0, the last the number of links.
Stage s has the links `costs[boundaries[s] : boundaries[s + 1]]`. Where several cuts are equally good,
return any of them.

**Raise** `ValueError` if there are more stages than links.

**Example**: `costs` [4, 1, 1, 1, 1, 1, 1, 6], an embedding, six blocks, a head, for 3 stages:

| boundaries | stages cost | slowest |
|---|---|---|
| [0, 3, 6, 8], nearly equal numbers of links | 6, 3, 7 | 7 |
| [0, 2, 7, 8] | 5, 5, 6 | 6, the least possible |
"""


def balanced_partition(costs: list[float], num_stages: int) -> list[int]:
    """Return the boundaries of the stages whose slowest is fastest."""
    raise NotImplementedError(
        "ch10.balanced_partition: refuse too many stages; find the cut whose slowest "
        "stage costs least"
    )
