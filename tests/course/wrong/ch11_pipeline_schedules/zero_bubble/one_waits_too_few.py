# expect: DTL-VALUE-BUBBLE
# says: there is room to put off more Ws


def zero_bubble(orders):
    """Return the orders with split backward passes."""
    made = []
    for rank, order in enumerate(orders):
        new = []
        waiting = []  # rank r holds r micro-batches less than rank 0 under 1F1B: so many Ws may wait
        for stage, op, microbatch in order:
            new.append((stage, "I" if op == "B" else op, microbatch))
            if op == "B":
                waiting.append((stage, "W", microbatch))
                if len(waiting) > max(rank - 1, 0):
                    new.append(waiting.pop(0))
        made.append(new + waiting)
    return made
