# expect: DTL-RAISED
# says: credit = inf


def partition_with_credit(ready, nbytes, seconds_per_byte, partition, credit):
    left = [
        (n, k, min(partition, size - k * partition))
        for n, size in enumerate(nbytes)
        for k in range(-(-size // partition))
    ]
    order, ends, time, room = [], [], 0.0, int(credit)
    while left:
        there = [one for one in left if ready[one[0]] <= time]
        busy = sum(size for end, size in ends if end > time)
        if there and busy < room:
            left.remove(there[0])
            order.append(there[0][:2])
            ends.append((max([time, *(end for end, _ in ends)]) + there[0][2] * seconds_per_byte, there[0][2]))
        else:
            time = min([end for end, _ in ends if end > time] + [at for at in ready if at > time])
    return order
