"""Runs a plan on symbols instead of numbers: which summands does each rank hold of each chunk?

So a plan can be proved right for any number of ranks without starting one: a summand that is counted twice, a chunk
that is sent before it is complete, two messages that overwrite each other are all found.
"""

from __future__ import annotations

from .algorithms.plan import Plan

# state[rank][chunk]: the ranks whose data is summed in it; None: nothing that may be used
Summands = list[list[frozenset[int] | None]]


class PlanError(AssertionError):
    """The plan does something that cannot be right; the text says in which step."""


def simulate(plan: Plan) -> list[Summands]:
    """The state before the first step and after every step. Raises PlanError."""
    states = [start(plan)]
    for number, step in enumerate(plan.steps):
        old = states[-1]
        new = [list(row) for row in old]
        written: set[tuple[int, int]] = set()
        for move in step:
            if move.src == move.dst or not 0 <= move.first < move.last <= plan.num_chunks:
                raise PlanError(f"step {number}: {move} is no message")
            for chunk in range(move.first, move.last):
                sent, have = old[move.src][chunk], old[move.dst][chunk]
                if sent is None:
                    raise PlanError(f"step {number}: {move}: rank {move.src} has nothing in chunk {chunk}")
                if (move.dst, chunk) in written:
                    raise PlanError(f"step {number}: chunk {chunk} of rank {move.dst} is written twice")
                if move.reduce and (have is None or have & sent):
                    raise PlanError(f"step {number}: {move}: chunk {chunk} would count {sorted(have or sent)} wrongly")
                written.add((move.dst, chunk))
                new[move.dst][chunk] = sent | have if move.reduce and have is not None else sent
        states.append(new)
    return states


def check(plan: Plan) -> None:
    """Raises PlanError if the plan does not do what its collective promises."""
    end = simulate(plan)[-1]
    for rank, chunk, wanted in promises(plan):
        if end[rank][chunk] != wanted:
            raise PlanError(f"{plan.op}: rank {rank} ends with {end[rank][chunk]} in chunk {chunk}, not {set(wanted)}")


def start(plan: Plan) -> Summands:
    """The chunks that the ranks hold before the first step."""
    N, K = plan.num_ranks, plan.num_chunks

    def held(rank: int, chunk: int) -> bool:
        if plan.op in ("broadcast", "scatter"):
            return rank == plan.root
        if plan.op in ("gather", "all_gather"):
            return rank == chunk
        return plan.op != "all_to_all" or rank == chunk // N

    return [[frozenset({r}) if held(r, c) else None for c in range(K)] for r in range(N)]


def promises(plan: Plan) -> list[tuple[int, int, frozenset[int]]]:
    """(rank, chunk, whose summands) for all that the collective promises at the end."""
    N, K, root = plan.num_ranks, plan.num_chunks, plan.root
    everyone = frozenset(range(N))
    cells = [(r, c) for r in range(N) for c in range(K)]
    match plan.op:
        case "all_reduce":
            return [(r, c, everyone) for r, c in cells]
        case "reduce":
            return [(r, c, everyone) for r, c in cells if r == root]
        case "reduce_scatter":
            return [(r, c, everyone) for r, c in cells if r == c]
        case "broadcast":
            return [(r, c, frozenset({root if root is not None else 0})) for r, c in cells]
        case "scatter":
            return [(r, c, frozenset({root if root is not None else 0})) for r, c in cells if r == c]
        case "gather":
            return [(r, c, frozenset({c})) for r, c in cells if r == root]
        case "all_gather":
            return [(r, c, frozenset({c})) for r, c in cells]
        case "all_to_all":
            return [(r, c, frozenset({c // N})) for r, c in cells if c % N == r]
    raise ValueError(f"no such collective: {plan.op!r}")
