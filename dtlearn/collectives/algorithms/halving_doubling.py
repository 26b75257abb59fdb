"""Recursive halving and doubling: the bytes of a ring in the steps of a tree.

Reduce-scatter: exchange half of the tensor with the rank N/2 away, a quarter with the one N/4 away, and so on;
all-gather: the same backwards. 2 log2 N steps, 2(N-1)/N of the tensor sent by each rank (Rabenseifner's algorithm;
Thakur, Rabenseifner and Gropp, 2005). It wants a power of two: other ranks first hand their tensor to a partner and
get the result from it at the end, two more messages of the whole tensor. And its messages go far: on a network whose
links are shared they get in each other's way, where a ring only ever talks to neighbours.
"""

from __future__ import annotations

from .plan import Move, Plan, Step, check_size


def all_reduce(num_ranks: int) -> Plan:
    """Fold the ranks above the largest power of two P into the others, halve, double, unfold."""
    check_size(num_ranks)
    P = 1 << (num_ranks.bit_length() - 1)
    extra = range(P, num_ranks)
    fold: list[Step] = [tuple(Move(r, r - P, 0, P, reduce=True) for r in extra)] if extra else []
    unfold: list[Step] = [tuple(Move(r - P, r, 0, P) for r in extra)] if extra else []
    steps = [*fold, *_halve(P), *_double(P), *unfold]
    return Plan("all_reduce", "halving-doubling", num_ranks, P, tuple(steps))


def _halve(P: int) -> list[Step]:
    """Reduce-scatter over P = 2^k ranks: rank r ends with the sum of chunk r."""
    steps: list[Step] = []
    distance = P // 2
    while distance:
        # Partners differ in one bit; each keeps the half in which its own chunk lies, and sends the other half.
        steps.append(tuple(Move(r, r ^ distance, *_block(r ^ distance, distance), reduce=True) for r in range(P)))
        distance //= 2
    return steps


def _double(P: int) -> list[Step]:
    """All-gather over P = 2^k ranks: what a rank has doubles in every step."""
    steps: list[Step] = []
    distance = 1
    while distance < P:
        steps.append(tuple(Move(r, r ^ distance, *_block(r, distance)) for r in range(P)))
        distance *= 2
    return steps


def _block(rank: int, width: int) -> tuple[int, int]:
    """The block of `width` chunks, at a multiple of `width`, that holds chunk `rank`."""
    first = rank // width * width
    return first, first + width
