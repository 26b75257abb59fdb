# expect: DTL-DIFFICULTY
# says: a part is launched while another one is being sent


def partition_with_credit(ready, nbytes, seconds_per_byte, partition, credit):
    """A new window when the whole one before it has been sent."""
    left = [
        (n, k, min(partition, size - k * partition))
        for n, size in enumerate(nbytes)
        for k in range(-(-size // partition))
    ]
    order, time = [], 0.0
    while left:
        time = max(time, min(ready[n] for n, _, _ in left))
        window = 0
        while window < credit and (there := [one for one in left if ready[one[0]] <= time]):
            left.remove(there[0])
            order.append(there[0][:2])
            window += there[0][2]
        time += window * seconds_per_byte
    return order
