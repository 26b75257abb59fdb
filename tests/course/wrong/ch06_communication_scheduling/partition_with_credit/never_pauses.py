# expect: DTL-MISTAKE
# says: the link is taken for busy from 0 on


def partition_with_credit(ready, nbytes, seconds_per_byte, partition, credit):
    """The link works without a pause from the first gradient on."""
    left = [
        (n, k, min(partition, size - k * partition))
        for n, size in enumerate(nbytes)
        for k in range(-(-size // partition))
    ]
    order, ends, time, link = [], [], min(ready), min(ready)
    while left:
        there = [one for one in left if ready[one[0]] <= time]
        busy = sum(size for end, size in ends if end > time)
        if busy >= credit:
            time = min(end for end, _ in ends if end > time)
            continue
        chosen = (there or sorted(left, key=lambda one: (ready[one[0]], one)))[0]
        left.remove(chosen)
        order.append(chosen[:2])
        link += chosen[2] * seconds_per_byte
        ends.append((link, chosen[2]))
    return order
