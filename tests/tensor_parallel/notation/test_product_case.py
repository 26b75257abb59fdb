"""All nine products of two matrices over one axis: which case, which ways, what is sent."""

import pytest

from dtlearn.tensor_parallel.notation.product_case import product_case

SIZES = {"I": 4, "J": 8, "K": 16}
SENT_A, SENT_B, SENT_C = (elements * 3 / 4 for elements in (4 * 8, 8 * 16, 4 * 16))  # once around a ring of four
# Case, and of each way what comes out and what each of four ranks sends.
PRODUCTS = {
    ("A[I, J]", "B[J, K]"): (1, {"no communication": ("C[I, K]", 0)}),
    ("A[I_t, J]", "B[J, K]"): (1, {"no communication": ("C[I_t, K]", 0)}),
    ("A[I, J]", "B[J, K_t]"): (1, {"no communication": ("C[I, K_t]", 0)}),
    ("A[I, J_t]", "B[J, K]"): (2, {"gather A": ("C[I, K]", SENT_A), "slice B": ("C[I, K]", 2 * SENT_C)}),
    ("A[I, J]", "B[J_t, K]"): (2, {"gather B": ("C[I, K]", SENT_B), "slice A": ("C[I, K]", 2 * SENT_C)}),
    ("A[I_t, J]", "B[J_t, K]"): (2, {"gather B": ("C[I_t, K]", SENT_B)}),
    ("A[I, J_t]", "B[J, K_t]"): (2, {"gather A": ("C[I, K_t]", SENT_A)}),
    ("A[I, J_t]", "B[J_t, K]"): (
        3,
        {
            "all-reduce": ("C[I, K]", 2 * SENT_C),
            "reduce-scatter along I": ("C[I_t, K]", SENT_C),
            "reduce-scatter along K": ("C[I, K_t]", SENT_C),
            "no reduction yet": ("C[I, K] {U_t}", 0),
        },
    ),
    ("A[I_t, J]", "B[J, K_t]"): (4, {"gather B": ("C[I_t, K]", SENT_B), "gather A": ("C[I, K_t]", SENT_A)}),
}


@pytest.mark.parametrize("arrays", PRODUCTS)
def test_case_and_ways(arrays):
    case = product_case(*arrays)
    number, ways = PRODUCTS[arrays]
    assert case.number == number and case.contracted == "J"
    assert {way.name: (str(way.result), way.sent_elements(SIZES, 4)) for way in case.ways} == ways
    assert case.axis == ("t" if any("_t" in array for array in arrays) else "")
    assert case.way() == case.ways[0] and all(case.way(way.name) == way for way in case.ways)
    assert all(way.sent_elements(SIZES, 1) == 0 for way in case.ways)


def test_every_product_of_matrices_is_there():
    assert len(PRODUCTS) == 3 * 3


def test_the_two_layers_of_a_feed_forward_network():
    up = product_case("x[B, T, C]", "W[C, F_t]", "h")
    down = product_case(up.way().result, "V[F_t, C]", "y")
    assert (up.number, str(up.way().result)) == (1, "h[B, T, F_t]")
    assert (down.number, [str(step) for step in down.way().steps]) == (
        3,
        ["y[B, T, C] {U_t} = product", "y[B, T, C] = all_reduce y[B, T, C] {U_t}"],
    )
    tokens = down.way("reduce-scatter along T")
    assert str(tokens.result) == "y[B, T_t, C]" and tokens.steps[-1].dim == "T"


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ("A[I, J]", "B[K, L]", "must share one dim, which is contracted; they share 0"),
        ("A[I, J]", "B[I, J]", "they share 2"),
        ("A[I, J] {U_t}", "B[J, K]", r"A\[I, J\] \{U_t\} is a partial sum: reduce it before it is multiplied"),
        ("A[I_x, J]", "B[J, K_y]", "divided over the axes x, y: take one after the other"),
    ],
)
def test_what_is_no_such_product(a, b, message):
    with pytest.raises(ValueError, match=message):
        product_case(a, b)


def test_ways_that_a_case_does_not_have():
    with pytest.raises(ValueError, match="has the ways gather A, slice B; got 'gather B'"):
        product_case("A[I, J_t]", "B[J, K]").way("gather B")
