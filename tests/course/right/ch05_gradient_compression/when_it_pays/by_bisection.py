def when_it_pays(num_ranks, nbytes, alpha, beta, *, payload, encode, decode):
    def plain(b):
        return 2 * (num_ranks - 1) * (alpha + nbytes / num_ranks / b)

    def coded(b):
        return (num_ranks - 1) * (alpha + payload / b) + encode + num_ranks * decode

    def is_faster(b):
        return coded(b) < plain(b)

    low, high = 1.0, 1e24
    pays = {(1, 1): "always", (0, 0): "never", (1, 0): "below", (0, 1): "above"}[is_faster(low), is_faster(high)]
    bandwidth = None
    if pays in ("below", "above"):
        first = is_faster(low)
        for _ in range(300):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if is_faster(middle) == first else (low, middle)
        bandwidth = low
    return {"plain": plain(beta), "coded": coded(beta), "pays": pays, "bandwidth": bandwidth}
