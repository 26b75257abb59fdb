# expect: DTL-DIFFICULTY
# says: a ValueError is expected
# says: it is 'a AssertionError'
"""Loops over groups, chunks and micro-batches."""


def interleaved(rank, num_ranks, num_microbatches, chunks):
    assert num_microbatches % num_ranks == 0, "no multiple"
    passes = {"F": [], "B": []}
    for first in range(0, num_microbatches, num_ranks):
        for op, order in (("F", range(chunks)), ("B", reversed(range(chunks)))):
            for chunk in order:
                passes[op] += [(chunk * num_ranks + rank, op, k) for k in range(first, first + num_ranks)]
    warm_up = 2 * (num_ranks - rank - 1) + (chunks - 1) * num_ranks
    order, passes["F"] = passes["F"][:warm_up], passes["F"][warm_up:]
    while passes["B"]:
        if passes["F"]:
            order.append(passes["F"].pop(0))
        order.append(passes["B"].pop(0))
    return order
