# expect: DTL-VALUE-ROUND
# says: log2(6) is 2.585, rounded up 3

import math


def predict_cost(num_ranks, nbytes, alpha, beta):
    ring_steps, tree_steps = 2 * (num_ranks - 1), 2 * int(math.log2(num_ranks))
    share = ring_steps / num_ranks
    return {
        "ring": ring_steps * alpha + share * nbytes / beta,
        "tree": tree_steps * (alpha + nbytes / beta),
        "crossover": (ring_steps - tree_steps) * alpha * beta / (tree_steps - share),
    }
