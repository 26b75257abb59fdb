def partition_with_credit(ready, nbytes, seconds_per_byte, partition, credit):
    left = []
    for layer, size in enumerate(nbytes):
        pieces = [partition] * (size // partition) + [size % partition] * (size % partition > 0)
        left += [(layer, number, piece) for number, piece in enumerate(pieces)]
    launched, ends, time = [], [], 0
    while left:
        there = [one for one in left if ready[one[0]] <= time]
        busy = sum(one[2] for one, end in zip(launched, ends, strict=True) if end > time)
        if there and busy < credit:
            left.remove(there[0])
            launched.append(there[0])
            ends.append(max([time, *ends]) + there[0][2] * seconds_per_byte)
        else:
            moments = [end for end in ends if end > time] + [at for at in ready if at > time]
            time = min(moments)
    return [[layer, number] for layer, number, _ in launched]
