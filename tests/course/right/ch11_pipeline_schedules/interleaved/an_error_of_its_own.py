class NotDivisible(ValueError):
    """The ranks do not divide the micro-batches."""


def interleaved(rank: int, num_ranks: int, num_microbatches: int, chunks: int) -> list[tuple[int, str, int]]:
    """Return the actions of one rank, in order."""
    p, total = num_ranks, num_microbatches * chunks
    if num_microbatches % p:
        raise NotDivisible(f"{num_microbatches} micro-batches are no multiple of {p} ranks")

    def action(i: int, op: str) -> tuple[int, str, int]:
        chunk = i // p % chunks
        chunk = chunk if op == "F" else chunks - 1 - chunk
        return chunk * p + rank, op, i // (p * chunks) * p + i % p

    warm_up = min(2 * (p - rank - 1) + (chunks - 1) * p, total)
    order = [action(i, "F") for i in range(warm_up)]
    for i in range(total - warm_up):
        order += [action(warm_up + i, "F"), action(i, "B")]
    return order + [action(i, "B") for i in range(total - warm_up, total)]
