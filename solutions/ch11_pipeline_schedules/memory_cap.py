"""A puzzle: the smallest bubble that fits under a cap of live activations.

A model of 2p stages, all of the same cost, is trained on p ranks with m micro-batches. You choose which rank
holds which stages, and in which order each rank works. A rank may hold at most `cap` activations.

**Given** `num_ranks`, p; `num_microbatches`, m; and `cap`.

**Return** a pair `(placement, orders)`:

- `placement`: a list with the rank of each of the 2p stages, in the order of the model. How many stages a rank
  holds, and which, is up to you.
- `orders`: for each rank the list of its actions, tuples `(stage, op, microbatch)`. Each stage does, for each
  micro-batch, an `"F"`, the forward pass; an `"I"`, the gradient of the stage's input; and a `"W"`, the gradients
  of its weights.

**Rules**

- An F needs the F of the stage before; an I needs the F of its stage and the I of the stage after; a W needs the I
  of its stage, all of the same micro-batch. No rank may wait forever.
- The activations of a micro-batch in a stage count as one, and are live from its F to its W. No rank holds more
  than `cap` at any time, in all its stages together.

**Bubble.** Each action takes 1, transfers take no time, and each rank does its actions in your order, each as
soon as it can. The bubble is idle time / useful time of all ranks: p T / (6 p m) - 1, where T is the time at
which the last action ends. You are graded on the mean over these puzzles:

| p | 2 | 2 | 3 | 3 | 4 | 4 |
|---|---|---|---|---|---|---|
| m | 4 | 6 | 6 | 6 | 8 | 8 |
| cap | 3 | 3 | 4 | 5 | 5 | 6 |
| best known T | 26 | 38 | 41 | 39 | 56 | 53 |

1F1B with two neighbouring stages on each rank would need a cap of 2p. With one micro-batch in the pipeline at a
time a cap of 2 is enough, and the mean bubble is above 1.

**Budget**, bubble: a mean of at most 0.21 passes, at most 0.125 is optimal. No formula gives the smallest bubble. The
best known T in the table were found by minutes of search, and their mean bubble is 0.105: "optimal" means within 0.02
of that.

**Search.** Your function may search: it has 8 s of processor time for all six puzzles together, so 1.3 s for each,
and 1 to 2 s for all are enough. It may also return schedules that you wrote down by hand.

**Example** of the form, not of a good schedule: p = 2, m = 1, cap = 2, and the placement `[0, 1, 0, 1]`. 2F0 is
the tuple `(2, "F", 0)`. T is 9, so the bubble is 2 * 9 / 12 - 1 = 0.5.

| rank | order |
|---|---|
| 0 | 0F0 2F0 2I0 2W0 0I0 0W0 |
| 1 | 1F0 3F0 3I0 3W0 1I0 1W0 |
"""

Action = tuple[int, str, int]


def memory_cap(num_ranks: int, num_microbatches: int, cap: int) -> tuple[list[int], list[list[Action]]]:
    """Return a placement, and the order of each rank."""
    # BEGIN SOLUTION: play it with many random priorities, and keep the best
    import random

    chance = random.Random(0)  # a fixed seed: the answer is the same each time
    last = 2 * num_ranks - 1
    kinds = [(stage, kind) for stage in range(last + 1) for kind in ("F", "I", "W", "room")]

    def play(placement: list[int], value: dict[tuple[int, str], float], limit: int) -> tuple[int, list[list[Action]]]:
        own = [[stage for stage in range(last + 1) if placement[stage] == rank] for rank in range(num_ranks)]
        orders: list[list[Action]] = [[] for _ in own]
        done = {kind: 0 for kind in kinds}  # how many micro-batches of each

        def able(stage: int, op: str, live: int) -> bool:
            k = done[stage, op]
            if op == "F":
                needed = 1 + max(0, int(4 * value[stage, "room"]) - 1) * (stage < last)  # room for later stages
                return k < num_microbatches and live + needed <= cap and (stage == 0 or k < done[stage - 1, "F"])
            if op == "W":
                return k < done[stage, "I"]
            return k < done[stage, "F"] and (stage == last or k < done[stage + 1, "I"])

        left, time = 6 * num_ranks * num_microbatches, 0
        while left:
            chosen = []
            for rank, stages in enumerate(own):
                live = sum(done[stage, "F"] - done[stage, "W"] for stage in stages)
                ready = [(value[stage, op], stage, op) for stage in stages for op in "FIW" if able(stage, op, live)]
                chosen += [(rank, *max(ready)[1:])] if ready else []
            if not chosen or time == limit:
                return 10**9, orders  # nobody can go on, or it is worse than what is known
            for rank, stage, op in chosen:  # all at once: what ends now is there for others at the next time
                orders[rank].append((stage, op, done[stage, op]))
                done[stage, op] += 1
            left, time = left - len(chosen), time + 1
        return time, orders

    results = []
    for placement in ([s % num_ranks for s in range(last + 1)], [min(s, last - s) for s in range(last + 1)]):
        time, orders, best = 10**9, [], {}
        for number in range(200):
            value = {kind: chance.random() for kind in kinds}
            if number >= 70 and best:  # then two values change, and the change stays unless it is worse
                value = best | {kinds[int(len(kinds) * chance.random())]: chance.random() for _ in range(2)}
            new = play(placement, value, time)
            if new[0] <= time and new[0] < 10**9:
                (time, orders), best = new, value
        results.append((time, placement, orders))
    _, placement, orders = min(results)
    return placement, orders
    # END SOLUTION
