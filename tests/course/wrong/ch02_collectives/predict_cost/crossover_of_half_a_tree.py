# expect: DTL-MISTAKE
# says: the crossover is that of other times
# says: the tree has log2(N) steps

import math


def predict_cost(num_ranks, nbytes, alpha, beta):
    n, depth = num_ranks, math.ceil(math.log2(num_ranks))
    ring = 2 * (n - 1) * (alpha + nbytes / n / beta)
    tree = 2 * depth * (alpha + nbytes / beta)
    crossover = 0.0
    if n > 2:
        crossover = (2 * (n - 1) - depth) * alpha * beta / (depth - 2 * (n - 1) / n)
    return {"ring": ring, "tree": tree, "crossover": crossover}
