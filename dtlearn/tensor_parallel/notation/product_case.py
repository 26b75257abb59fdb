"""The four cases of a product of two divided arrays, C[I, K] = A[I, J] B[J, K] with the contracted dim J.

    case   A and B                              what a rank can do alone          what is communicated
    1      J whole in both                      its part of C, or all of it       nothing
    2      J divided in one of them only        nothing: lengths differ           an all-gather; or the other is sliced
    3      J divided over the same axis in      a partial sum of all of C         an all-reduce, or a reduce-scatter;
           both                                                                   or nothing yet
    4      J whole, and both divided over the   a block of C, and other blocks    an all-gather of one of them
           same axis                            nobody can compute

A column-parallel layer, x[B, T, C] W[C, F_t], is case 1. The row-parallel layer after it, h[B, T, F_t] W[F_t, C], is
case 3. All arrays of a product are divided over one axis: with more axes, take one after the other.

Source: Austin et al., "How to Scale Your Model", https://jax-ml.github.io/scaling-book/sharding/.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

from .sharded import Sharded, parse

ProductOp = Literal["slice", "all_gather", "product", "all_reduce", "reduce_scatter"]
SENT = {"all_gather": 1, "reduce_scatter": 1, "all_reduce": 2}  # times (t-1)/t of the whole array


@dataclass(frozen=True)
class ProductStep:
    """One thing that all ranks do.

    Attributes:
        op: "slice" (take one's own part, without communication), "product", or a collective.
        before: the array; of a product there is none.
        after: what it becomes, or the product.
        dim: along which it is gathered, sliced or scattered; "" for the others.
    """

    op: ProductOp
    before: Sharded | None
    after: Sharded
    dim: str = ""

    def __str__(self) -> str:
        return f"{self.after} = " + (f"{self.op} {self.before}" if self.before else "product")

    def sent_elements(self, sizes: Mapping[str, int], num_ranks: int) -> float:
        """Elements that each rank sends, in a ring: n (t-1)/t of an array of n elements, twice that in an all-reduce.

        Args:
            sizes: length of each dim.
            num_ranks: t.
        """
        elements = prod(sizes[dim] for dim in self.after.dims)
        return SENT.get(self.op, 0) * elements * (num_ranks - 1) / num_ranks


@dataclass(frozen=True)
class ProductWay:
    """One way to the product.

    Attributes:
        name: such as "gather A" or "all-reduce".
        steps: in order.
    """

    name: str
    steps: tuple[ProductStep, ...]

    @property
    def result(self) -> Sharded:
        """The product, in the notation."""
        return self.steps[-1].after

    def sent_elements(self, sizes: Mapping[str, int], num_ranks: int) -> float:
        """Elements that each rank sends in all steps, in a ring."""
        return sum(step.sent_elements(sizes, num_ranks) for step in self.steps)


@dataclass(frozen=True)
class ProductCase:
    """A case of a product.

    Attributes:
        number: of the case, 1 to 4.
        a, b: the arrays.
        contracted: the dim that they share.
        axis: over which they are divided; "" if neither is.
        ways: to the product; the first is the usual one.
    """

    number: int
    a: Sharded
    b: Sharded
    contracted: str
    axis: str
    ways: tuple[ProductWay, ...]

    def way(self, name: str | None = None) -> ProductWay:
        """A way by its name; None: the usual one. Raises ValueError for a name that the case does not have."""
        names = [way.name for way in self.ways]
        if name is not None and name not in names:
            raise ValueError(f"{self.a} {self.b} has the ways {', '.join(names)}; got {name!r}")
        return self.ways[0 if name is None else names.index(name)]


def product_case(a: Sharded | str, b: Sharded | str, name: str = "C") -> ProductCase:
    """Find which of the four cases a product is, and what can be done about it.

    Args:
        a, b: the arrays, also as text; they share one dim, which is contracted.
        name: of the product.

    Raises:
        ValueError: another number of shared dims than one, partial arrays, or more than one axis.
    """
    a, b = (parse(array) if isinstance(array, str) else array for array in (a, b))
    shared = [dim for dim in a.dims if dim in b.dims]
    if len(shared) != 1:
        raise ValueError(f"{a} and {b} must share one dim, which is contracted; they share {len(shared)}")
    for array in (a, b):
        if array.partial:
            raise ValueError(f"{array} is a partial sum: reduce it before it is multiplied")
    axes = {axis for axis in (*a.axes, *b.axes) if axis is not None}
    if len(axes) > 1:
        raise ValueError(f"{a} and {b} are divided over the axes {', '.join(sorted(axes))}: take one after the other")
    axis, dim = next(iter(axes), ""), shared[0]
    number = _number(a.axis_of(dim), b.axis_of(dim), a, b)
    return ProductCase(number, a, b, dim, axis, tuple(_ways(number, a, b, dim, axis, name)))


def _number(of_a: str | None, of_b: str | None, a: Sharded, b: Sharded) -> int:
    if of_a is not None and of_b is not None:
        return 3
    if of_a is not None or of_b is not None:
        return 2
    return 4 if a.axes.count(None) < len(a.axes) and b.axes.count(None) < len(b.axes) else 1


def _ways(number: int, a: Sharded, b: Sharded, dim: str, axis: str, name: str) -> list[ProductWay]:
    if number == 1:
        return [ProductWay("no communication", (_product(a, b, dim, name),))]
    if number == 2:
        sharded, other = (a, b) if a.axis_of(dim) else (b, a)
        ways = [_gather_first(sharded, dim, a, b, dim, name)]
        if axis not in other.axes:  # otherwise its parts along this axis are other ones
            sliced = ProductStep("slice", other, other.divided(dim, axis), dim)
            product = _product(*((sharded, sliced.after) if sharded is a else (sliced.after, sharded)), dim, name)
            reduce = ProductStep("all_reduce", product.after, product.after.reduced(axis))
            ways.append(ProductWay(f"slice {other.name}", (sliced, product, reduce)))
        return ways
    if number == 3:
        product = _product(a, b, dim, name)
        partial = product.after
        scattered = [ProductStep("reduce_scatter", partial, partial.divided(rest, axis), rest) for rest in partial.dims]
        return [
            ProductWay("all-reduce", (product, ProductStep("all_reduce", partial, partial.reduced(axis)))),
            *(ProductWay(f"reduce-scatter along {step.dim}", (product, step)) for step in scattered),
            ProductWay("no reduction yet", (product,)),
        ]
    divided = [(array, array.divided_dim(axis)) for array in (b, a)]
    return [_gather_first(array, along, a, b, dim, name) for array, along in divided if along]


def _gather_first(array: Sharded, along: str, a: Sharded, b: Sharded, dim: str, name: str) -> ProductWay:
    gather = ProductStep("all_gather", array, array.gathered(along), along)
    product = _product(*((gather.after, b) if array is a else (a, gather.after)), dim, name)
    return ProductWay(f"gather {array.name}", (gather, product))


def _product(a: Sharded, b: Sharded, dim: str, name: str) -> ProductStep:
    """The local products: of what each rank has, without communication."""
    rest = [
        (other, axis) for array in (a, b) for other, axis in zip(array.dims, array.axes, strict=True) if other != dim
    ]
    dims, axes = zip(*rest, strict=True)
    partial = a.axis_of(dim)
    return ProductStep("product", None, Sharded(name, dims, axes, (partial,) if partial else ()))
