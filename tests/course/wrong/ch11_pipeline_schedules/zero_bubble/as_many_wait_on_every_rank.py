# expect: DTL-VALUE-TOO-MANY-LIVE
# says: up to 2, 2, 2 Ws wait


def zero_bubble(orders):
    """Return the orders with split backward passes."""
    made = []
    for order in orders:
        new = []
        waiting = []  # rank r holds r micro-batches less than rank 0 under 1F1B: so many Ws may wait
        for stage, op, microbatch in order:
            new.append((stage, "I" if op == "B" else op, microbatch))
            if op == "B":
                waiting.append((stage, "W", microbatch))
                if len(waiting) > len(orders) - 1:
                    new.append(waiting.pop(0))
        made.append(new + waiting)
    return made
