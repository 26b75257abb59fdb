"""Who averages with whom: mixing matrices as data, their validator, and how fast they bring the ranks together.

Row i of a mixing matrix W says how rank i averages: x_i becomes the sum over j of W[i][j] x_j. If every row sums to 1,
ranks that agree go on to agree; if every column does, too, the mean over the ranks stays what it was. A matrix of both
kinds is doubly stochastic, and repeated averaging brings all ranks to the mean of where they began.

Sources: Xiao and Boyd, "Fast linear iterations for distributed averaging", 2004 (weights, rates); Lian et al., "Can
Decentralized Algorithms Outperform Centralized Algorithms?", NeurIPS 2017 (D-PSGD); Assran et al., "Stochastic Gradient
Push", ICML 2019, and Ying et al., "Exponential Graph is Provably Efficient", NeurIPS 2021 (exponential graphs).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch

MixingRows = tuple[tuple[float, ...], ...]  # N rows of N
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Mixing:
    """Mixing matrices, one for each step, in turn.

    Attributes:
        name: for captions.
        matrices: of the steps; step k uses number k modulo their count.

    Raises:
        ValueError: see `validate_mixing`.
    """

    name: str
    matrices: tuple[MixingRows, ...]

    def __post_init__(self) -> None:
        if not self.matrices:
            raise ValueError(f"{self.name}: at least one mixing matrix is needed")
        for matrix in self.matrices:
            validate_mixing(matrix)
        if len(sizes := {len(matrix) for matrix in self.matrices}) > 1:
            raise ValueError(f"{self.name}: all matrices must be of one size; got {sorted(sizes)}")

    @property
    def num_ranks(self) -> int:
        """N."""
        return len(self.matrices[0])

    def weights(self, step: int, rank: int) -> dict[int, float]:
        """Whose parameters the rank averages in a step, itself included, and the weight of each, by rising rank."""
        row = self.matrices[step % len(self.matrices)][rank]
        return {source: weight for source, weight in enumerate(row) if weight}

    def sources(self, step: int, rank: int) -> list[int]:
        """The ranks from which a rank receives in a step."""
        return [source for source in self.weights(step, rank) if source != rank]

    def targets(self, step: int, rank: int) -> list[int]:
        """The ranks to which a rank sends in a step."""
        return [other for other in range(self.num_ranks) if rank in self.sources(step, other)]

    def product(self, num_steps: int) -> torch.Tensor:
        """W_k ... W_2 W_1, what so many steps do together: (N, N) float64."""
        product = torch.eye(self.num_ranks, dtype=torch.float64)
        for step in range(num_steps):
            product = _tensor(self.matrices[step % len(self.matrices)]) @ product
        return product


def validate_mixing(matrix: Sequence[Sequence[float]]) -> None:
    """Refuse what is not doubly stochastic.

    Raises:
        ValueError: not square; a weight below 0; a row or a column that does not sum to 1, named with its sum.
    """
    size = len(matrix)
    if size == 0 or any(len(row) != size for row in matrix):
        raise ValueError(f"a mixing matrix has N rows of N weights; got rows of {[len(row) for row in matrix]}")
    for i, row in enumerate(matrix):
        if any(not weight >= 0 for weight in row):  # NaN too
            raise ValueError(f"the weights of rank {i} must be 0 or more; got {list(row)}")
        if abs(sum(row) - 1) > _TOLERANCE:
            raise ValueError(f"row {i} sums to {sum(row):.6g}, not 1: rank {i} would not keep what all agree on")
    for j, column in enumerate(zip(*matrix, strict=True)):
        if abs(sum(column) - 1) > _TOLERANCE:
            raise ValueError(
                f"column {j} sums to {sum(column):.6g}, not 1: what rank {j} knows would count "
                f"{'more' if sum(column) > 1 else 'less'} than the others' in the mean"
            )


def metropolis(num_ranks: int, edges: Iterable[tuple[int, int]]) -> MixingRows:
    """Weights for any undirected graph: 1 / (1 + the larger degree of the two) on an edge, the rest for oneself.

    Every rank needs to know only its neighbours' degrees (Xiao and Boyd, 2004, "maximum-degree" and local weights).

    Raises:
        ValueError: an edge to a rank that does not exist, or from a rank to itself.
    """
    pairs = {(min(edge), max(edge)) for edge in edges}
    if wrong := sorted((a, b) for a, b in pairs if a == b or not 0 <= a < b < num_ranks):
        raise ValueError(f"edges must join two of the ranks 0 to {num_ranks - 1}; got {wrong}")
    degrees = [sum(rank in pair for pair in pairs) for rank in range(num_ranks)]
    matrix = [[Fraction(0)] * num_ranks for _ in range(num_ranks)]  # exact, so that equal weights are equal floats
    for a, b in pairs:
        matrix[a][b] = matrix[b][a] = Fraction(1, 1 + max(degrees[a], degrees[b]))
    for rank, row in enumerate(matrix):
        row[rank] = 1 - sum(row, Fraction(0))
    return tuple(tuple(map(float, row)) for row in matrix)


def ring(num_ranks: int) -> Mixing:
    """Each rank averages with the two beside it: weights 1/3."""
    edges = {(rank, (rank + 1) % num_ranks) for rank in range(num_ranks)} if num_ranks > 1 else set()
    return Mixing("ring", (metropolis(num_ranks, edges),))


def torus(rows: int, columns: int) -> Mixing:
    """Ranks on a grid whose edges are joined, rank r in row r // columns: four neighbours, weights 1/5."""
    edges = set[tuple[int, int]]()
    for rank in range(rows * columns):
        row, column = divmod(rank, columns)
        right, below = row * columns + (column + 1) % columns, (row + 1) % rows * columns + column
        edges |= {(rank, other) for other in (right, below) if other != rank}  # a row of one has no neighbour in it
    return Mixing("torus", (metropolis(rows * columns, edges),))


