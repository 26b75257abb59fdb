import math

import pytest
import torch

from dtlearn.parameter_server.gossip.mixing import (
    Mixing,
    complete,
    exponential,
    metropolis,
    ring,
    spectral_gap,
    torus,
    validate_mixing,
)

STAR = [(0, leaf) for leaf in range(1, 5)]


def test_a_ring_of_four_written_out():
    third = 1 / 3
    assert ring(4).matrices == (
        (
            (third, third, 0.0, third),
            (third, third, third, 0.0),
            (0.0, third, third, third),
            (third, 0.0, third, third),
        ),
    )


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 5, 8, 12])
def test_every_mixing_of_any_size_is_doubly_stochastic(num_ranks):
    grids = [torus(rows, num_ranks // rows) for rows in range(1, num_ranks + 1) if num_ranks % rows == 0]
    for mixing in [ring(num_ranks), complete(num_ranks), exponential(num_ranks), *grids]:  # the validator runs inside
        assert mixing.num_ranks == num_ranks
        product = mixing.product(7)
        assert torch.allclose(product.sum(0), torch.ones(num_ranks, dtype=torch.float64))
        assert torch.allclose(product.sum(1), torch.ones(num_ranks, dtype=torch.float64))


def test_degrees():
    assert [ring(6).sources(0, r) for r in (0, 3)] == [[1, 5], [2, 4]]
    assert torus(3, 4).sources(0, 0) == [1, 3, 4, 8]
    assert torus(2, 2).sources(0, 0) == [1, 2]  # left and right are the same rank, and so are above and below
    assert complete(4).sources(0, 2) == [0, 1, 3]


def test_exponential_has_one_neighbour_a_step_and_sends_against_it():
    mixing = exponential(8)
    assert [mixing.sources(step, 0) for step in range(4)] == [[1], [2], [4], [1]]
    assert [mixing.targets(step, 0) for step in range(4)] == [[7], [6], [4], [7]]


@pytest.mark.parametrize("num_ranks", [2, 4, 8, 16])
def test_exponential_reaches_the_mean_exactly_in_log_steps(num_ranks):
    steps = round(math.log2(num_ranks))
    assert torch.equal(exponential(num_ranks).product(steps), torch.full((num_ranks,) * 2, 1 / num_ranks).double())
    assert spectral_gap(exponential(num_ranks)) == pytest.approx(1)
    assert not exponential(num_ranks).product(steps - 1).eq(1 / num_ranks).all()


def test_exponential_of_six_does_not():
    assert 0 < spectral_gap(exponential(6)) < 1


@pytest.mark.parametrize("num_ranks", [3, 4, 8, 16])
def test_the_gap_of_a_ring_is_that_of_its_eigenvalues(num_ranks):
    others = [1 / 3 + 2 / 3 * math.cos(2 * math.pi * k / num_ranks) for k in range(1, num_ranks)]
    assert spectral_gap(ring(num_ranks)) == pytest.approx(1 - max(map(abs, others)))


def test_gaps_in_order():
    gaps = [spectral_gap(mixing) for mixing in (ring(16), torus(4, 4), complete(16))]
    assert gaps == sorted(gaps) and gaps[2] == pytest.approx(1)
    separate = Mixing("two pairs", (metropolis(4, [(0, 1), (2, 3)]),))
    assert spectral_gap(separate) == pytest.approx(0)


def test_a_star_needs_more_than_equal_weights():
    plain = [[1 / 5] * 5] + [[0.5 if j in (0, leaf) else 0.0 for j in range(5)] for leaf in range(1, 5)]
    with pytest.raises(ValueError, match=r"column 0 sums to 2.2, not 1: what rank 0 knows would count more"):
        validate_mixing(plain)
    validate_mixing(metropolis(5, STAR))


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        ([], "N rows of N"),
        ([[1.0], [1.0]], "N rows of N"),
        ([[0.5, 0.4], [0.5, 0.6]], "row 0 sums to 0.9"),
        ([[1.5, -0.5], [-0.5, 1.5]], "rank 0 must be 0 or more"),
        ([[math.nan, 1.0], [1.0, 0.0]], "rank 0 must be 0 or more"),
        ([[0.5, 0.5], [0.4, 0.6]], "column 0 sums to 0.9, not 1: what rank 0 knows would count less"),
    ],
)
def test_what_is_not_doubly_stochastic_is_refused(matrix, words):
    with pytest.raises(ValueError, match=words):
        validate_mixing(matrix)


def test_bad_input():
    with pytest.raises(ValueError, match=r"ranks 0 to 2; got \[\(1, 1\), \(2, 3\)\]"):
        metropolis(3, [(0, 1), (1, 1), (3, 2)])
    with pytest.raises(ValueError, match="at least one"):
        Mixing("none", ())
    with pytest.raises(ValueError, match="one size"):
        Mixing("two", (*ring(2).matrices, *ring(3).matrices))
