"""ch11.memory_cap: the puzzles of the task; what comes back is checked, and its mean bubble is what counts."""

from __future__ import annotations

from collections import Counter
from typing import Any

from dtlearn.grading import Case, Check, Finding, Given, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP
from ._schedules import Action, Orders, as_tuples, every, needs, peaks, play, text_of

# p, m and cap of each puzzle, and the smallest T known: of a beam search in C++ over all placements with two stages on
# each rank, 6,000 states a step. Those of p = 2 are the smallest there are: no state was left out. The mean bubble is
# 0.1053. Ranks that do the best that they can, with a V, reach 0.203, and 0.21 passes. Of 1000 random priorities for
# each of the two placements of the solution, the best reach 0.119 ("optimal" is 0.125); of 300 with a V alone, 0.152.
PUZZLES = [[2, 4, 3], [2, 6, 3], [3, 6, 4], [3, 6, 5], [4, 8, 5], [4, 8, 6]]
BEST_KNOWN = 26, 38, 41, 39, 56, 53
ASKED = 0.21  # as the budget "good" of the manifest: a test holds them equal
SECONDS = 8.0


def inputs(case: Case) -> Given:
    return [{"puzzles": PUZZLES}]


def on_rank(answer: Any, puzzles: Any) -> Any:
    import contextlib

    from dtlearn.grading.on_rank.processor_limit import Endless, ProcessorLimit

    pairs: Any = []
    with contextlib.suppress(Endless), ProcessorLimit(8.0):  # seconds for all puzzles: an answer may search
        for num_ranks, num_microbatches, cap in puzzles:
            pairs.append(answer(num_ranks, num_microbatches, cap))
    return pairs


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    puzzles, pairs = given[0]["puzzles"], got[0]
    for (p, m, cap), pair in zip(puzzles, pairs, strict=False):  # fewer if time was over
        at = f"with p = {p}, m = {m} and cap = {cap}:"
        if text := form(p, pair):
            return Finding("DTL-VALUE-NONE" if pair is None else "DTL-VALUE-TYPE", f"{at} {text}")
        orders = as_tuples(pair[1])
        if text := invalid(pair[0], orders, m) or too_many_live(pair[0], orders, cap):
            return Finding("DTL-MISTAKE", f"{at} {text}")
    if (done := len(pairs)) < len(puzzles):
        text = (
            f"{done} of the {len(puzzles)} puzzles are done after {SECONDS:g} s of processor time, which are for all "
        )
        text += f"of them together: a search may take {SECONDS / len(puzzles):.1f} s for each"
        more = (
            ", or a loop of yours plays, and nobody can go on: ranks are full, and what frees an activation needs room"
        )
        return Finding("DTL-LOOP", text + more)
    if (mean := bubble(case, given, got)) > ASKED:
        spans = [play(as_tuples(orders), placement).makespan for placement, orders in pairs]
        text = f"the schedules are valid, and their mean bubble is {mean:.2f}: at most {ASKED} is expected. Your T are "
        text += f"{', '.join(map(str, spans))}; the best known are {', '.join(map(str, BEST_KNOWN))}"
        if mean > 1:
            text += ". Ranks are idle for longer than they work: let a micro-batch begin before the one before it is "
            text += "through"
        return Finding("DTL-VALUE-BUBBLE", text)
    return None


