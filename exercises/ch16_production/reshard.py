# ch16.reshard: edit this file, then run `dtlearn grade ch16.reshard`.
"""Find what to read of a tensor that was saved in some blocks and is wanted in another.

A checkpoint holds a tensor in blocks, one a file: rows, columns, or a grid of both, as the ranks had it that saved.
Now other ranks go on. Each works out what its own block has in common with each saved one, and reads just that.

**Given**

- `saved`, a list of `(file, start, shape)`. The file holds the block of the whole tensor that begins at element
  `start`, a number for each dim, and has `shape`;
- `start` and `shape` of the block that this rank wants, in the same way.

A block may be in several files, as the copies of data parallelism are: read it from one of them. But for such copies,
no element is in two files. A block may have no elements: a length of 0 in some dim. Tensors have any number of dims,
also none: then `start` and `shape` are `()`.

**Return** the reads, a list of `(file, source, target)`, in any order. Both are tuples of slices, one for each dim, so
that `wanted[target] = block[source]`, where `block` is what the file holds. Slices count from the beginning of their
own block, not of the whole tensor.

**Example**: 4 x 4 elements, saved as rows by two ranks. This rank wants `start = (1, 2)`, `shape = (3, 2)`.

| `saved` | what is in it | `source` | `target` |
|---|---|---|---|
| `("rank0", (0, 0), (2, 4))` | rows 0 and 1 | `1:2, 2:4` | `0:1, 0:2` |
| `("rank1", (2, 0), (2, 4))` | rows 2 and 3 | `0:2, 2:4` | `1:3, 0:2` |

**Rules**

- Files are large: each element that is wanted is read once, and no other. No read is empty.
- If some of the wanted elements are in no file, raise a `ValueError`. Its message has the number of elements that are
  wanted, and how many of these were found. A checkpoint with a hole must not become a model with random numbers.
"""

import math

Block = tuple[tuple[int, ...], tuple[int, ...]]


def reshard(
    saved: list[tuple[str, tuple[int, ...], tuple[int, ...]]],
    start: tuple[int, ...],
    shape: tuple[int, ...],
) -> list[tuple[str, tuple[slice, ...], tuple[slice, ...]]]:
    """Return what to read from which file, and where it goes."""
    raise NotImplementedError(
        "ch16.reshard: cut the wanted block with each saved one, and count what was "
        "found"
    )
