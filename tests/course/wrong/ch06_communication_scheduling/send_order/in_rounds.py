# expect: DTL-DIFFICULTY
# says: follow the time


def send_order(ready, transfer):
    """Sends all that waits, sorted, and looks again only then."""
    order, now, left = [], 0.0, [layer for layer, at in enumerate(ready) if at is not None]
    while left:
        now = max(now, min(ready[layer] for layer in left))
        batch = [layer for layer in left if ready[layer] <= now]
        order += sorted(batch)
        now += sum(transfer[layer] for layer in batch)
        left = [layer for layer in left if layer not in batch]
    return order
