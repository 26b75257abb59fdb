"""The pictures of every way: each block is where the notation says it is, and the blocks make the whole product."""

from itertools import pairwise

import pytest
import torch

from dtlearn.tensor_parallel.notation.product_case import product_case
from dtlearn.tensor_parallel.notation.product_steps import product_steps
from tests.tensor_parallel.notation.test_product_case import PRODUCTS

WAYS = [(a, b, way.name) for a, b in PRODUCTS for way in product_case(a, b).ways]


def blocks_of(array, rank, t):
    rows, columns = ([rank] if axis else range(t) for axis in array.axes)
    return {(row, column) for row in rows for column in columns}


@pytest.mark.parametrize("t", [1, 2, 3])
@pytest.mark.parametrize(("a", "b", "way"), WAYS)
def test_blocks_are_where_the_notation_says(a, b, way, t):
    case = product_case(a, b)
    frames = product_steps(case, t, way=way)
    assert frames[0].op == "start" and set(frames[0].arrays) == {"A", "B"}
    for frame in frames:
        for name, array in frame.arrays.items():
            for rank, held in enumerate(frame.held):
                assert set(held[name]) == blocks_of(array, rank, t), (frame.op, str(array))
    last = frames[-1]
    assert last.arrays["C"] == case.way(way).result
    for rank, held in enumerate(last.held):
        terms = {rank} if last.arrays["C"].partial else set(range(t))
        assert all(have == terms for have in held["C"].values())


@pytest.mark.parametrize(("a", "b", "way"), WAYS)
def test_played_with_numbers(a, b, way):
    """Two ranks that do what the pictures say, with the blocks that they hold, have the product."""
    t = 2
    A, B = torch.arange(16.0).view(4, 4), torch.arange(16.0).view(4, 4) - 5
    block = {name: lambda i, j, X=X: X[2 * i : 2 * i + 2, 2 * j : 2 * j + 2] for name, X in (("A", A), ("B", B))}
    frames = product_steps(product_case(a, b), t, way=way)
    made = [{} for _ in range(t)]  # of each rank, the block products that it made
    for before, frame in pairwise(frames):
        for rank, multiplied in enumerate(frame.multiplied):
            assert (multiplied is not None) == (frame.op == "product")
            if multiplied:
                i, j, k = multiplied
                assert (i, j) in before.held[rank]["A"] and (j, k) in before.held[rank]["B"]
                made[rank][i, j, k] = block["A"](i, j) @ block["B"](j, k)
                assert frame.arrived[rank] == {("C", (i, k))}
    everywhere = {key: value for of_rank in made for key, value in of_rank.items()}
    for rank, held in enumerate(frames[-1].held):
        for (i, k), terms in held["C"].items():
            own = made[rank] if frames[-1].op == "product" else everywhere
            total = sum(own[i, j, k] for j in terms)
            whole = (A @ B)[2 * i : 2 * i + 2, 2 * k : 2 * k + 2]
            assert torch.equal(total, whole) == (terms == {0, 1})


def test_what_arrives():
    frames = product_steps(product_case("A[I, J_t]", "B[J, K_t]"), 2)
    assert [frame.op for frame in frames] == ["start", "all_gather", *["product"] * 4]
    assert frames[0].arrived == (frozenset(), frozenset())
    assert frames[1].arrived == ({("A", (0, 1)), ("A", (1, 1))}, {("A", (0, 0)), ("A", (1, 0))})
    assert frames[1].multiplied == (None, None)
    assert [frame.multiplied[0] for frame in frames[2:]] == [(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0)]
    reduced = product_steps(product_case("A[I, J_t]", "B[J_t, K]"), 2, way="reduce-scatter along I")[-1]
    assert reduced.op == "reduce_scatter" and reduced.arrived[1] == {("C", (1, 0)), ("C", (1, 1))}
    sliced = product_steps(product_case("A[I, J]", "B[J_t, K]"), 2, way="slice A")[1]
    assert sliced.op == "slice" and sliced.arrived == (frozenset(), frozenset()), "nothing new"


def test_the_work_of_each_way():
    """As many block products as a rank makes: a t-th of the t^3, or all of them where nothing is divided."""
    number = {}
    for a, b, way in WAYS:
        number[a, b, way] = sum(frame.op == "product" for frame in product_steps(product_case(a, b), 3, way=way))
    whole = {key for key, products in number.items() if products == 27}
    assert whole == {
        ("A[I, J]", "B[J, K]", "no communication"),
        ("A[I, J_t]", "B[J, K]", "gather A"),
        ("A[I, J]", "B[J_t, K]", "gather B"),
    }
    assert {products for key, products in number.items() if key not in whole} == {9}


def test_bad_input():
    case = product_case("A[I, J]", "B[J, K]")
    with pytest.raises(ValueError, match="num_ranks must be 1 or more; got 0"):
        product_steps(case, 0)
    for a, b in (("x[B, T, C]", "W[C, F]"), ("A[J, I]", "B[J, K]")):
        with pytest.raises(ValueError, match=r"the steps are for A\[I, J\] and B\[J, K\]; got"):
            product_steps(product_case(a, b), 2)