def complete(num_ranks: int) -> Mixing:
    """Every rank averages with all: what an all-reduce gives, by N(N-1) messages."""
    edges = [(a, b) for b in range(num_ranks) for a in range(b)]
    return Mixing("complete", (metropolis(num_ranks, edges),))


def exponential(num_ranks: int) -> Mixing:
    """One neighbour a step, at distance 1, 2, 4, ... below N: rank r averages half and half with rank r + 2^k.

    The matrices are not symmetric (r receives from r + 2^k and sends to r - 2^k), but doubly stochastic. Where N is a
    power of 2, log2 N of these steps give the exact mean (Assran et al., 2019; Ying et al., 2021).
    """
    matrices = []
    distance = 1
    while distance < num_ranks:
        rows = [[0.0] * num_ranks for _ in range(num_ranks)]
        for rank, row in enumerate(rows):
            row[rank] = row[(rank + distance) % num_ranks] = 0.5
        matrices.append(tuple(map(tuple, rows)))
        distance *= 2
    return Mixing("exponential", tuple(matrices) or (((1.0,),),))


def spectral_gap(mixing: Mixing) -> float:
    """How fast the ranks come together, 0 (never, for somebody) to 1 (at once): of one turn of the matrices.

    A turn is one step of a ring and log2 N steps of `exponential`: compare them over equal numbers of steps, by
    their `product`.
    1 - ||P - J||, with P the product of a turn, J the matrix of 1/N, and the spectral norm: a turn shrinks the
    consensus distance at least by the factor ||P - J||. Of one symmetric matrix it is 1 - max(|lambda_2|, |lambda_N|).
    """
    product = mixing.product(len(mixing.matrices))
    spread = product - torch.full_like(product, 1 / mixing.num_ranks)
    return 1 - float(torch.linalg.matrix_norm(spread, 2))


def _tensor(matrix: MixingRows) -> torch.Tensor:
    return torch.tensor(matrix, dtype=torch.float64)
