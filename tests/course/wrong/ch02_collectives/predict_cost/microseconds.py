# expect: DTL-VALUE-SECONDS
# says: 1e+06 times the right ones: microseconds?


import math


def predict_cost(num_ranks, nbytes, alpha, beta):
    N = num_ranks
    rs, ts = 2 * (N - 1), 2 * math.ceil(math.log2(N))
    ring = rs * alpha + rs / N * nbytes / beta
    tree = ts * (alpha + nbytes / beta)
    cross = (rs - ts) * alpha * beta / (ts - rs / N)
    return {"ring": ring * 1e6, "tree": tree * 1e6, "crossover": cross}
