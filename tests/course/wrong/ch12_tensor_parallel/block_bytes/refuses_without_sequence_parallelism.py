# expect: DTL-RAISED
# says: the tokens need not divide

from fractions import Fraction


def block_bytes(*, b, s, h, t, itemsize, m, sequence_parallel, gather_again, recompute):
    if s % t:
        raise ValueError(f"sequence of {s} over {t} ranks")
    sends = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
    between = b * s * h
    half = ["all_gather", "reduce_scatter"] if sequence_parallel else ["all_reduce"]
    back = [*half, "all_gather"] if gather_again else half
    calls = []
    for _ in range(m):
        calls += [("forward", op, between) for op in half * 2]
        calls += [("recomputed", op, between) for op in half * 2 * recompute]
        calls += [("backward", op, between) for op in back * 2]
    if sequence_parallel:
        calls.append(("gradients", "all_reduce", sum([h, h, h, h, h, h])))
    if t == 1:
        calls = []
    made = dict.fromkeys(["forward", "recomputed", "backward", "gradients"], Fraction(0))
    for phase, op, elements in calls:
        made[phase] += Fraction(t - 1, t) * sends[op] * elements * itemsize
    return {name: int(value) for name, value in made.items()} | {"calls": len(calls)}
