# expect: DTL-VALUE-WEIGHTS-EARLY
# says: whose results it needs


def zero_bubble(orders):
    """Return the orders with split backward passes."""
    made = []
    for order in orders:
        new = []
        waiting = []  # rank r holds r micro-batches less than rank 0 under 1F1B: so many Ws may wait
        for stage, op, microbatch in order:
            new += [(stage, "W", microbatch)] * (op == "B")
            new.append((stage, "I" if op == "B" else op, microbatch))
            pass
        made.append(new + waiting)
    return made