def form(p: int, pair: Any) -> str:
    """What is wrong with the form of an answer; "" if nothing is."""
    if not isinstance(pair, list) or len(pair) != 2:
        is_what = (
            f"a list of {len(pair)}" if isinstance(pair, list) else "None" if pair is None else type(pair).__name__
        )
        return f"{is_what} is returned, and a pair (placement, orders) is expected"
    placement, orders = pair
    if not isinstance(placement, list) or len(placement) != 2 * p:
        count = f"has {len(placement)} entries" if isinstance(placement, list) else f"is {type(placement).__name__}"
        return f"placement {count}: it has the rank of each of the 2p = {2 * p} stages"
    if wrong := [rank for rank in placement if type(rank) is not int or not 0 <= rank < p]:
        return f"placement has {wrong[0]!r}: the ranks are 0 to {p - 1}"
    if not isinstance(orders, list) or len(orders) != p or not all(isinstance(order, list) for order in orders):
        return (
            f"{str(orders)[:60]} stands for the orders: a list of {p} lists of actions is expected, one for each rank"
        )
    strange = [
        a for order in orders for a in order if not isinstance(a, list | tuple) or [*map(type, a)] != [int, str, int]
    ]
    return f"{str(strange[0])[:60]} is no action: one is (stage, op, microbatch), as (2, 'F', 0)" if strange else ""


def invalid(placement: list[int], orders: Orders, num_microbatches: int) -> str:
    """What makes a schedule invalid; "" if it is valid."""
    wanted = set(every(len(placement), "FIW", num_microbatches))
    counts = Counter(a for order in orders for a in order)
    for rank, order in enumerate(orders):
        for action in order:
            if action[1] == "B":
                return f"{text_of(action)} is a whole backward pass: here each is an I and a W"
            if action not in wanted:
                return f"rank {rank} does {text_of(action)}, which is no action of this schedule"
            if placement[action[0]] != rank:
                return f"rank {rank} does {text_of(action)}, and stage {action[0]} is on rank {placement[action[0]]}"
            if counts[action] > 1:
                return f"{text_of(action)} is done {counts[action]} times"
    if missing := sorted(wanted - counts.keys()):
        more = f", nor are {len(missing) - 1} more" if len(missing) > 1 else ""
        return f"{text_of(missing[0])} is never done{more}"
    played, waits = play(orders, placement), dict[int, str]()
    stuck = [rank for rank, order in enumerate(orders) if played.at[rank] < len(order)]
    rank = stuck[0] if stuck else -1
    while stuck and rank not in waits:
        action = orders[rank][played.at[rank]]
        one_of = next(n for n in needs(action, len(placement)) if not n & played.end.keys())
        needed: Action = min(one_of & wanted)
        holder = placement[needed[0]]
        where = f" of rank {holder}" if holder != rank else ", which comes later in its own order"
        waits[rank] = f"rank {rank} waits at {text_of(action)} for {text_of(needed)}{where}"
        rank = holder
    return f"{'; '.join(waits.values())}: forever" if waits else ""


def too_many_live(placement: list[int], orders: Orders, cap: int) -> str:
    """Which rank holds more than it may; "" if none does."""
    for rank, peak in enumerate(peaks(orders)):
        if peak > cap:
            text = f"rank {rank} holds up to {peak} activations, and {cap} are allowed"
            each = [peaks([[a for a in order if a[0] == stage] for order in orders]) for stage in range(len(placement))]
            if max(peaks(orders, "I")) <= cap:
                text += ". They would fit if an I freed its activation: it is live until the W"
            elif max(map(max, each)) <= cap:
                text += ". Each of its stages by itself keeps to that: the cap is for all stages of a rank together"
            return text
    return ""


def bubble(case: Case, given: Given, got: list[Any]) -> float:
    """The mean bubble of all puzzles, idle time by useful time."""
    pairs = zip(given[0]["puzzles"], got[0], strict=True)
    found = [play(as_tuples(orders), placement).makespan / (6 * m) - 1 for (_, m, _), (placement, orders) in pairs]
    return float(round(sum(found) / len(found), 4))


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised."""
    return f"{MAY_HELP}a cap may be odd, and smaller than what two chunks of p micro-batches need"


CHECK = Check(
    on_rank,
    inputs,
    None,
    cases={"all puzzles": {}},
    example=[{"puzzles": PUZZLES[:1]}],
    verify=verify,
    why=why,
    bubble=bubble,
    rules=[rules.most_messages("0")],
    seconds=20.0,
)
