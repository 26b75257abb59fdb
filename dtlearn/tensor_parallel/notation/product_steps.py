"""A product block by block, as data for pictures: which rank holds which block after each step.

Each dim is cut into t blocks, whether it is divided or not. Rank r has block row r of A[I_t, J], and of A[I, J] all
blocks. A block (i, k) of the product is a sum over j of t products A(i, j) B(j, k); a rank holds some of these terms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product as pairs

from .product_case import ProductCase, ProductStep
from .sharded import Sharded

BlockIndex = tuple[int, int]  # row and column of blocks
# The blocks of each array that a rank holds, each with the terms in it: in the product the numbers j, in others none.
HeldBlocks = Mapping[str, Mapping[BlockIndex, frozenset[int]]]


@dataclass(frozen=True)
class ProductFrame:
    """One picture.

    Attributes:
        op: "start", or what was done: "slice", "all_gather", "product", "all_reduce" or "reduce_scatter".
        arrays: what each array is now, by name, in the notation. The product is among them from the last local
            product on.
        held: by rank.
        multiplied: by rank, the (i, j, k) of the block product just made; None: none.
        arrived: by rank, the (array, block) that the rank did not hold in the frame before, or not with these terms.
    """

    op: str
    arrays: Mapping[str, Sharded]
    held: tuple[HeldBlocks, ...]
    multiplied: tuple[tuple[int, int, int] | None, ...]
    arrived: tuple[frozenset[tuple[str, BlockIndex]], ...]


def product_steps(case: ProductCase, num_ranks: int, *, way: str | None = None) -> tuple[ProductFrame, ...]:
    """All pictures of a product: the arrays as they are given, then each collective, and each local block product.

    Args:
        case: of `product_case`, of arrays of two dims, A[I, J] and B[J, K] in this order.
        num_ranks: t; dims are cut into t blocks.
        way: name of one of the case's ways; None: the usual one.

    Raises:
        ValueError: arrays that are no matrices in this order, no ranks, or a name that the case does not have.
    """
    a, b = case.a, case.b
    if len(a.dims) != 2 or len(b.dims) != 2 or a.dims[1] != case.contracted or b.dims[0] != case.contracted:
        raise ValueError(f"the steps are for A[I, J] and B[J, K]; got {a} and {b}")
    if num_ranks < 1:
        raise ValueError(f"num_ranks must be 1 or more; got {num_ranks}")
    return tuple(_frames(case, num_ranks, way))


def _frames(case: ProductCase, t: int, way: str | None) -> Iterator[ProductFrame]:
    arrays = {case.a.name: case.a, case.b.name: case.b}
    held = [{array.name: _blocks(array, rank, t) for array in (case.a, case.b)} for rank in range(t)]
    yield _frame("start", arrays, [], held)
    for step in case.way(way).steps:
        if step.op == "product":
            yield from _local_products(step, case, arrays, held)
        else:
            before = _copy(held)
            for rank in range(t):
                held[rank][step.after.name] = _after(step, rank, t, before)
            arrays = {**arrays, step.after.name: step.after}
            yield _frame(step.op, arrays, before, held)


def _local_products(
    step: ProductStep,
    case: ProductCase,
    arrays: dict[str, Sharded],
    held: list[dict[str, dict[BlockIndex, frozenset[int]]]],
) -> Iterator[ProductFrame]:
    """Each rank makes one block product a frame; all have as many."""
    orders = [
        [
            (i, j, k)
            for (i, j), (row, k) in pairs(sorted(of_rank[case.a.name]), sorted(of_rank[case.b.name]))
            if j == row
        ]
        for of_rank in held
    ]
    for of_rank in held:
        of_rank[step.after.name] = {}
    for number, multiplied in enumerate(zip(*(sorted(order, key=_by_block) for order in orders), strict=True), 1):
        before = _copy(held)
        for of_rank, (i, j, k) in zip(held, multiplied, strict=True):
            blocks = of_rank[step.after.name]
            blocks[i, k] = blocks.get((i, k), frozenset()) | {j}
        if number == len(orders[0]):
            arrays[step.after.name] = step.after
        yield _frame("product", arrays, before, held, multiplied)


def _by_block(multiplied: tuple[int, int, int]) -> tuple[int, int, int]:
    i, j, k = multiplied
    return i, k, j  # one block of the product after the other


def _after(
    step: ProductStep, rank: int, t: int, before: list[dict[str, dict[BlockIndex, frozenset[int]]]]
) -> dict[BlockIndex, frozenset[int]]:
    """Return the blocks that a rank holds of an array after it was gathered, sliced or summed: those that ranks had."""
    name = step.after.name
    blocks = _blocks(step.after, rank, t)
    return {
        block: frozenset().union(*(of_rank[name].get(block, frozenset()) for of_rank in before)) for block in blocks
    }


def _blocks(array: Sharded, rank: int, t: int) -> dict[BlockIndex, frozenset[int]]:
    rows, columns = ([rank] if axis else range(t) for axis in array.axes)
    return {block: frozenset() for block in pairs(rows, columns)}


def _copy(
    held: list[dict[str, dict[BlockIndex, frozenset[int]]]],
) -> list[dict[str, dict[BlockIndex, frozenset[int]]]]:
    return [{name: dict(blocks) for name, blocks in of_rank.items()} for of_rank in held]


def _frame(
    op: str,
    arrays: Mapping[str, Sharded],
    before: list[dict[str, dict[BlockIndex, frozenset[int]]]],
    held: list[dict[str, dict[BlockIndex, frozenset[int]]]],
    multiplied: tuple[tuple[int, int, int], ...] = (),
) -> ProductFrame:
    arrived = [
        frozenset(
            (name, block)
            for name, blocks in of_rank.items()
            for block, terms in blocks.items()
            if before and before[rank].get(name, {}).get(block) != terms
        )
        for rank, of_rank in enumerate(held)
    ]
    return ProductFrame(op, dict(arrays), tuple(_copy(held)), multiplied or (None,) * len(held), tuple(arrived))
