# expect: DTL-DIFFICULTY
# says: there may be any number of ranks
# says: and could do

Action = tuple[int, str, int]


def zero_bubble(orders: list[list[Action]]) -> list[list[Action]]:
    """Return the orders with split backward passes."""
    made = []
    for rank, order in enumerate(orders):
        new: list[Action] = []
        waiting: list[Action] = []  # rank r holds r micro-batches less than rank 0 under 1F1B: so many Ws may wait
        for stage, op, microbatch in order:
            new.append((stage, "I" if op == "B" else op, microbatch))
            if op == "B":
                waiting.append((stage, "W", microbatch))
                if len(waiting) > min(rank, 4):
                    new.append(waiting.pop(0))
        made.append(new + waiting)
    return made
