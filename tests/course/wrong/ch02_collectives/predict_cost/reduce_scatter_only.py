# expect: DTL-VALUE-HALF-RING
# says: the ring has 3 steps here, those of the reduce-scatter

import math


def predict_cost(num_ranks, nbytes, alpha, beta):
    ring_steps, tree_steps = num_ranks - 1, 2 * math.ceil(math.log2(num_ranks))
    share = ring_steps / num_ranks
    return {
        "ring": ring_steps * alpha + share * nbytes / beta,
        "tree": tree_steps * (alpha + nbytes / beta),
        "crossover": (ring_steps - tree_steps) * alpha * beta / (tree_steps - share),
    }
