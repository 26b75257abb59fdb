import math


def predict_cost(num_ranks, nbytes, alpha, beta):
    def costs(size):
        return (
            2 * (num_ranks - 1) * (alpha + size / num_ranks / beta),
            2 * math.ceil(math.log(num_ranks, 2) - 1e-9) * (alpha + size / beta),
        )

    lo, hi = 0.0, 1.0
    if costs(0)[0] <= costs(0)[1]:
        hi = 0.0
    else:
        while costs(hi)[0] > costs(hi)[1]:
            hi *= 2
        for _ in range(100):
            mid = (lo + hi) / 2
            lo, hi = (mid, hi) if costs(mid)[0] > costs(mid)[1] else (lo, mid)
    ring, tree = costs(nbytes)
    return {"crossover": hi, "tree": tree, "ring": ring}
